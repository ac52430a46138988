//! The plainest statements, read without the grammar: `key = value` where the value is a text, a number, a name or a
//! list of them, the heads of blocks that are no more than that, and edges without a condition.
//!
//! Nearly every line of a file is one of these, and setting up the grammar for a line costs several times what reading
//! it does. What is not of these forms, or is wrong, is left to the grammar: here is no message and no decision of its
//! own. A property test below holds both to the same tree.

use crate::diagnostic::Place;
use crate::source::Span;
use crate::syntax::{EdgeLine, Name, Stop, Type, Value, ValueKind};

/// Words that are no names. The grammar's `keyword` says the same.
const KEYWORDS: [&str; 10] = ["and", "or", "not", "when", "true", "false", "if", "then", "else", "in"];

/// `key = value`, whole.
pub(super) fn assignment(text: &str, piece: Span) -> Option<(Name, Value)> {
    let mut words = Words::new(text, piece);
    let key = words.name()?;
    let value = words.behind_equals()?;
    words.end()?;
    Some((key, value))
}

/// A name, alone.
pub(super) fn name(text: &str, piece: Span) -> Option<Name> {
    let mut words = Words::new(text, piece);
    let name = words.name()?;
    words.end()?;
    Some(name)
}

/// `samples: int = 4`, what stands behind `param`.
pub(super) fn param(text: &str, piece: Span) -> Option<(Name, Type, Option<Value>)> {
    let mut words = Words::new(text, piece);
    let name = words.name()?;
    words.sign(b':')?;
    let of_type = Type { name: words.name()?, of: None };
    let value = if words.is_at_end() { None } else { Some(words.behind_equals()?) };
    words.end()?;
    Some((name, of_type, value))
}

/// `a -> [b, c] -> end`
pub(super) fn edge(text: &str, piece: Span) -> Option<EdgeLine> {
    let mut words = Words::new(text, piece);
    let mut stops = vec![words.stop()?];
    while !words.is_at_end() {
        words.arrow()?;
        stops.push(words.stop()?);
    }
    (stops.len() > 1).then_some(EdgeLine { stops, when: None })
}

/// A walk over one statement. None, from any of it: the grammar has to look.
struct Words<'t> {
    text: &'t str,
    at: usize,
    end: usize,
}

impl<'t> Words<'t> {
    fn new(text: &'t str, piece: Span) -> Self {
        Words { text, at: piece.start, end: piece.end.min(text.len()) }
    }

    fn peek(&self) -> Option<u8> {
        if self.at < self.end { self.text.as_bytes().get(self.at).copied() } else { None }
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    fn is_at_end(&mut self) -> bool {
        self.skip_space();
        self.at >= self.end
    }

    fn end(&mut self) -> Option<()> {
        self.is_at_end().then_some(())
    }

    /// Passes over a sign, and the space before it.
    fn sign(&mut self, sign: u8) -> Option<()> {
        self.skip_space();
        (self.peek()? == sign).then(|| self.at += 1)
    }

    fn arrow(&mut self) -> Option<()> {
        self.sign(b'-')?;
        (self.peek()? == b'>').then(|| self.at += 1)
    }

    fn behind_equals(&mut self) -> Option<Value> {
        self.sign(b'=')?;
        if self.peek()? == b'=' {
            return None;
        }
        self.value()
    }

    /// A row of letters, digits and `_`, perhaps empty.
    fn row(&mut self) -> &'t str {
        let start = self.at;
        while self.peek().is_some_and(is_of_word) {
            self.at += 1;
        }
        Span::new(start, self.at).of(self.text)
    }

