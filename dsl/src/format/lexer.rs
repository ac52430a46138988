//! Tokens of the formatter: words, numbers, texts, symbols, comments and newlines.
//!
//! The formatter doesn't use the grammar. It only moves tokens, so it works on a file with mistakes as long as brackets and
//! quotes match.

use crate::diagnostic::reports::Reports;
use crate::source::Span;
use crate::syntax::text::{end_of_text, report_unclosed};

/// Kind of a token, as far as formatting depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    Word,
    /// A keyword before or between expressions, such as `and`, `when` and `in`.
    Keyword,
    Number,
    /// `"…"` or `"""…"""` with its content.
    Text,
    /// A text that contains newlines.
    MultilineText,
    /// A comment: `#` to the end of the line, without trailing white space.
    Comment,
    Newline,
    Semicolon,
    Comma,
    /// A comma before a closing bracket, which is only written if a newline follows.
    TrailingComma,
    /// A comma that moves in front of the preceding comments.
    MovedComma,
    Colon,
    /// The dot of a path.
    Dot,
    /// The `..` of a range.
    Range,
    Equals,
    Arrow,
    /// A binary operator.
    Operator,
    /// A unary minus.
    Minus,
    /// The `(` of a call, or of a template's parameters.
    OpenCall,
    /// A `(` around an expression.
    OpenGroup,
    /// The `[` of `x[0]`.
    OpenIndex,
    OpenList,
    CloseRound,
    CloseSquare,
    OpenBrace,
    CloseBrace,
    /// A character that is not part of the language. Its distance to its neighbours is kept.
    Other,
}

impl TokenKind {
    /// True if it opens `( )` or `[ ]`.
    pub(super) fn opens(self) -> bool {
        matches!(
            self,
            TokenKind::OpenCall | TokenKind::OpenGroup | TokenKind::OpenIndex | TokenKind::OpenList
        )
    }

    /// True if it closes `( )` or `[ ]`.
    pub(super) fn closes(self) -> bool {
        matches!(self, TokenKind::CloseRound | TokenKind::CloseSquare)
    }

    /// True for every kind of comma.
    pub(super) fn is_comma(self) -> bool {
        matches!(self, TokenKind::Comma | TokenKind::TrailingComma | TokenKind::MovedComma)
    }

