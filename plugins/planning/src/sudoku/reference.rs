//! The reference's rules. A whole grid replaces the clues too and is never compared with them, so that any full grid
//! that breaks no rule counts as solved; single digits earn a reward for the state on top of the shaping.

use super::board::{Board, Shape};
use super::{Fill, Sudoku};
use crate::game::ReferenceOutcome;

const STEP: f64 = -0.01;
const SOLVED: f64 = 2.0;
const EFFICIENT: f64 = 0.5;
const PROGRESS: f64 = 0.5;
const PER_CONSTRAINT: f64 = 0.02;
const BROKEN_GRID: f64 = -0.5;
const INVALID_FILL: f64 = -0.3;
/// A cell with one candidate, and with two.
const ONLY_CANDIDATE: f64 = 0.2;
const TWO_CANDIDATES: f64 = 0.1;
const STATE: f64 = 0.1;
/// Meant for cells with few candidates, but computed after the cell was filled: all but the last digit earn it.
const STRATEGY: f64 = 0.05;
const UNREADABLE: f64 = -1.0;

pub fn play(puzzle: &mut Sudoku, plan: Option<&[Fill]>, steps: &mut u32) -> ReferenceOutcome {
    let Some(shape) = Shape::new(puzzle.size) else { return refused() };
    let reward = match plan {
        Some([Fill::Grid(rows)]) => match whole_grid(shape, rows) {
            Some(grid) => replace(puzzle, shape, grid, *steps),
            None => return refused(),
        },
        Some(plan) => {
            let cells = plan.iter().map(|fill| match fill {
                Fill::Cell(cell) => Some(*cell),
                Fill::Grid(_) => None,
            });
            let Some(cells) = cells.collect::<Option<Vec<_>>>() else { return refused() };
            fill(puzzle, shape, &cells, steps)
        }
        None => return refused(),
    };
    *steps += 1;
    ReferenceOutcome { reward, done: is_solved(shape, &puzzle.grid) }
}

fn refused() -> ReferenceOutcome {
    ReferenceOutcome { reward: UNREADABLE, done: false }
}

/// Returns the cells of a full grid of the right size.
fn whole_grid(shape: Shape, rows: &[Vec<i64>]) -> Option<Vec<u8>> {
    if rows.len() != shape.size {
        return None;
    }
    let digit =
        |digit: i64| u8::try_from(digit).ok().filter(|digit| (1..=shape.size).contains(&usize::from(*digit)));
    rows.concat().into_iter().map(digit).collect()
}

fn replace(puzzle: &mut Sudoku, shape: Shape, grid: Vec<u8>, steps: u32) -> f64 {
    let before = (progress(&puzzle.grid), constraints(shape, &puzzle.grid));
    puzzle.grid = grid;
    if is_solved(shape, &puzzle.grid) {
        return STEP + SOLVED + efficiency(puzzle, steps);
    }
    let after = (progress(&puzzle.grid), constraints(shape, &puzzle.grid));
    // A full grid that isn't solved breaks a rule.
    STEP + BROKEN_GRID + PROGRESS * (after.0 - before.0) + PER_CONSTRAINT * (after.1 - before.1)
}

fn fill(puzzle: &mut Sudoku, shape: Shape, cells: &[[i64; 3]], steps: &mut u32) -> f64 {
    let mut reward = 0.0;
    for cell in cells {
        reward += fill_cell(&mut puzzle.grid, shape, *cell).unwrap_or(INVALID_FILL);
        *steps += 1;
    }
    if is_solved(shape, &puzzle.grid) {
        reward += SOLVED + efficiency(puzzle, *steps);
    }
    reward
}

/// Fills an empty cell. Returns its reward, or `None` if the digit doesn't fit.
fn fill_cell(grid: &mut [u8], shape: Shape, [row, column, digit]: [i64; 3]) -> Option<f64> {
    let below = |number: i64| usize::try_from(number).ok().filter(|number| *number < shape.size);
    let cell = below(row)? * shape.size + below(column)?;
    let digit = below(digit.saturating_sub(1))? as u8 + 1;
    if grid[cell] != 0 || neighbours(shape, cell).any(|other| grid[other] == digit) {
        return None;
    }
    let candidates = (1..=shape.size as u8)
        .filter(|digit| neighbours(shape, cell).all(|other| grid[other] != *digit))
        .count();
    let choice = match candidates {
        1 => ONLY_CANDIDATE,
        2 => TWO_CANDIDATES,
        _ => 0.0,
    };
    let before = (progress(grid), constraints(shape, grid));
    grid[cell] = digit;
    let after = (progress(grid), constraints(shape, grid));
    let strategy = if grid.contains(&0) { STRATEGY } else { 0.0 };
    let shaping = PROGRESS * (after.0 - before.0) + PER_CONSTRAINT * (after.1 - before.1);
    Some(STEP + choice + shaping + STATE * after.0 + strategy)
}

fn efficiency(puzzle: &Sudoku, steps: u32) -> f64 {
    if steps as usize <= puzzle.empty().count() { EFFICIENT } else { 0.0 }
}

