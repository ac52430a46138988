//! Context of a position in a text: the enclosing blocks, the part of the statement, and the word.

use super::head::{depths, head};
use super::lexer::{Token, TokenKind, tokenize};
use super::statements;
use crate::source::Span;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::scan::Statement;

/// Context of a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// Enclosing blocks, the outermost first.
    pub blocks: Vec<EnclosingBlock>,
    /// Part of the statement.
    pub context: CursorContext,
    /// Name at the position or directly before it; empty if there is none.
    pub word: Span,
    /// `word` with the preceding names of its path: after `maths.to` in `maths.tool`, the path is `maths.tool` and the word
    /// `tool`.
    pub path: Span,
}

/// A block that encloses a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnclosingBlock {
    /// Kind of its settings; for a template, the kind of the blocks that it creates.
    pub kind: Option<BlockKind>,
    /// First word.
    pub keyword: Span,
    /// Declared name.
    pub name: Option<Span>,
    /// Expression after the `=` of its head.
    pub value: Option<Span>,
    /// Keys that are set in it.
    pub keys: Vec<Span>,
    /// Names of a template's parameters.
    pub parameters: Vec<Span>,
}

/// A part of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CursorContext {
    /// First word of a statement.
    StatementStart,
    /// Head of a block, after its first word and before any `=`.
    Head {
        /// First word.
        keyword: Span,
    },
    /// After the `=` of a block's head.
    HeadValue {
        /// Kind of the block that is created.
        kind: Option<BlockKind>,
    },
    /// Argument of a template, after the `=` of a block's head.
    Argument {
        /// Path of the template.
        template: Span,
        /// Name before the `=` of the argument.
        name: Option<Span>,
        /// Number of arguments before this one.
        position: usize,
        /// Names of the other arguments before the position that have one.
        given: Vec<Span>,
    },
    /// After the `=` of a setting.
    Value {
        /// Key of the setting.
        key: Span,
    },
    /// Edge, before any `when`.
    Edge,
    /// After `when`.
    Condition,
    /// Quoted text, outside of any `${ … }`.
    Text,
    /// Comment.
    Comment,
}

impl Cursor {
    /// Analyses the context of a byte offset. An offset beyond the text or within a character moves back to the nearest
    /// valid one.
    pub fn new(text: &str, offset: usize) -> Cursor {
        let at = text.floor_char_boundary(offset);
        let (word, path) = word_and_path(text, at);
        let mut blocks = Vec::new();
        let all = statements(text);
        let (mut inside, mut from) = (all.as_slice(), 0);
        loop {
            // The last statement that starts before the position.
            let upto = inside.partition_point(|piece| start(piece) <= at);
            let last = inside.get(..upto).and_then(<[Statement]>::last);
            let context = match last {
                Some(piece) => match &piece.body {
                    Some(body) if body.span.start < at && (at < body.span.end || !body.closed) => {
                        blocks.push(enclosing(text, piece, blocks.last()));
                        (inside, from) = (&body.statements, body.span.start + 1);
                        continue;
                    }
                    Some(body) if at >= body.span.end => between(text, body.span.end, at),
                    _ => within(text, piece.head, at, &blocks),
                },
                None => between(text, from, at),
            };
            return Cursor { blocks, context, word, path };
        }
    }
}

fn start(piece: &Statement) -> usize {
    piece.body.as_ref().map_or(piece.head.start, |body| piece.head.start.min(body.span.start))
}

/// Context between statements: the start of a statement, or a comment.
fn between(text: &str, from: usize, at: usize) -> CursorContext {
    let comment = tokenize(text, Span::new(from, line_end(text, at)))
        .into_iter()
        .find(|token| token.kind == TokenKind::Comment && token.span.start < at && at <= token.span.end);
    if comment.is_some() { CursorContext::Comment } else { CursorContext::StatementStart }
}

/// Context in a statement or directly after it.
fn within(text: &str, statement: Span, at: usize, blocks: &[EnclosingBlock]) -> CursorContext {
    let behind = Span::new(statement.end, at);
    if behind.slice(text).contains(['\n', ';']) {
        return between(text, statement.end, at);
    }
    let all = tokenize(text, Span::new(statement.start, line_end(text, at.max(statement.end))));
    let before: Vec<Token> = all.iter().take_while(|token| token.span.start < at).copied().collect();
    match before.last().map(|last| (last.kind, last.span.end)) {
        Some((TokenKind::Comment, _)) => CursorContext::Comment,
        Some((TokenKind::Text { open }, end)) if at < end || (at == end && open) => CursorContext::Text,
        _ => part(text, statement, &before, at, blocks),
    }
}

