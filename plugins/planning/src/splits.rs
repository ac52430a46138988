//! Splits of puzzles.
//!
//! A hash that symmetric puzzles share decides a puzzle's split. Splits therefore share no puzzle, not even a rotated,
//! reflected or renamed one, for any seeds, levels and indices.

use pl_sdk::prelude::*;

/// Percentages of puzzles in the splits `test` and `validation`.
const TEST_SHARE: u64 = 20;
const VALIDATION_SHARE: u64 = 10;

/// A part of all puzzles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    Train,
    Validation,
    Test,
}

impl Split {
    /// Returns the split of puzzles with this symmetry hash.
    pub fn new(symmetry_hash: u64) -> Self {
        match symmetry_hash % 100 {
            share if share < TEST_SHARE => Self::Test,
            share if share < TEST_SHARE + VALIDATION_SHARE => Self::Validation,
            _ => Self::Train,
        }
    }

    /// Returns the split of a name.
    ///
    /// # Errors
    /// [`Error::settings`] for a name that no split has.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "train" => Ok(Self::Train),
            "validation" => Ok(Self::Validation),
            "test" => Ok(Self::Test),
            _ => Err(Error::settings(format!(
                "puzzles are generated in the splits train, validation and test, not `{name}`"
            ))),
        }
    }
}
