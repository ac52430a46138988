//! What stands between two tokens of one line.

use super::tokens::{Kind, Token};

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

/// The gap between neighbours within a statement.
pub(super) fn gap(before: Token, after: Token) -> Gap {
    let joined = match (before.kind, after.kind) {
        // Nobody knows what it belongs to.
        (Kind::Other, _) | (_, Kind::Other) => before.span.end == after.span.start,
        (kind, _) if kind.opens() => true,
        (_, Kind::CloseRound | Kind::CloseSquare | Kind::OpenCall | Kind::OpenIndex) => true,
        (_, Kind::Colon | Kind::Dot | Kind::Range) => true,
        (_, kind) if kind.is_comma() => true,
        (Kind::Dot, _) => true,
        (Kind::Range | Kind::Minus, kind) => {
            kind.ends_value() || matches!(kind, Kind::Minus | Kind::OpenGroup | Kind::OpenList)
        }
        _ => false,
    };
    if joined { Gap::None } else { Gap::Space }
}

/// The tokens of a stretch that is written on one line, each with the gap before it.
pub(super) struct Flat<'t> {
    tokens: &'t [Token],
    at: usize,
    end: usize,
    before: Token,
    /// A `;` stood before the next token.
    separated: bool,
}

impl<'t> Flat<'t> {
    /// The tokens from `start` to `end`, both included, which are written behind `before`.
    pub(super) fn new(tokens: &'t [Token], before: Token, start: usize, end: usize) -> Self {
        Flat { tokens, at: start, end, before, separated: false }
    }
}

impl Iterator for Flat<'_> {
    type Item = (Gap, usize, Token);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = self.at;
            let token = *self.tokens.get(at).filter(|_| at <= self.end)?;
            self.at += 1;
            match token.kind {
                Kind::Newline | Kind::LastComma | Kind::MovedComma => continue,
                Kind::Semicolon => {
                    self.separated = true;
                    continue;
                }
                _ => {}
            }
            let gap = match (self.before.kind, token.kind) {
                (Kind::OpenBrace, Kind::CloseBrace) => Gap::None,
                (Kind::OpenBrace, _) | (_, Kind::CloseBrace | Kind::OpenBrace) => Gap::Space,
                (Kind::CloseBrace, _) => Gap::Statement,
                _ if self.separated => Gap::Statement,
                _ => gap(self.before, token),
            };
            self.before = token;
            self.separated = false;
            return Some((gap, at, token));
        }
    }
}