    /// True if a value may end with it.
    pub(super) fn ends_value(self) -> bool {
        matches!(self, TokenKind::Word | TokenKind::Number | TokenKind::Text | TokenKind::MultilineText)
            || self.closes()
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Token {
    pub kind: TokenKind,
    pub span: Span,
    /// True if a comma that was further on is written after it.
    pub comma: bool,
}

/// Written by some editors at the start of a file; not part of the text.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// Splits a text into tokens. Returns `None` and reports an error if a quoted text is not closed.
pub(super) fn tokenize(text: &str, reports: &mut Reports) -> Option<Vec<Token>> {
    let mut lexer = Lexer { text, at: 0, reports };
    // A token with its space takes about six bytes.
    let mut tokens = Vec::with_capacity(text.len() / 6);
    while let Some(byte) = lexer.peek(0) {
        let start = lexer.at;
        if matches!(byte, b' ' | b'\t' | b'\r') {
            lexer.at += 1;
            continue;
        }
        // Usually at the start, but also within files that were concatenated.
        if lexer.rest().starts_with(BYTE_ORDER_MARK.as_bytes()) {
            lexer.at += BYTE_ORDER_MARK.len();
            continue;
        }
        let kind = lexer.token(byte)?;
        tokens.push(Token { kind, span: Span::new(start, lexer.at), comma: false });
    }
    Some(tokens)
}

struct Lexer<'t, 'r, 'o> {
    text: &'t str,
    at: usize,
    reports: &'r mut Reports<'o>,
}

impl Lexer<'_, '_, '_> {
    /// Byte at a distance from the current position.
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.at + ahead).copied()
    }

    fn rest(&self) -> &[u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn skip(&mut self, wanted: impl Fn(u8) -> bool) {
        let rest = self.rest();
        self.at += rest.iter().position(|byte| !wanted(*byte)).unwrap_or(rest.len());
    }

    /// Skips the token that begins here with `byte` and returns its kind. Kinds that depend on neighbours (a unary minus, the
    /// brackets of calls) are determined later.
    fn token(&mut self, byte: u8) -> Option<TokenKind> {
        let kind = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => return Some(self.word()),
            b'0'..=b'9' => return Some(self.number()),
            b'"' => return self.quoted(),
            b'#' => return Some(self.comment()),
            b'\n' => TokenKind::Newline,
            b';' => TokenKind::Semicolon,
            b',' => TokenKind::Comma,
            b':' => TokenKind::Colon,
            b'(' => TokenKind::OpenGroup,
            b')' => TokenKind::CloseRound,
            b'[' => TokenKind::OpenList,
            b']' => TokenKind::CloseSquare,
            b'{' => TokenKind::OpenBrace,
            b'}' => TokenKind::CloseBrace,
            b'.' if self.peek(1) == Some(b'.') => return Some(self.symbol(2, TokenKind::Range)),
            b'.' => TokenKind::Dot,
            b'-' if self.peek(1) == Some(b'>') => return Some(self.symbol(2, TokenKind::Arrow)),
            b'=' | b'!' | b'<' | b'>' if self.peek(1) == Some(b'=') => {
                return Some(self.symbol(2, TokenKind::Operator));
            }
            b'=' => TokenKind::Equals,
            b'-' => TokenKind::Minus,
            b'<' | b'>' | b'+' | b'*' | b'/' | b'%' => TokenKind::Operator,
            _ => {
                let length =
                    self.text.get(self.at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
                return Some(self.symbol(length, TokenKind::Other));
            }
        };
        Some(self.symbol(1, kind))
    }

    fn symbol(&mut self, length: usize, kind: TokenKind) -> TokenKind {
        self.at += length;
        kind
    }

    fn word(&mut self) -> TokenKind {
        let start = self.at;
        self.skip(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        match Span::new(start, self.at).slice(self.text) {
            "and" | "or" | "not" | "when" | "if" | "then" | "else" | "in" => TokenKind::Keyword,
            _ => TokenKind::Word,
        }
    }

    /// Skips digits, fraction, exponent and unit. A dot is part of the number only if a digit follows: `1..5` is a range.
    fn number(&mut self) -> TokenKind {
        let digit = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_digit());
        self.skip(|byte| byte.is_ascii_digit());
        if self.peek(0) == Some(b'.') && digit(self.peek(1)) {
            self.at += 1;
            self.skip(|byte| byte.is_ascii_digit());
        }
        if matches!(self.peek(0), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(self.peek(1), Some(b'+' | b'-')));
            if digit(self.peek(1 + sign)) {
                self.at += 1 + sign;
            }
        }
        self.skip(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        TokenKind::Number
    }

    fn comment(&mut self) -> TokenKind {
        let rest = self.rest();
        let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let blank = |byte: &&u8| matches!(**byte, b' ' | b'\t' | b'\r');
        let length = line.len() - line.iter().rev().take_while(blank).count();
        self.at += length;
        TokenKind::Comment
    }

    /// Skips a quoted text, with the texts inside its `${ … }`.
    fn quoted(&mut self) -> Option<TokenKind> {
        let start = self.at;
        match end_of_text(self.text, start) {
            Ok(end) => self.at = end,
            Err(unclosed) => {
                report_unclosed(start, unclosed, self.reports);
                return None;
            }
        }
        let multi_line = Span::new(start, self.at).slice(self.text).contains('\n');
        Some(if multi_line { TokenKind::MultilineText } else { TokenKind::Text })
    }
}
