//! Words, signs and texts of a part of a file, for texts that may be broken anywhere.
//!
//! What stands in `${ … }` comes out as words and signs of its own. One walk, no recursion.

use crate::scan::split_word;
use crate::source::Span;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    Number,
    Sign,
    /// A part of a text in quotes: the opening quotes, and what stands before or behind a `${ … }`.
    Text {
        /// Whether the text goes on behind this part.
        open: bool,
    },
    Comment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'t> {
    pub kind: Kind,
    pub text: &'t str,
    pub span: Span,
}

impl Token<'_> {
    pub fn is(&self, sign: &str) -> bool {
        matches!(self.kind, Kind::Sign | Kind::Word) && self.text == sign
    }

    pub fn is_word(&self) -> bool {
        self.kind == Kind::Word
    }
}

/// What the walk is in the middle of.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    /// Words and signs, with so many braces open in them.
    Code(usize),
    /// A text between these quotes.
    Text(&'static str),
}

/// The tokens between two places, white space left out.
pub(super) fn tokens(text: &str, span: Span) -> Vec<Token<'_>> {
    let mut walk = Walk { text, at: span.start, end: span.end, inside: Vec::new(), out: Vec::new() };
    while let Some(first) = walk.rest().chars().next() {
        match walk.inside.last().copied().unwrap_or(Mode::Code(0)) {
            Mode::Text(quote) => walk.text(quote),
            Mode::Code(braces) => walk.code(first, braces),
        }
    }
    walk.out
}

struct Walk<'t> {
    text: &'t str,
    at: usize,
    end: usize,
    /// From the outside in; nothing where there are words and signs alone.
    inside: Vec<Mode>,
    out: Vec<Token<'t>>,
}

impl<'t> Walk<'t> {
    fn rest(&self) -> &'t str {
        Span::new(self.at, self.end).of(self.text)
    }

    fn push(&mut self, kind: Kind, length: usize) {
        let span = Span::new(self.at, self.at + length);
        self.out.push(Token { kind, text: span.of(self.text), span });
        self.at = span.end;
    }

    fn code(&mut self, first: char, braces: usize) {
        let rest = self.rest();
        let nested = !self.inside.is_empty();
        match first {
            // A text that should have ended on its line.
            '\n' if self.inside.contains(&Mode::Text("\"")) => self.inside.clear(),
            _ if first.is_whitespace() => self.at += first.len_utf8(),
            '#' if !nested => self.push(Kind::Comment, rest.find('\n').unwrap_or(rest.len())),
            '"' => {
                let quote = if rest.starts_with("\"\"\"") { "\"\"\"" } else { "\"" };
                self.push(Kind::Text { open: true }, quote.len());
                self.inside.push(Mode::Text(quote));
            }
            '}' if nested && braces == 0 => {
                self.push(Kind::Sign, 1);
                self.inside.pop();
            }
            '{' | '}' if nested => {
                self.inside.pop();
                let braces = if first == '{' { braces + 1 } else { braces - 1 };
                self.inside.push(Mode::Code(braces));
                self.push(Kind::Sign, 1);
            }
            '0'..='9' => self.push(Kind::Number, split_word(rest).0.len()),
            _ if first.is_ascii_alphabetic() || first == '_' => {
                self.push(Kind::Word, split_word(rest).0.len());
            }
            _ => {
                let two = ["->", "==", "!=", "<=", ">=", ".."].into_iter().find(|two| rest.starts_with(two));
                self.push(Kind::Sign, two.map_or(first.len_utf8(), str::len));
            }
        }
    }

    /// Up to the closing quotes, the next `${`, or where the text should have ended.
    fn text(&mut self, quote: &'static str) {
        let rest = self.rest();
        let mut length = 0;
        while let Some(here) = rest.get(length..).filter(|here| !here.is_empty()) {
            if here.starts_with(quote) {
                self.push(Kind::Text { open: false }, length + quote.len());
                self.inside.pop();
                return;
            }
            if here.starts_with("${") {
                if length > 0 {
                    self.push(Kind::Text { open: true }, length);
                }
                self.push(Kind::Sign, 2);
                self.inside.push(Mode::Code(0));
                return;
            }
            if here.starts_with('\n') && quote.len() == 1 {
                self.push(Kind::Text { open: true }, length);
                self.inside.clear();
                return;
            }
            let mut characters = here.chars();
            length += characters.next().map_or(1, char::len_utf8);
            if here.starts_with('\\') {
                length += characters.next().filter(|next| *next != '\n').map_or(0, char::len_utf8);
            }
        }
        self.push(Kind::Text { open: true }, rest.len());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let all = Span::new(0, text.len());
        let kind = |kind| match kind {
            Kind::Text { .. } => "Text".to_owned(),
            kind => format!("{kind:?}"),
        };
        tokens(text, all).iter().map(|token| format!("{} {}", kind(token.kind), token.text)).collect()
    }

    #[test]
    fn what_stands_in_a_text_comes_out_word_by_word() {
        let found = shown("a = \"x ${lower(\"n${b}\")} \\\" #\" # c");
        let expected = [
            "Word a",
            "Sign =",
            "Text \"",
            "Text x ",
            "Sign ${",
            "Word lower",
            "Sign (",
            "Text \"",
            "Text n",
            "Sign ${",
            "Word b",
            "Sign }",
            "Text \"",
            "Sign )",
            "Sign }",
            "Text  \\\" #\"",
            "Comment # c",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_text_that_is_never_closed_ends_with_its_line() {
        assert_eq!(
            shown("a = \"${b\nc = 1"),
            ["Word a", "Sign =", "Text \"", "Sign ${", "Word b", "Word c", "Sign =", "Number 1"]
        );
    }

    proptest! {
        /// Tokens stand in order, and all that is between them is white space.
        #[test]
        fn nothing_is_lost(text in "([a-z0-9]|[\"#$={}()\\[\\]\\\\.\n ]|\\$\\{|\"\"\"|ü|\u{1F600}){0,60}") {
            let mut at = 0;
            for token in tokens(&text, Span::new(0, text.len())) {
                prop_assert!(text[at..token.span.start].trim().is_empty(), "{:?}", &text[at..token.span.start]);
                prop_assert_eq!(&text[token.span.start..token.span.end], token.text);
                at = token.span.end;
            }
            prop_assert!(text[at..].trim().is_empty());
        }
    }
}