    /// A word that may be a name, where the walk is.
    fn word(&mut self) -> Option<&'t str> {
        let first = self.peek()?;
        (is_of_word(first) && !first.is_ascii_digit()).then(|| self.row())
    }

    fn own_name(&mut self) -> Option<&'t str> {
        self.word().filter(|word| !KEYWORDS.contains(word))
    }

    fn name(&mut self) -> Option<Name> {
        self.skip_space();
        let start = self.at;
        let text = self.own_name()?.to_owned();
        Some(Name { text, place: self.since(start) })
    }

    fn since(&self, start: usize) -> Place {
        Span::new(start, self.at).into()
    }

    /// The rest of `a.b`, behind its first name.
    fn rest_of_path(&mut self) -> Option<()> {
        while self.peek() == Some(b'.') {
            self.at += 1;
            self.own_name()?;
        }
        Some(())
    }

    fn path(&mut self) -> Option<Name> {
        self.skip_space();
        let start = self.at;
        self.own_name()?;
        self.rest_of_path()?;
        let text = Span::new(start, self.at).of(self.text).to_owned();
        Some(Name { text, place: self.since(start) })
    }

    fn stop(&mut self) -> Option<Stop> {
        self.skip_space();
        let start = self.at;
        let names = if self.peek()? == b'[' {
            self.at += 1;
            let names = self.row_of(Self::path)?;
            (!names.is_empty()).then_some(names)?
        } else {
            vec![self.path()?]
        };
        Some(Stop { names, span: Span::new(start, self.at) })
    }

    /// What stands in brackets, with commas between, up to the closing one.
    fn row_of<T>(&mut self, one: fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut out = Vec::new();
        loop {
            if self.sign(b']').is_some() {
                return Some(out);
            }
            if !out.is_empty() {
                self.sign(b',')?;
                if self.sign(b']').is_some() {
                    return Some(out);
                }
            }
            out.push(one(self)?);
        }
    }

    fn value(&mut self) -> Option<Value> {
        self.skip_space();
        let start = self.at;
        let kind = match self.peek()? {
            b'"' => ValueKind::Text(self.quoted()?.to_owned()),
            b'0'..=b'9' => ValueKind::Number(self.number().to_owned()),
            b'[' => {
                self.at += 1;
                // Depth is bounded where the file is split into statements.
                ValueKind::List(self.row_of(Self::value)?)
            }
            _ => match self.word()? {
                "true" => ValueKind::Boolean(true),
                "false" => ValueKind::Boolean(false),
                word if KEYWORDS.contains(&word) => return None,
                _ => {
                    self.rest_of_path()?;
                    let names = Span::new(start, self.at).of(self.text).split('.');
                    ValueKind::Path(names.map(str::to_owned).collect())
                }
            },
        };
        Some(Value { kind, place: self.since(start) })
    }

    /// A text on one line in which nothing is escaped or inserted.
    fn quoted(&mut self) -> Option<&'t str> {
        let inside = Span::new(self.at + 1, self.end).of(self.text);
        let length = inside.bytes().position(|byte| matches!(byte, b'"' | b'\\' | b'$' | b'\n'))?;
        let (own, rest) = inside.split_at_checked(length)?;
        let rest = rest.strip_prefix('"')?;
        // Three quotes begin a text over several lines.
        if own.is_empty() && rest.starts_with('"') {
            return None;
        }
        self.at += length + 2;
        Some(own)
    }

    /// Digits, a fraction, an exponent, a unit.
    fn number(&mut self) -> &'t str {
        let start = self.at;
        self.digits();
        if self.peek() == Some(b'.') && self.digit_at(1) {
            self.at += 1;
            self.digits();
        }
        // Without a sign the exponent is read as letters and digits of a unit are.
        let signed = matches!(self.text.as_bytes().get(self.at + 1), Some(b'+' | b'-')) && self.digit_at(2);
        if signed && matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 2;
        }
        self.row();
        Span::new(start, self.at).of(self.text)
    }

    fn digits(&mut self) {
        while self.digit_at(0) {
            self.at += 1;
        }
    }

    fn digit_at(&self, further: usize) -> bool {
        let at = self.at + further;
        at < self.end && self.text.as_bytes().get(at).is_some_and(u8::is_ascii_digit)
    }
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::diagnostic::Reports;
    use crate::generate;
    use crate::parse::Reader;
    use crate::parse::grammar::Rule;
    use crate::scan::{Piece, scan, split_word};

    /// Reads a statement in both ways, where it can be read here at all.
    fn both<T: std::fmt::Debug>(
        text: &str,
        plain: fn(&str, Span) -> Option<T>,
        grammar: impl Fn(&mut Reader, Span) -> Option<T>,
    ) -> Option<(String, String)> {
        // Places count from the beginning of the file.
        let file = format!("# ü\n{text}\n}}");
        let piece = Span::new(5, 5 + text.len());
        let here = plain(&file, piece)?;
        let mut reports = Reports::new(&[]);
        let mut reader = Reader { text: &file, reports: &mut reports, from: 0, outside: None, space: 0 };
        let there = grammar(&mut reader, piece);
        let messages = reports.finish();
        Some((format!("{:?} []", Some(here)), format!("{there:?} {messages:?}")))
    }

    fn assignments(text: &str) -> Option<(String, String)> {
        both(text, assignment, |reader, piece| {
            let pair = reader.read(piece, Rule::assignment)?;
            reader.parts_of_assignment(pair)
        })
    }

    fn edges(text: &str) -> Option<(String, String)> {
        both(text, edge, |reader, piece| {
            let pair = reader.read(piece, Rule::edge)?;
            reader.parts_of_edge(pair)
        })
    }

    fn names(text: &str) -> Option<(String, String)> {
        both(text, name, |reader, piece| {
            let mut parts = reader.read(piece, Rule::named_head)?.into_inner();
            let name = parts.next()?;
            Some(reader.name(&name))
        })
    }

    fn params(text: &str) -> Option<(String, String)> {
        both(text, param, |reader, piece| {
            let (mut name, mut of_type, mut value) = (None, None, None);
            for part in reader.read(piece, Rule::param_head)?.into_inner() {
                match part.as_rule() {
                    Rule::name => name = Some(reader.name(&part)),
                    Rule::type_ => of_type = reader.of_type(part),
                    Rule::value => value = Some(reader.value(part)?),
                    // A range is never read here.
                    Rule::range => return None,
                    _ => {}
                }
            }
            Some((name?, of_type?, value))
        })
    }

    fn every_way(text: &str) -> impl Iterator<Item = (String, String)> {
        [assignments(text), edges(text), names(text), params(text)].into_iter().flatten()
    }

    #[test]
    fn the_usual_lines_need_no_grammar() {
        for text in [
            "temperature = 0.7",
            "learning_rate=5e-6",
            "memory = 64MiB",
            "system = \"You know sums. ü\"",
            "system = \"\"",
            "stop = [\"one\", \"two\",]",
            "lists = [[1], [\n  a.b\n]]",
            "policy = coder",
            " tool = maths.tool",
            "train = false",
        ] {
            let (here, there) = assignments(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(here, there, "{text}");
        }
        for text in ["start -> a->b -> end", "[a, team.b,] -> end"] {
            let (here, there) = edges(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(here, there, "{text}");
        }
        for text in [" samples: int = 4", " rate :float"] {
            let (here, there) = params(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(here, there, "{text}");
        }
    }

    #[test]
    fn keywords_are_those_of_the_grammar() {
        for word in KEYWORDS {
            assert!(names(word).is_none(), "{word}");
            let mut reports = Reports::new(&[]);
            let mut reader = Reader { text: word, reports: &mut reports, from: 0, outside: None, space: 0 };
            assert!(reader.read(Span::new(0, word.len()), Rule::named_head).is_none(), "{word}");
        }
    }

    /// The statements of a file and those in its blocks, and what stands behind the keywords of heads.
    fn parts<'t>(pieces: &[Piece], text: &'t str, out: &mut Vec<&'t str>) {
        for piece in pieces {
            let head = piece.head.of(text);
            out.extend([head, split_word(head).1]);
            if let Some(body) = &piece.body {
                parts(&body.pieces, text, out);
            }
        }
    }

    /// Rows of what statements are made of, mostly well-formed by their beginning.
    fn statements(beginnings: &'static [&'static str]) -> impl Strategy<Value = String> {
        const PARTS: &[&str] = &[
            "a", "b.c", "_x1", "in", "true", "false", "not", "when", "if", "int", "1", "0.5", "5e-6", "1e",
            "2E+3x", "64MiB", "1.", ".", "..", ",", "[", "]", "[]", "(", ")", "=", "==", "->", "-", "+", "<",
            ":", " ", "  ", "\t", "\n", "\r\n", "#", "\"", "\"\"", "\"\"\"", "\"t\"", "\"${a}\"", "\"$\"",
            "\"\\n\"", "\"\\q\"", "ü", "\"ü\"", "{", "}", ";", "\u{1}",
        ];
        (prop::sample::select(beginnings), prop::collection::vec(prop::sample::select(PARTS), 0..8))
            .prop_map(|(beginning, parts)| format!("{beginning}{}", parts.concat()))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever is read here, the grammar reads the same, without a message.
        #[test]
        fn both_read_the_same(
            assignment in statements(&["a = ", "a=", "a", "", " x = [", "a = b", "a = 1", "a = \"t\""]),
            edge in statements(&["a -> ", "a->b", "[a, ", "", "start -> [b", "a -> b -> "]),
            name in statements(&["", "a", " b"]),
            param in statements(&["a: int = ", "a: ", "a:int", "", "a: int = 1"]),
        ) {
            for (here, there) in [assignment, edge, name, param].iter().flat_map(|text| every_way(text)) {
                prop_assert_eq!(here, there);
            }
        }

        #[test]
        fn both_read_files_the_same(seed: u64, statements in 0_usize..12) {
            let text = generate::file(seed, statements);
            let mut reports = Reports::new(&[]);
            let mut all = Vec::new();
            parts(&scan(&text, 0..text.len(), &mut reports), &text, &mut all);
            for (here, there) in all.into_iter().flat_map(every_way) {
                prop_assert_eq!(here, there);
            }
        }
    }
}