/// Iterates over the cells that share a unit with a cell.
fn neighbours(shape: Shape, cell: usize) -> impl Iterator<Item = usize> {
    let units = shape.units(cell);
    let shares = move |other: &usize| shape.units(*other).iter().zip(units).any(|(one, other)| *one == other);
    (0..shape.area()).filter(move |other| *other != cell && shares(other))
}

/// Share of the cells that are filled.
fn progress(grid: &[u8]) -> f64 {
    grid.iter().filter(|digit| **digit != 0).count() as f64 / grid.len() as f64
}

/// Number of digits beside the first in all units without a repeated digit.
fn constraints(shape: Shape, grid: &[u8]) -> f64 {
    let mut satisfied = 0;
    for kind in 0..3 {
        for unit in 0..shape.size {
            let mut digits: Vec<u8> = (0..shape.area())
                .filter(|cell| shape.units(*cell)[kind] == unit)
                .map(|cell| grid[cell])
                .collect();
            digits.retain(|digit| *digit != 0);
            let count = digits.len();
            digits.sort_unstable();
            digits.dedup();
            satisfied += if digits.len() == count { count.saturating_sub(1) } else { 0 };
        }
    }
    satisfied as f64
}

/// Returns true if the grid is full and breaks no rule. The clues don't matter.
fn is_solved(shape: Shape, grid: &[u8]) -> bool {
    !grid.contains(&0) && Board::new(shape, grid).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::game::Game;
    use crate::laws::close;
    use crate::sudoku::Puzzle;

    fn puzzle(cells: &str) -> Sudoku {
        Sudoku::read(Puzzle::Text(cells.to_owned())).unwrap()
    }

    fn plan(text: &str) -> Vec<Fill> {
        Sudoku::plan(&crate::literal::lists(text).pop().unwrap().0).unwrap()
    }

    /// The example of the reference's own prompt.
    const PRINTED: &str = "[[1,2,3,4],[3,4,1,2],[2,1,4,3],[4,3,2,1]]";

    #[test]
    fn the_prompts_example_solves_every_puzzle() {
        // Digits 1 and 2 change places in this puzzle's solution.
        let mut other = puzzle("21.. 34.. ..43 ..1.");
        let outcome = play(&mut other, Some(&plan(PRINTED)), &mut 0);
        assert!(outcome.done && !other.solved() && close(outcome.reward, -0.01 + 2.0 + 0.5), "{outcome:?}");
    }

    #[test]
    fn a_broken_grid() {
        let mut puzzle = puzzle("12.. 34.. ..43 ..2.");
        // 7 of 16 cells are filled. Rows 1 + 1 + 1 + 0, columns 1 + 1 + 1 + 0, boxes 3 + 0 + 0 + 2.
        assert!(close(constraints(Shape::new(4).unwrap(), &puzzle.grid), 11.0));
        let mut steps = 0;
        let outcome = play(&mut puzzle, Some(&plan("[[1,2,3,4],[1,2,3,4],[1,2,3,4],[1,2,3,4]]")), &mut steps);
        // All rows are right, columns and boxes repeat their digits: 12 constraints.
        let expected = -0.01 - 0.5 + 0.5 * (1.0 - 7.0 / 16.0) + 0.02 * (12.0 - 11.0);
        assert!(close(outcome.reward, expected) && !outcome.done, "{outcome:?}");
        assert_eq!(steps, 1);
        let refused = ReferenceOutcome { reward: -1.0, done: false };
        assert_eq!(
            play(&mut puzzle, Some(&plan("[[1,2,3,5],[1,2,3,4],[1,2,3,4],[1,2,3,4]]")), &mut steps),
            refused
        );
        assert_eq!(play(&mut puzzle, None, &mut steps), refused);
    }

    #[test]
    fn digits_one_by_one() {
        let mut puzzle = puzzle("1234 3412 214. 43..");
        let mut steps = 0;
        // The last digit of row 2: the only candidate; row, column and box have one constraint more.
        let outcome = play(&mut puzzle, Some(&plan("[[2,3,3],[2,3,1]]")), &mut steps);
        let right = -0.01 + 0.2 + 0.5 / 16.0 + 0.02 * 3.0 + 0.1 * 14.0 / 16.0 + 0.05;
        assert!(close(outcome.reward, right - 0.3), "{outcome:?}");
        assert_eq!(steps, 3);
        let outcome = play(&mut puzzle, Some(&plan("[[3,2,2],[3,3,1]]")), &mut steps);
        let third = -0.01 + 0.2 + 0.5 / 16.0 + 0.02 * 3.0 + 0.1 * 15.0 / 16.0 + 0.05;
        let last = -0.01 + 0.2 + 0.5 / 16.0 + 0.02 * 3.0 + 0.1;
        // Five steps are more than the three empty cells: no bonus.
        assert!(close(outcome.reward, third + last + 2.0) && outcome.done, "{outcome:?}");
    }
}
