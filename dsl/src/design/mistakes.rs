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
    /// An agent that the design doesn't have.
    #[error(
        "line {line}: the design has no agent `{agent}`; write an `agent` block for it, or remove it from `turns`"
    )]
    Agent {
        /// The line.
        line: usize,
        /// The agent.
        agent: String,
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
    /// The plugin of an agent refuses its settings.
    #[error("agent `{agent}` can't be made: {reason}")]
    Refused {
        /// The agent.
        agent: String,
        /// The plugin's reason.
        reason: String,
    },
    /// A mistake that the check of workflows found.
    #[error("{}{message} ({code})", of_line(*.line))]
    Checked {
        /// The line. `None` if the mistake is about the design as a whole.
        line: Option<usize>,
        /// Its code.
        code: DiagnosticCode,
        /// Its message.
        message: String,
    },
}

impl DesignMistake {
    /// Returns the line that the mistake is in. `None` if it is about the design as a whole.
    pub fn line(&self) -> Option<usize> {
        match self {
            DesignMistake::Block { line, .. }
            | DesignMistake::Item { line, .. }
            | DesignMistake::Agent { line, .. }
            | DesignMistake::Policy { line, .. }
            | DesignMistake::Key { line, .. }
            | DesignMistake::Literal { line, .. }
            | DesignMistake::Condition { line } => Some(*line),
            DesignMistake::Checked { line, .. } => *line,
            DesignMistake::Size(_)
            | DesignMistake::Agents { .. }
            | DesignMistake::Visits { .. }
            | DesignMistake::Refused { .. } => None,
        }
    }

    /// True if the design is no text of the language, or too large to be read as one.
    pub fn is_syntax(&self) -> bool {
        let of_syntax = [DiagnosticCode::Syntax, DiagnosticCode::Unclosed, DiagnosticCode::TooDeep];
        match self {
            DesignMistake::Size(_) => true,
            DesignMistake::Checked { code, .. } => of_syntax.contains(code),
            _ => false,
        }
    }
}

/// Returns the beginning of a message about a line.
fn of_line(line: Option<usize>) -> String {
    line.map_or_else(String::new, |line| format!("line {line}: "))
}
