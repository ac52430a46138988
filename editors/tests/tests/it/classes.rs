//! Classes of characters with their names in both grammars.

/// A class of characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    /// Letter in snapshots.
    pub letter: char,
    /// Name of the capture in the tree-sitter query.
    pub capture: &'static str,
    /// Prefix of the TextMate scope, as a theme selects it.
    pub scope: &'static str,
}

const fn class(letter: char, capture: &'static str, scope: &'static str) -> Class {
    Class { letter, capture, scope }
}

/// All classes. White space has none.
pub const CLASSES: &[Class] = &[
    class('c', "comment", "comment"),
    class('k', "keyword", "keyword.declaration"),
    class('k', "keyword", "keyword.control"),
    class('D', "variable.definition", "entity.name.type"),
    class('T', "function.definition", "entity.name.function.definition"),
    class('a', "variable.parameter", "variable.parameter"),
    class('v', "variable", "variable.other"),
    class('B', "variable.builtin", "variable.language"),
    class('E', "constant.builtin", "constant.language.stop"),
    class('p', "property", "variable.other.property"),
    class('t', "type", "support.type"),
    class('f', "function", "entity.name.function"),
    class('F', "function.builtin", "support.function"),
    class('n', "number", "constant.numeric"),
    class('b', "boolean", "constant.language.boolean"),
    class('s', "string", "string"),
    class('e', "string.escape", "constant.character.escape"),
    class('$', "punctuation.special", "punctuation.definition.template-expression"),
    class('o', "operator", "keyword.operator"),
    class('(', "punctuation.bracket", "punctuation.bracket"),
    class('.', "punctuation.delimiter", "punctuation.separator"),
];

/// A text with the class of each byte.
#[derive(Debug, PartialEq, Eq)]
pub struct Classified<'t> {
    pub text: &'t str,
    /// Letter of the class of each byte; a space if it has none.
    pub letters: Vec<char>,
}

impl<'t> Classified<'t> {
    pub fn unclassified(text: &'t str) -> Self {
        Classified { text, letters: vec![' '; text.len()] }
    }

    /// Sets the class of a range of bytes.
    pub fn set(&mut self, start: usize, end: usize, class: &Class) {
        self.letters[start..end].fill(class.letter);
    }

    /// Renders each line of the text above the letters of its characters.
    pub fn render(&self) -> String {
        let mut out = String::new();
        let mut start = 0;
        for line in self.text.split_inclusive('\n') {
            let characters = line.trim_end_matches('\n').char_indices();
            let letters: String = characters
                .map(|(at, one)| if one.is_whitespace() { ' ' } else { self.letters[start + at] })
                .collect();
            out.push_str(line.trim_end());
            out.push('\n');
            out.push_str(letters.trim_end());
            out.push('\n');
            start += line.len();
        }
        out
    }
}
