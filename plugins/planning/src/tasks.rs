//! The task generator that all games share: an endless sequence, and always the same for equal requests.

use pl_sdk::prelude::*;

use crate::game::Game;
use crate::random::{Draw, hash};
use crate::splits::Split;

/// Maximum number of attempts at a puzzle. One in about 200 succeeds at the levels where most of them fail; all of them
/// fail with a probability below 10^-20.
const MAX_ATTEMPTS: u32 = 10_000;

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
