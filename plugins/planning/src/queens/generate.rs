//! The generator: a random solution, from which queens are removed.

use std::ops::RangeInclusive;

use super::{Queens, complete};
use crate::random::Draw;

/// Levels. Levels 2 to 5 are of the paper's size.
pub const LEVELS: RangeInclusive<u32> = 0..=7;

/// Returns the side length and the number of missing queens.
fn level(number: u32) -> (usize, usize) {
    match number {
        0 => (7, 1),
        1 => (7, 2),
        2 => (8, 2),
        3 => (8, 3),
        4 => (8, 4),
        5 => (8, 6),
        6 => (10, 7),
        _ => (12, 9),
    }
}

/// Draws a puzzle of a level.
pub fn puzzle(number: u32, draw: &mut Draw) -> Option<Queens> {
    let (size, missing) = level(number);
    let solution = complete(&vec![None; size], &mut |columns| draw.shuffle(columns))?;
    let mut rows: Vec<usize> = (0..size).collect();
    draw.shuffle(&mut rows);
    let mut given: Vec<Option<usize>> = solution.into_iter().map(Some).collect();
    rows.into_iter().take(missing).for_each(|row| given[row] = None);
    Some(Queens { columns: given.clone(), given })
}
