//! Tokens of a part of a file, which may have mistakes anywhere.
//!
//! The content of `${ … }` gives tokens of its own. One pass without recursion.

use crate::source::Span;
use crate::syntax::scan::split_word;
use crate::syntax::text::{LiteralWalk, Step};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    Word,
    Number,
    Symbol,
    /// A part of a quoted text: the opening quotes, or a part before or after a `${ … }`.
    Text {
        /// True if the text continues after this part.
        open: bool,
    },
    Comment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'t> {
    pub kind: TokenKind,
    pub text: &'t str,
    pub span: Span,
}

impl Token<'_> {
    pub fn is(&self, text: &str) -> bool {
        matches!(self.kind, TokenKind::Symbol | TokenKind::Word) && self.text == text
    }

    pub fn is_word(&self) -> bool {
        self.kind == TokenKind::Word
    }
}

/// Splits a part of a text into tokens, without white space.
pub(super) fn tokenize(text: &str, span: Span) -> Vec<Token<'_>> {
    let mut lexer =
        Lexer { text, at: span.start, end: span.end, literals: LiteralWalk::default(), out: Vec::new() };
    while let Some(first) = lexer.rest().chars().next() {
        lexer.token(first);
    }
    lexer.out
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
    end: usize,
    literals: LiteralWalk,
    out: Vec<Token<'t>>,
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        Span::new(self.at, self.end).slice(self.text)
    }

    fn push(&mut self, kind: TokenKind, length: usize) {
        let span = Span::new(self.at, self.at + length);
        self.out.push(Token { kind, text: span.slice(self.text), span });
        self.at = span.end;
    }

    fn token(&mut self, first: char) {
        if self.literals.in_text() {
            return self.text();
        }
        let outside = self.literals.depth() == 0;
        match self.literals.step(self.rest().as_bytes()) {
            (Step::Open, length) => self.push(TokenKind::Text { open: true }, length),
            (Step::CloseInserted, length) => self.push(TokenKind::Symbol, length),
            _ => self.code(first, outside),
        }
    }

    fn code(&mut self, first: char, outside: bool) {
        let rest = self.rest();
        match first {
            _ if first.is_whitespace() => self.at += first.len_utf8(),
            '#' if outside => self.push(TokenKind::Comment, rest.find('\n').unwrap_or(rest.len())),
            '0'..='9' => self.push(TokenKind::Number, split_word(rest).0.len()),
            _ if first.is_ascii_alphabetic() || first == '_' => {
                self.push(TokenKind::Word, split_word(rest).0.len());
            }
            _ => {
                let two = ["->", "==", "!=", "<=", ">=", ".."].into_iter().find(|two| rest.starts_with(two));
                self.push(TokenKind::Symbol, two.map_or(first.len_utf8(), str::len));
            }
        }
    }

    /// Skips a part of a quoted text: up to the closing quotes, the next `${`, or the end of the line if it is not closed.
    fn text(&mut self) {
        let rest = self.rest();
        let mut length = 0;
        loop {
            let (step, more) = self.literals.step(rest.as_bytes().get(length..).unwrap_or_default());
            match step {
                Step::Text => length += more,
                Step::OpenInserted => {
                    if length > 0 {
                        self.push(TokenKind::Text { open: true }, length);
                    }
                    return self.push(TokenKind::Symbol, more);
                }
                Step::Close => return self.push(TokenKind::Text { open: false }, length + more),
                _ => return self.push(TokenKind::Text { open: true }, length),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> Vec<String> {
        let all = Span::new(0, text.len());
        let kind = |kind| match kind {
            TokenKind::Text { .. } => "Text".to_owned(),
            kind => format!("{kind:?}"),
        };
        tokenize(text, all).iter().map(|token| format!("{} {}", kind(token.kind), token.text)).collect()
    }

    #[test]
    fn inserted_expressions_are_split_into_tokens() {
        let found = shown("a = \"x ${lower(\"n${b}\")} \\\" #\" # c");
        let expected = [
            "Word a",
            "Symbol =",
            "Text \"",
            "Text x ",
            "Symbol ${",
            "Word lower",
            "Symbol (",
            "Text \"",
            "Text n",
            "Symbol ${",
            "Word b",
            "Symbol }",
            "Text \"",
            "Symbol )",
            "Symbol }",
            "Text  \\\" #\"",
            "Comment # c",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_unclosed_text_ends_with_its_line() {
        assert_eq!(
            shown("a = \"${b\nc = 1"),
            ["Word a", "Symbol =", "Text \"", "Symbol ${", "Word b", "Word c", "Symbol =", "Number 1"]
        );
    }

    proptest! {
        /// Tokens are in order, with only white space between them.
        #[test]
        fn nothing_is_lost(text in "([a-z0-9]|[\"#$={}()\\[\\]\\\\.\n ]|\\$\\{|\"\"\"|ü|\u{1F600}){0,60}") {
            let mut at = 0;
            for token in tokenize(&text, Span::new(0, text.len())) {
                prop_assert!(text[at..token.span.start].trim().is_empty(), "{:?}", &text[at..token.span.start]);
                prop_assert_eq!(&text[token.span.start..token.span.end], token.text);
                at = token.span.end;
            }
            prop_assert!(text[at..].trim().is_empty());
        }
    }
}
