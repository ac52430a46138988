//! The blocks of a file, as an editor lists them.

use super::head::head;
use super::pieces;
use crate::scan::Piece;
use crate::source::Span;

/// A block, or one within another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// Its first word.
    pub keyword: Span,
    /// The name that it declares.
    pub name: Option<Span>,
    /// What stands behind the `=` of its head.
    pub value: Option<Span>,
    /// All of it.
    pub span: Span,
    /// The blocks within.
    pub blocks: Vec<Block>,
}

/// The blocks of a text in order, of a broken text too. Settings are no blocks, except those whose value has
/// braces.
pub fn outline(text: &str) -> Vec<Block> {
    pieces(text).iter().filter_map(|piece| block(text, piece)).collect()
}

fn block(text: &str, piece: &Piece) -> Option<Block> {
    let found = head(text, piece.head);
    let keyword = found.keyword?.span;
    let blocks = piece.body.as_ref().map(|body| {
        // Inside, what has no braces is a setting or an edge.
        body.pieces
            .iter()
            .filter(|inner| inner.body.is_some())
            .filter_map(|inner| block(text, inner))
            .collect()
    });
    let end = piece.body.as_ref().map_or(piece.head.end, |body| body.span.end);
    Some(Block {
        keyword,
        name: found.name,
        value: found.value,
        span: Span::new(piece.head.start, end),
        blocks: blocks.unwrap_or_default(),
    })
}
