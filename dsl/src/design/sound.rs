//! Parts of a wrong design that are right.

use super::fence::line;
use super::mistakes::{DesignMistake, LARGEST};
use crate::diagnostic::reports::Reports;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::parse::parse;

/// Parts that a design needs and that are free of mistakes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SoundParts {
    /// True if an `agent` block is.
    pub agent: bool,
    /// True if the `turns` block is.
    pub turns: bool,
}

impl SoundParts {
    /// Returns those of a design with `mistakes`.
    pub fn of(design: &str, mistakes: &[DesignMistake]) -> SoundParts {
        let mut parts = SoundParts::default();
        if design.len() > LARGEST {
            return parts;
        }
        let blocks = parse(design, 0..design.len(), 0, &mut Reports::new(&[])).blocks;
        // The parser knows which blocks its errors are in; text between blocks belongs to none.
        let lines: Vec<usize> =
            mistakes.iter().filter(|own| !own.is_syntax()).filter_map(DesignMistake::line).collect();
        for (index, block) in blocks.iter().enumerate() {
            let first = line(design, block.keyword.start);
            let next = blocks.get(index + 1).map_or(usize::MAX, |next| line(design, next.keyword.start));
            // Two blocks may be on one line.
            let is_wrong = |own: &usize| *own == first || (first..next).contains(own);
            if !block.sound
                || !block.body.complete
                || block.body.entries.is_empty()
                || lines.iter().any(is_wrong)
            {
                continue;
            }
            parts.agent |= block.kind == BlockKind::Agent;
            parts.turns |= block.kind == BlockKind::Turns;
        }
        parts
    }
}
