//! Spaces between the tokens of a line.

use super::lexer::{Token, TokenKind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gap {
    None,
    Space,
    /// `; `, between two statements.
    Statement,
}

impl Gap {
    pub(super) fn width(self) -> usize {
        match self {
            Gap::None => 0,
            Gap::Space => 1,
            Gap::Statement => 2,
        }
    }
}

/// Gap between two tokens within a statement.
pub(super) fn gap(before: Token, after: Token) -> Gap {
    let joined = match (before.kind, after.kind) {
        // The distance in the source is kept.
        (TokenKind::Other, _) | (_, TokenKind::Other) => before.span.end == after.span.start,
        (kind, _) if kind.opens() => true,
        (_, TokenKind::CloseRound | TokenKind::CloseSquare | TokenKind::OpenCall | TokenKind::OpenIndex) => {
            true
        }
        (_, TokenKind::Colon | TokenKind::Dot | TokenKind::Range) => true,
        (_, kind) if kind.is_comma() => true,
        (TokenKind::Dot, _) => true,
        (TokenKind::Range | TokenKind::Minus, kind) => {
            kind.ends_value() || matches!(kind, TokenKind::Minus | TokenKind::OpenGroup | TokenKind::OpenList)
        }
        _ => false,
    };
    if joined { Gap::None } else { Gap::Space }
}

/// Iterator over tokens that are written on one line, each with the gap before it and its index.
pub(super) struct OneLine<'t> {
    tokens: &'t [Token],
    index: usize,
    end: usize,
    before: Token,
    /// True if a `;` precedes the next token.
    separated: bool,
}

impl<'t> OneLine<'t> {
    /// Tokens from `start` to `end`, both included, which follow the token `before`.
    pub(super) fn new(tokens: &'t [Token], before: Token, start: usize, end: usize) -> Self {
        OneLine { tokens, index: start, end, before, separated: false }
    }
}

impl Iterator for OneLine<'_> {
    type Item = (Gap, usize, Token);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let index = self.index;
            let token = *self.tokens.get(index).filter(|_| index <= self.end)?;
            self.index += 1;
            match token.kind {
                TokenKind::Newline | TokenKind::TrailingComma | TokenKind::MovedComma => continue,
                TokenKind::Semicolon => {
                    self.separated = true;
                    continue;
                }
                _ => {}
            }
            let gap = match (self.before.kind, token.kind) {
                (TokenKind::OpenBrace, TokenKind::CloseBrace) => Gap::None,
                (TokenKind::OpenBrace, _) | (_, TokenKind::CloseBrace | TokenKind::OpenBrace) => Gap::Space,
                (TokenKind::CloseBrace, _) => Gap::Statement,
                _ if self.separated => Gap::Statement,
                _ => gap(self.before, token),
            };
            self.before = token;
            self.separated = false;
            return Some((gap, index, token));
        }
    }
}
