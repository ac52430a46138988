//! The outline of a file: its blocks.

use super::head::head;
use super::statements;
use crate::source::Span;
use crate::syntax::scan::Statement;

/// A block of the outline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutlineBlock {
    /// First word.
    pub keyword: Span,
    /// Declared name.
    pub name: Option<Span>,
    /// Expression after the `=` of its head.
    pub value: Option<Span>,
    /// The whole block.
    pub span: Span,
    /// Inner blocks.
    pub blocks: Vec<OutlineBlock>,
}

/// Blocks of a text in order, even if it has mistakes. A setting is only included if its value has braces.
pub fn outline(text: &str) -> Vec<OutlineBlock> {
    statements(text).iter().filter_map(|piece| block(text, piece)).collect()
}

fn block(text: &str, piece: &Statement) -> Option<OutlineBlock> {
    let found = head(text, piece.head);
    let keyword = found.keyword?.span;
    let blocks = piece.body.as_ref().map(|body| {
        // A statement without braces is a setting or an edge.
        body.statements
            .iter()
            .filter(|inner| inner.body.is_some())
            .filter_map(|inner| block(text, inner))
            .collect()
    });
    let end = piece.body.as_ref().map_or(piece.head.end, |body| body.span.end);
    Some(OutlineBlock {
        keyword,
        name: found.name,
        value: found.value,
        span: Span::new(piece.head.start, end),
        blocks: blocks.unwrap_or_default(),
    })
}
