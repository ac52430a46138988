//! Lists that a model or a program writes, in JSON or as Python prints them.

/// A value of JSON or Python.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Literal {
    /// An integer.
    Integer(i64),
    /// A string, or a word without quotes.
    Word(String),
    /// A list or a tuple.
    List(Vec<Literal>),
    /// An object or a dictionary.
    Map(Vec<(String, Literal)>),
}

/// Maximum nesting of lists and maps. No plan needs more than 3.
const MAX_DEPTH: usize = 8;

impl Literal {
    /// Returns the integer, also if it is in quotes.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(value) => Some(*value),
            Self::Word(word) => word.trim().parse().ok(),
            Self::List(_) | Self::Map(_) => None,
        }
    }

    /// Returns the items of a list.
    pub fn list(&self) -> Option<&[Self]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }
}

/// Returns the outermost lists of a text in order, each with its source. Takes linear time: what follows an unclosed
/// bracket is read again for each bracket around it, of which there are at most [`MAX_DEPTH`].
pub fn lists(text: &str) -> Vec<(Literal, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find('[') {
        let mut reader = Reader { rest: &rest[start..] };
        rest = match reader.value(0) {
            Some(list) => {
                let source = &rest[start..rest.len() - reader.rest.len()];
                found.push((list, source));
                reader.rest
            }
            None => &rest[start + 1..],
        };
    }
    found
}

struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    fn value(&mut self, depth: usize) -> Option<Literal> {
        self.skip_space();
        match self.rest.chars().next()? {
            '[' => self.items(']', depth).map(Literal::List),
            '(' => self.items(')', depth).map(Literal::List),
            '{' => self.map(depth),
            quote @ ('"' | '\'') => self.quoted(quote).map(Literal::Word),
            _ => self.word(),
        }
    }

    fn items(&mut self, close: char, depth: usize) -> Option<Vec<Literal>> {
        self.open(depth)?;
        let mut items = Vec::new();
        while !self.take(close) {
            items.push(self.value(depth + 1)?);
            self.end_item(close)?;
        }
        Some(items)
    }

    fn map(&mut self, depth: usize) -> Option<Literal> {
        self.open(depth)?;
        let mut entries = Vec::new();
        while !self.take('}') {
            let Literal::Word(key) = self.value(depth + 1)? else { return None };
            if !self.take(':') {
                return None;
            }
            entries.push((key, self.value(depth + 1)?));
            self.end_item('}')?;
        }
        Some(Literal::Map(entries))
    }

    /// Reads the opening bracket.
    fn open(&mut self, depth: usize) -> Option<()> {
        self.rest = self.rest.get(1..)?;
        (depth < MAX_DEPTH).then_some(())
    }

    /// Reads the comma after an item. The last item needs none.
    fn end_item(&mut self, close: char) -> Option<()> {
        (self.take(',') || self.next_is(close)).then_some(())
    }

    fn quoted(&mut self, quote: char) -> Option<String> {
        let inside = &self.rest[1..];
        let length = inside.find([quote, '\n'])?;
        let (word, rest) = inside.split_at(length);
        self.rest = rest.strip_prefix(quote)?;
        Some(word.to_owned())
    }

    /// Reads an integer or a word without quotes.
    fn word(&mut self) -> Option<Literal> {
        let belongs = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '+');
        let length = self.rest.find(|c| !belongs(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(length);
        self.rest = rest;
        match word.parse() {
            Ok(integer) => Some(Literal::Integer(integer)),
            Err(_) if word.is_empty() => None,
            Err(_) => Some(Literal::Word(word.to_owned())),
        }
    }

    fn take(&mut self, expected: char) -> bool {
        let found = self.next_is(expected);
        if found {
            self.rest = &self.rest[expected.len_utf8()..];
        }
        found
    }

    fn next_is(&mut self, expected: char) -> bool {
        self.skip_space();
        self.rest.starts_with(expected)
    }

    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Vec<Literal> {
        lists(text).into_iter().map(|(list, _)| list).collect()
    }

    fn word(text: &str) -> Literal {
        Literal::Word(text.to_owned())
    }

    #[test]
    fn json_and_python_are_read() {
        let list = Literal::List(vec![word("U"), word("R")]);
        for text in ["[\"U\", \"R\"]", "['U', 'R',]", "[U,R]", "[\n  \"U\",\n  \"R\"\n]", "so [U, R] it is"] {
            assert_eq!(read(text), std::slice::from_ref(&list), "{text}");
        }
        let cells = |row: [i64; 3]| Literal::List(row.map(Literal::Integer).to_vec());
        assert_eq!(
            read("[(0, 1, 2), [3, 4, -5]]"),
            [Literal::List(vec![cells([0, 1, 2]), cells([3, 4, -5])])]
        );
        let entry = Literal::Map(vec![("move".to_owned(), Literal::List(vec![word("B"), word("table")]))]);
        assert_eq!(read("[{\"move\": [\"B\", 'table']}]"), [Literal::List(vec![entry])]);
    }

    #[test]
    fn text_around_lists_is_skipped() {
        assert_eq!(read("a [1] b [2, [3]] c"), read("[1][2,[3]]"));
        assert_eq!(read("[1, 2"), []);
        assert_eq!(read("[x y] [1]"), [Literal::List(vec![Literal::Integer(1)])]);
        assert_eq!(read("[1 [2]"), [Literal::List(vec![Literal::Integer(2)])], "an unclosed bracket");
        assert_eq!(lists("so [1, [2]] then").first().map(|(_, source)| *source), Some("[1, [2]]"));
        assert_eq!(read("['a\nb'] [1.5] [\"é]"), []);
    }

    #[test]
    fn deep_and_long_texts_take_linear_time() {
        assert_eq!(read(&"[".repeat(20_000)), []);
        assert_eq!(read(&"[1,".repeat(20_000)), []);
        assert_eq!(read(&"[[1],".repeat(10_000)).len(), 10_000);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "(\\PC|\\[|\\]|\\(|\\{|\\}|,|:|'|\"|\n|é|12|U){0,60}") {
            lists(&text);
        }
    }
}