fn part(
    text: &str,
    statement: Span,
    before: &[Token],
    at: usize,
    blocks: &[EnclosingBlock],
) -> CursorContext {
    let Some(first) = before.first() else { return CursorContext::StatementStart };
    if first.is_word() && at <= first.span.end {
        return CursorContext::StatementStart;
    }
    let in_turns = blocks.last().is_some_and(|block| block.kind == Some(BlockKind::Turns));
    let top = blocks.is_empty();
    let equals = depths(before).position(|(depth, token)| depth == 0 && token.is("="));
    let is_setting = before.get(1).is_some_and(|second| second.is("="));
    match equals {
        Some(1) if is_setting && first.is_word() => CursorContext::Value { key: first.span },
        Some(equals) if top => {
            let argument = before.get(equals + 1..).and_then(argument);
            let found = head(text, statement);
            let template_kind = found.template_kind.filter(|kind| kind.span.end < at);
            let kind =
                template_kind.or(found.keyword).and_then(|keyword| BlockKind::from_keyword(keyword.text));
            match found.template_kind {
                // The kind is still incomplete.
                Some(kind) if at <= kind.span.end => CursorContext::HeadValue { kind: None },
                None if first.text == "template" => CursorContext::HeadValue { kind: None },
                _ => match argument.filter(|_| kind.is_some_and(BlockKind::is_template_kind)) {
                    Some(argument) => argument,
                    None => CursorContext::HeadValue { kind },
                },
            }
        }
        _ if in_turns && before.iter().any(|token| token.is("when")) => CursorContext::Condition,
        _ if in_turns => CursorContext::Edge,
        _ => CursorContext::Head { keyword: first.span },
    }
}

/// Context in the arguments of a call, from the tokens before it. Returns `None` before and after the arguments.
fn argument(value: &[Token]) -> Option<CursorContext> {
    let open = value.iter().position(|token| token.is("("))?;
    let (first, last) = (value.first()?, value.get(open.checked_sub(1)?)?);
    let template = Span::new(first.span.start, last.span.end);
    let arguments = value.get(open + 1..)?;
    let (mut depth, mut start) = (0_usize, 0);
    // Those of the arguments before.
    let mut starts = Vec::new();
    for (index, token) in arguments.iter().enumerate() {
        if ["(", "[", "${"].iter().any(|sign| token.is(sign)) {
            depth += 1;
        } else if [")", "]", "}"].iter().any(|sign| token.is(sign)) {
            depth = depth.checked_sub(1)?;
        } else if depth == 0 && token.is(",") {
            starts.push(start);
            start = index + 1;
        }
    }
    let name = named(arguments.get(start..).unwrap_or_default());
    let given = starts.iter().filter_map(|start| named(arguments.get(*start..)?)).collect();
    Some(CursorContext::Argument { template, name, position: starts.len(), given })
}

/// Returns the name of an argument, from its tokens on. Returns `None` if it has none.
fn named(argument: &[Token]) -> Option<Span> {
    match argument {
        [name, equals, ..] if name.is_word() && equals.is("=") => Some(name.span),
        _ => None,
    }
}

/// Describes a block, which is inside `outer`.
fn enclosing(text: &str, piece: &Statement, outer: Option<&EnclosingBlock>) -> EnclosingBlock {
    let kind = |word: &str| match outer {
        Some(outer) => outer.kind?.inner_block(word),
        None => BlockKind::from_keyword(word),
    };
    let found = head(text, piece.head);
    let keyword = found.keyword.map_or(piece.head, |token| token.span);
    let body = piece.body.as_ref().map(|body| body.statements.as_slice()).unwrap_or_default();
    let keys = body.iter().filter_map(|inner| {
        let tokens = tokenize(text, inner.head);
        let mut tokens = tokens.iter();
        let key = tokens.next().filter(|token| token.is_word())?;
        let is_key = inner.body.is_some() || tokens.next().is_some_and(|second| second.is("="));
        is_key.then_some(key.span)
    });
    EnclosingBlock {
        kind: found.template_kind.or(found.keyword).and_then(|token| kind(token.text)),
        keyword,
        name: found.name,
        value: found.value,
        keys: keys.collect(),
        parameters: found.parameters,
    }
}

/// Word at a position, and the path up to its end.
fn word_and_path(text: &str, at: usize) -> (Span, Span) {
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
