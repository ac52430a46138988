//! The classes that a reader tells apart, and what each grammar calls them: the one table that both are held to.

/// A class of characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Class {
    /// What stands for it in a snapshot.
    pub letter: char,
    /// The name of the tree-sitter query's capture.
    pub capture: &'static str,
    /// The beginning of TextMate's name, as a theme selects it.
    pub scope: &'static str,
}

const fn class(letter: char, capture: &'static str, scope: &'static str) -> Class {
    Class { letter, capture, scope }
}

/// All of them. White space has none.
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

/// A text with the class of each of its bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Classified<'t> {
    pub text: &'t str,
    /// A letter for each byte; a space where there is none.
    pub letters: Vec<char>,
}

impl<'t> Classified<'t> {
    pub fn nothing(text: &'t str) -> Self {
        Classified { text, letters: vec![' '; text.len()] }
    }

    /// Gives a range of bytes a class. White space between words has none.
    pub fn set(&mut self, start: usize, end: usize, class: &Class) {
        self.letters[start..end].fill(class.letter);
    }

    /// Each line of the text over its letters, one a character.
    pub fn shown(&self) -> String {
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
