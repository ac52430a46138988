//! A text as a row of tokens: words, numbers, texts, signs, comments and newlines.
//!
//! The formatter reads no grammar. It moves tokens about and never looks inside one, so it works on a file
//! that the check would refuse, as long as brackets and quotes match.

use crate::diagnostic::{Code, Reports};
use crate::scan::DEEPEST;
use crate::source::Span;

/// What a token is, as far as its place on a line depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    /// A word that only stands between or before expressions: `and`, `when`, `in` and the like.
    Keyword,
    Number,
    /// `"…"` or `"""…"""`, with all that is inside.
    Text,
    /// A text with newlines in it.
    Lines,
    /// From `#` to the last character of the line that is no white space.
    Comment,
    Newline,
    Semicolon,
    Comma,
    /// A comma that nothing follows before its bracket closes; it comes and goes with the line break.
    LastComma,
    /// A comma that is written before the comments that stood before it.
    MovedComma,
    Colon,
    /// The dot of a path.
    Dot,
    /// The `..` of a range.
    Range,
    Equals,
    Arrow,
    /// A sign between two operands.
    Operator,
    /// A minus before its only operand.
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
    /// A character that the language does not have. It keeps its distance to its neighbours.
    Other,
}

impl Kind {
    /// Whether it opens `( )` or `[ ]`.
    pub(super) fn opens(self) -> bool {
        matches!(self, Kind::OpenCall | Kind::OpenGroup | Kind::OpenIndex | Kind::OpenList)
    }

    /// Whether it closes `( )` or `[ ]`.
    pub(super) fn closes(self) -> bool {
        matches!(self, Kind::CloseRound | Kind::CloseSquare)
    }

    /// Whether it is a comma, wherever it will be written.
    pub(super) fn is_comma(self) -> bool {
        matches!(self, Kind::Comma | Kind::LastComma | Kind::MovedComma)
    }

