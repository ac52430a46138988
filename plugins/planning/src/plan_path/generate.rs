//! The generator: random walls, start and goal, as in the reference, with a band of path lengths at the low levels.

use std::ops::RangeInclusive;

use super::PlanPath;
use crate::grid::Cell;
use crate::random::Draw;

/// Difficulty of a level.
struct Level {
    /// Height and width.
    size: usize,
    /// Percentage of walls.
    walls: usize,
    /// Lengths of the shortest path.
    path: RangeInclusive<u32>,
}

/// Percentage of walls in the reference.
const WALLS: usize = 22;

/// Levels below this one are easier than the reference's distribution.
const FIRST_FULL: u32 = 5;

/// Levels. From 5 on, a level is the height and width of its grids; level 10 is the paper's size.
pub const LEVELS: RangeInclusive<u32> = 0..=30;

fn level(number: u32) -> Level {
    match number {
        0 => Level { size: 4, walls: 10, path: 1..=1 },
        1 => Level { size: 4, walls: 10, path: 1..=3 },
        2 => Level { size: 4, walls: 15, path: 2..=4 },
        3 => Level { size: 5, walls: WALLS, path: 2..=4 },
        4 => Level { size: 5, walls: WALLS, path: 3..=8 },
        size => Level { size: size.max(FIRST_FULL) as usize, walls: WALLS, path: 1..=u32::MAX },
    }
}

/// Draws a puzzle of a level. Returns `None` if no cell is at the right distance.
pub fn puzzle(number: u32, draw: &mut Draw) -> Option<PlanPath> {
    let Level { size, walls, path } = level(number);
    let mut cell = || if draw.percent(walls) { '#' } else { '.' };
    let grid: Vec<String> = (0..size).map(|_| (0..size).map(|_| cell()).collect()).collect();
    let cells = (0..size).flat_map(|row| (0..size).map(move |column| Cell { row, column }));
    let free: Vec<Cell> = cells.filter(|cell| grid[cell.row].as_bytes()[cell.column] == b'.').collect();
    let start = *draw.pick(&free)?;
    let mut puzzle = PlanPath { grid, start, goal: start, position: start, shortest: 0 };
    let distances = puzzle.distances(start);
    let fits = |cell: &Cell| distances[puzzle.index(*cell)].is_some_and(|distance| path.contains(&distance));
    let goals: Vec<Cell> = free.into_iter().filter(fits).collect();
    puzzle.goal = *draw.pick(&goals)?;
    puzzle.shortest = distances[puzzle.index(puzzle.goal)]?;
    Some(puzzle)
}
