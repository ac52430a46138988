//! Parts of a wrong design that are right.

use super::mistakes::{DesignMistake, LARGEST};
use super::palette_checker::line;
use crate::diagnostic::reports::Reports;
use crate::source::Location;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::parse::parse;
use crate::syntax::tree::{Block, Entry};

/// Parts that a design needs and that are free of mistakes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ValidParts {
    /// True if an `agent` block is.
    pub agent: bool,
    /// True if the `turns` block is.
    pub turns: bool,
}

impl ValidParts {
    /// Returns those of a design with `mistakes`.
    pub fn of(design: &str, mistakes: &[DesignMistake]) -> ValidParts {
        let mut parts = ValidParts::default();
        if design.len() > LARGEST {
            return parts;
        }
        let blocks = parse(design, 0..design.len(), 0, &mut Reports::new(&[])).blocks;
        // The parser knows which blocks its errors are in; text between blocks belongs to none.
        let lines: Vec<usize> =
            mistakes.iter().filter(|own| !own.is_syntax()).filter_map(DesignMistake::line).collect();
        for block in blocks {
            let own = line(design, block.keyword.start)..=last_line(design, &block);
            let is_right = block.sound && block.body.complete && !block.body.entries.is_empty();
            if !is_right || lines.iter().any(|line| own.contains(line)) {
                continue;
            }
            parts.agent |= block.kind == BlockKind::Agent;
            parts.turns |= block.kind == BlockKind::Turns;
        }
        parts
    }
}

/// Returns the line that the last entry of a block ends in.
fn last_line(design: &str, block: &Block) -> usize {
    let end = |location: Location| match location {
        Location::Span(span) => span.end,
        Location::Override(_) => 0,
    };
    let entry_end = |entry: &Entry| match entry {
        Entry::Setting(setting) => end(setting.value.location),
        Entry::Nested { name, .. } => end(name.location),
        Entry::Edge(edge) => {
            let nodes = edge.nodes.last().map_or(0, |node| node.span.end);
            edge.when.as_ref().map_or(nodes, |when| end(when.location))
        }
    };
    let last = block.body.entries.iter().map(entry_end).max().unwrap_or(block.head.end);
    line(design, last)
}
