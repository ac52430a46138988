//! Where a position stands: in which blocks, in which part of a statement, at which word.

use super::head::{depths, head};
use super::pieces;
use super::tokens::{Kind, Token, tokens};
use crate::scan::Piece;
use crate::source::Span;
use crate::syntax::BlockKind;

/// What is around a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The blocks around, from the outside in.
    pub blocks: Vec<Enclosing>,
    /// The part of the statement that it stands in.
    pub place: Place,
    /// The name that it stands in or right behind; empty where there is none.
    pub word: Span,
    /// The same with the names that stand before it with dots between: `maths.to` in `maths.tool`, for a position
    /// behind the `to`, is `maths.tool` here and `tool` in `word`.
    pub path: Span,
}

/// A block around a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enclosing {
    /// The kind whose settings stand in it; of a template, the kind of what it makes.
    pub kind: Option<BlockKind>,
    /// Its first word.
    pub keyword: Span,
    /// The name that it declares.
    pub name: Option<Span>,
    /// What stands behind the `=` of its head.
    pub value: Option<Span>,
    /// The keys that are given in it, wherever they stand.
    pub keys: Vec<Span>,
    /// The names of a template's parameters.
    pub parameters: Vec<Span>,
}

/// A part of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Where a statement begins: at its first word.
    Start,
    /// Behind the first word of a statement that is no setting, and before any `=`: the head of a block.
    Head {
        /// The first word.
        keyword: Span,
    },
    /// Behind the `=` of a block's head.
    Made {
        /// The kind of what is made.
        kind: Option<BlockKind>,
    },
    /// Behind the `=` of a setting.
    Value {
        /// The setting's key.
        key: Span,
    },
    /// In an edge, before any `when`.
    Edge,
    /// Behind `when`.
    Condition,
    /// In a text in quotes, outside of any `${ … }`.
    Text,
    /// In a comment.
    Comment,
}

impl Cursor {
    /// What is around a byte of a text. A position that is not in the text, or within a character, is moved back
    /// to the nearest that is.
    pub fn at(text: &str, at: usize) -> Cursor {
        let at = text.floor_char_boundary(at);
        let (word, path) = words(text, at);
        let mut blocks = Vec::new();
        let all = pieces(text);
        let (mut inside, mut from) = (all.as_slice(), 0);
        loop {
            // The last statement that begins before the position.
            let upto = inside.partition_point(|piece| start(piece) <= at);
            let last = inside.get(..upto).and_then(<[Piece]>::last);
            let place = match last {
                Some(piece) => match &piece.body {
                    Some(body) if body.span.start < at && (at < body.span.end || !body.closed) => {
                        blocks.push(enclosing(text, piece));
                        (inside, from) = (&body.pieces, body.span.start + 1);
                        continue;
                    }
                    Some(body) if at >= body.span.end => between(text, body.span.end, at),
                    _ => within(text, piece.head, at, &blocks),
                },
                None => between(text, from, at),
            };
            return Cursor { blocks, place, word, path };
        }
    }
}

fn start(piece: &Piece) -> usize {
    piece.body.as_ref().map_or(piece.head.start, |body| piece.head.start.min(body.span.start))
}

/// Between statements: a new one may begin, unless a comment is there.
fn between(text: &str, from: usize, at: usize) -> Place {
    let comment = tokens(text, Span::new(from, line_end(text, at)))
        .into_iter()
        .find(|token| token.kind == Kind::Comment && token.span.start < at && at <= token.span.end);
    if comment.is_some() { Place::Comment } else { Place::Start }
}

/// In a statement or right behind it.
fn within(text: &str, statement: Span, at: usize, blocks: &[Enclosing]) -> Place {
    let behind = Span::new(statement.end, at);
    if behind.of(text).contains(['\n', ';']) {
        return between(text, statement.end, at);
    }
    let all = tokens(text, Span::new(statement.start, line_end(text, at.max(statement.end))));
    let before: Vec<Token> = all.iter().take_while(|token| token.span.start < at).copied().collect();
    match before.last().map(|last| (last.kind, last.span.end)) {
        Some((Kind::Comment, _)) => Place::Comment,
        Some((Kind::Text { open }, end)) if at < end || (at == end && open) => Place::Text,
        _ => part(text, statement, &before, at, blocks),
    }
}

fn part(text: &str, statement: Span, before: &[Token], at: usize, blocks: &[Enclosing]) -> Place {
    let Some(first) = before.first() else { return Place::Start };
    if first.is_word() && at <= first.span.end {
        return Place::Start;
    }
    let in_turns = blocks.last().is_some_and(|block| block.kind == Some(BlockKind::Turns));
    let top = blocks.is_empty();
    let equals = depths(before).position(|(depth, token)| depth == 0 && token.is("="));
    let is_setting = before.get(1).is_some_and(|second| second.is("="));
    match equals {
        Some(1) if is_setting && first.is_word() => Place::Value { key: first.span },
        Some(_) if top => {
            let found = head(text, statement);
            let behind = found.made.filter(|made| made.span.end < at);
            let kind = behind.or(found.keyword).and_then(|keyword| kind(keyword.text));
            match found.made {
                // The kind itself is not there yet.
                Some(made) if at <= made.span.end => Place::Made { kind: None },
                None if first.text == "template" => Place::Made { kind: None },
                _ => Place::Made { kind },
            }
        }
        _ if in_turns && before.iter().any(|token| token.is("when")) => Place::Condition,
        _ if in_turns => Place::Edge,
        _ => Place::Head { keyword: first.span },
    }
}

fn kind(word: &str) -> Option<BlockKind> {
    BlockKind::from_keyword(word).or_else(|| BlockKind::inner_from_keyword(word))
}

fn enclosing(text: &str, piece: &Piece) -> Enclosing {
    let found = head(text, piece.head);
    let keyword = found.keyword.map_or(piece.head, |token| token.span);
    let body = piece.body.as_ref().map(|body| body.pieces.as_slice()).unwrap_or_default();
    let keys = body.iter().filter_map(|inner| {
        let tokens = tokens(text, inner.head);
        let mut tokens = tokens.iter();
        let key = tokens.next().filter(|token| token.is_word())?;
        let is_key = inner.body.is_some() || tokens.next().is_some_and(|second| second.is("="));
        is_key.then_some(key.span)
    });
    Enclosing {
        kind: found.made.or(found.keyword).and_then(|token| kind(token.text)),
        keyword,
        name: found.name,
        value: found.value,
        keys: keys.collect(),
        parameters: found.parameters,
    }
}

/// The name around a position, and the path up to its end.
fn words(text: &str, at: usize) -> (Span, Span) {
    let name = |one: char| one.is_ascii_alphanumeric() || one == '_';
    let (before, behind) = text.split_at(at);
    let end = at + behind.find(|one| !name(one)).unwrap_or(behind.len());
    let word = before.trim_end_matches(name).len();
    let path = before.trim_end_matches(|one| name(one) || one == '.').len();
    (Span::new(word, end), Span::new(path, end))
}

fn line_end(text: &str, at: usize) -> usize {
    text.get(at..).and_then(|rest| rest.find('\n')).map_or(text.len(), |length| at + length)
}
