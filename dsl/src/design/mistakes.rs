//! Mistakes of designs.

use crate::diagnostic::DiagnosticCode;

/// Largest design in bytes. A team of a dozen agents with long prompts has a tenth.
pub(super) const LARGEST: usize = 64 << 10;

/// A mistake of a design. Lines are those of the fragment, from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DesignMistake {
    /// The design is too large.
    #[error("the design has {0} bytes; write at most {LARGEST}")]
    Size(usize),
    /// A block that designs don't have.
    #[error("line {line}: a design has no {block}; write `agent` blocks and one `turns` block alone")]
    Block {
        /// The line.
        line: usize,
        /// The block, such as ``plugin `maths` ``.
        block: String,
    },
    /// An item outside of the palette.
    #[error("line {line}: the palette has no agent `{item}`; use {known}")]
    Item {
        /// The line.
        line: usize,
        /// The item.
        item: String,
        /// Items of the palette.
        known: String,
    },
    /// A policy outside of the palette.
    #[error("line {line}: the palette has no policy `{policy}`; use {known}")]
    Policy {
        /// The line.
        line: usize,
        /// The policy, as far as it is a name.
        policy: String,
        /// Policies of the palette.
        known: String,
    },
    /// A setting that designs may not change.
    #[error("line {line}: a design may not set `{key}`; remove it")]
    Key {
        /// The line.
        line: usize,
        /// The setting.
        key: String,
    },
    /// A value that is not written out.
    #[error(
        "line {line}: `{key}` must be written out: a number, a text without `${{…}}`, `true`, `false` or a list of these"
    )]
    Literal {
        /// The line.
        line: usize,
        /// The setting.
        key: String,
    },
    /// A condition that reads more than the episode.
    #[error(
        "line {line}: a condition compares `env.…` and `turn` with values that are written out; a design may not read the reward"
    )]
    Condition {
        /// The line.
        line: usize,
    },
    /// Too many agents.
    #[error("the design has {count} agents; write at most {max}")]
    Agents {
        /// Number of its agents.
        count: usize,
        /// Largest number.
        max: usize,
    },
    /// Too many visits.
    #[error("an agent may be visited {count} times; write `max = {max}` or less in `turns`")]
    Visits {
        /// Visits that the design allows.
        count: u32,
        /// Largest number.
        max: u32,
    },
    /// A mistake that the check of workflows found.
    #[error("line {line}: {message} ({code})")]
    Checked {
        /// The line; 0 if the mistake is about the design as a whole.
        line: usize,
        /// Its code.
        code: DiagnosticCode,
        /// Its message.
        message: String,
    },
}