    /// Whether a value may end with it.
    pub(super) fn ends_value(self) -> bool {
        matches!(self, Kind::Word | Kind::Number | Kind::Text | Kind::Lines) || self.closes()
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Token {
    pub kind: Kind,
    pub span: Span,
    /// A comma is written behind it that stood further on.
    pub comma: bool,
}

/// Some editors write it before a text, of which it is no part.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The tokens of a text; none where a text in it is never closed, which is reported.
pub(super) fn tokens(text: &str, reports: &mut Reports) -> Option<Vec<Token>> {
    let mut lexer = Lexer { text, at: 0, reports };
    // A guess that saves most of the copying: a token and its blank take some six bytes.
    let mut tokens = Vec::with_capacity(text.len() / 6);
    while let Some(byte) = lexer.peek(0) {
        let start = lexer.at;
        if matches!(byte, b' ' | b'\t' | b'\r') {
            lexer.at += 1;
            continue;
        }
        // As a rule at the very start, but files are also made of others, one behind the other.
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

/// What the reader of a text is within.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Within {
    /// `"…"`, on one line.
    Line,
    /// `"""…"""`.
    Block,
    /// `${…}`, with so many braces open in it.
    Expression(usize),
}

impl Lexer<'_, '_, '_> {
    /// The byte so far ahead.
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

    /// Passes over the token that begins here with `byte`. What depends on its neighbours (a prefix minus, the
    /// brackets of calls) is found out later.
    fn token(&mut self, byte: u8) -> Option<Kind> {
        let kind = match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => return Some(self.word()),
            b'0'..=b'9' => return Some(self.number()),
            b'"' => return self.quoted(),
            b'#' => return Some(self.comment()),
            b'\n' => Kind::Newline,
            b';' => Kind::Semicolon,
            b',' => Kind::Comma,
            b':' => Kind::Colon,
            b'(' => Kind::OpenGroup,
            b')' => Kind::CloseRound,
            b'[' => Kind::OpenList,
            b']' => Kind::CloseSquare,
            b'{' => Kind::OpenBrace,
            b'}' => Kind::CloseBrace,
            b'.' if self.peek(1) == Some(b'.') => return Some(self.sign(2, Kind::Range)),
            b'.' => Kind::Dot,
            b'-' if self.peek(1) == Some(b'>') => return Some(self.sign(2, Kind::Arrow)),
            b'=' | b'!' | b'<' | b'>' if self.peek(1) == Some(b'=') => {
                return Some(self.sign(2, Kind::Operator));
            }
            b'=' => Kind::Equals,
            b'-' => Kind::Minus,
            b'<' | b'>' | b'+' | b'*' | b'/' | b'%' => Kind::Operator,
            _ => {
                let length =
                    self.text.get(self.at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
                return Some(self.sign(length, Kind::Other));
            }
        };
        Some(self.sign(1, kind))
    }

    fn sign(&mut self, length: usize, kind: Kind) -> Kind {
        self.at += length;
        kind
    }

    fn word(&mut self) -> Kind {
        let start = self.at;
        self.skip(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        match Span::new(start, self.at).of(self.text) {
            "and" | "or" | "not" | "when" | "if" | "then" | "else" | "in" => Kind::Keyword,
            _ => Kind::Word,
        }
    }

    /// Digits, a fraction, an exponent, a unit. A dot belongs to it only if a digit follows: `1..5` is a range.
    fn number(&mut self) -> Kind {
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
        Kind::Number
    }

    fn comment(&mut self) -> Kind {
        let rest = self.rest();
        let line = rest.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let blank = |byte: &&u8| matches!(**byte, b' ' | b'\t' | b'\r');
        let length = line.len() - line.iter().rev().take_while(blank).count();
        self.at += length;
        Kind::Comment
    }

    /// A whole text. Texts stand within `${ }` within texts, so it keeps a stack of what it is in.
    fn quoted(&mut self) -> Option<Kind> {
        let start = self.at;
        let mut within = vec![self.open_text()];
        let mut lines = false;
        while let Some(&inner) = within.last() {
            let Some(byte) = self.peek(0) else { return self.unclosed(start, inner) };
            match (inner, byte) {
                // Inside `"…"` a line never ends, not even within its `${ }`.
                (_, b'\n') if within.contains(&Within::Line) => return self.unclosed(start, Within::Line),
                (Within::Line | Within::Block, b'\\') => self.escape(),
                (Within::Line | Within::Block, b'$') if self.peek(1) == Some(b'{') => {
                    if within.len() >= DEEPEST {
                        let message = format!("texts are nested more than {DEEPEST} deep");
                        self.reports.error(Code::TooDeep, Span::new(self.at, self.at + 2), message, "");
                        return None;
                    }
                    within.push(Within::Expression(0));
                    self.at += 2;
                }
                (Within::Line, b'"') => {
                    within.pop();
                    self.at += 1;
                }
                (Within::Block, b'"') if self.rest().starts_with(b"\"\"\"") => {
                    within.pop();
                    self.at += 3;
                }
                (Within::Expression(_), b'"') => within.push(self.open_text()),
                (Within::Expression(open), b'{') => {
                    within.pop();
                    within.push(Within::Expression(open + 1));
                    self.at += 1;
                }
                (Within::Expression(open), b'}') => {
                    within.pop();
                    within.extend(open.checked_sub(1).map(Within::Expression));
                    self.at += 1;
                }
                _ => {
                    lines |= byte == b'\n';
                    self.at += 1;
                }
            }
        }
        Some(if lines { Kind::Lines } else { Kind::Text })
    }

    fn open_text(&mut self) -> Within {
        let (length, within) =
            if self.rest().starts_with(b"\"\"\"") { (3, Within::Block) } else { (1, Within::Line) };
        self.at += length;
        within
    }

    /// A backslash and what it escapes; the end of a line can't be escaped.
    fn escape(&mut self) {
        self.at += if self.peek(1).is_some_and(|next| next != b'\n') { 2 } else { 1 };
    }

    fn unclosed(&mut self, start: usize, inner: Within) -> Option<Kind> {
        let (length, label, help) = if inner == Within::Line {
            let help =
                "close it with `\"`; write a newline inside a text as `\\n`, and a plain `${` as `\\${`";
            (1, "no `\"` follows on this line", help)
        } else {
            (3, "no `\"\"\"` follows", "close it with `\"\"\"`")
        };
        let span = Span::new(start, start + length);
        self.reports.error(Code::Unclosed, span, "this text is never closed", label).help(help);
        None
    }
}
