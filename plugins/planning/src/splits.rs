//! Splits and the task generator that all games share: an endless sequence, and always the same for equal requests.
//!
//! A hash that symmetric puzzles share decides a puzzle's split. Splits therefore share no puzzle, not even a rotated,
//! reflected or renamed one, for any seeds, levels and indices.

use pl_sdk::prelude::*;

use crate::game::Game;
use crate::random::{Draw, hash};

/// Percentages of puzzles in the splits `test` and `validation`.
const TEST_SHARE: u64 = 20;
const VALIDATION_SHARE: u64 = 10;

/// Maximum number of attempts at a puzzle. One in about 200 succeeds at the levels where most of them fail; all of them
/// fail with a probability below 10^-20.
const MAX_ATTEMPTS: u32 = 10_000;

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

    fn parse(name: &str) -> Result<Self> {
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

/// Returns the tasks of a request. `seed` selects the set of puzzles.
///
/// # Errors
/// [`Error::settings`] for an unknown level or split.
pub fn tasks<G: Game>(seed: u64, request: &TaskRequest) -> Result<Vec<Task>> {
    let TaskRequest { split, start, count, level } = request;
    if !G::LEVELS.contains(level) {
        let (first, last) = (G::LEVELS.start(), G::LEVELS.end());
        return Err(Error::settings(format!(
            "{} is generated in levels {first} to {last}, not {level}",
            G::NAME
        )));
    }
    let wanted = Split::parse(split)?;
    let indices = *start..start.saturating_add(u64::from(*count));
    let task = |index| {
        let id = format!("{split}-{level}-{index}");
        let puzzle = puzzle::<G>(seed, &id, *level, wanted)?;
        Task::new(id, &puzzle.record())
    };
    indices.map(task).collect()
}

fn puzzle<G: Game>(seed: u64, id: &str, level: u32, wanted: Split) -> Result<G> {
    let attempt = |attempt: u32| {
        let mut draw = Draw::new(hash(format!("{} {seed} {id} {attempt}", G::NAME).as_bytes()));
        let puzzle = G::generate(level, wanted, &mut draw)?;
        (Split::new(puzzle.symmetry_hash()) == wanted).then_some(puzzle)
    };
    let found = (0..MAX_ATTEMPTS).find_map(attempt);
    found.ok_or_else(|| Error::internal(format!("no puzzle came up for task {id} of {}", G::NAME)))
}
