//! The generator: a random full board, from which clues are removed as long as one solution is left.

use std::ops::RangeInclusive;

use super::Sudoku;
use super::board::{Board, Shape};
use crate::random::{Draw, combine, combine_unordered};
use crate::splits::Split;

/// Difficulty of a level.
struct Level {
    /// Side length.
    size: usize,
    /// Number of empty cells.
    empty: RangeInclusive<usize>,
}

/// Levels. Level 4 is the paper's size.
pub const LEVELS: RangeInclusive<u32> = 0..=12;

fn level(number: u32) -> Level {
    let (size, empty) = match number {
        0 => (4, 2..=3),
        1 => (4, 4..=4),
        2 => (4, 6..=6),
        3 => (4, 8..=8),
        4 => (4, 10..=10),
        5 => (6, 8..=8),
        6 => (6, 14..=14),
        7 => (6, 20..=20),
        8 => (9, 10..=10),
        9 => (9, 20..=20),
        10 => (9, 30..=30),
        11 => (9, 40..=40),
        _ => (9, 50..=50),
    };
    Level { size, empty }
}

/// Draws a puzzle of a level. Returns `None` if no more clues can be removed before enough cells are empty.
pub fn puzzle(number: u32, split: Split, draw: &mut Draw) -> Option<Sudoku> {
    let Level { size, empty } = level(number);
    let shape = Shape::new(size)?;
    let mut board = Board::empty(shape);
    if size == 9 {
        fill_diagonal_boxes(&mut board, draw);
    }
    board.fill(draw);
    let mut solution = board.cells().to_vec();
    // Neither filling the board nor removing the clues pays for a puzzle of another split.
    if size == 9 {
        vary_until(&mut solution, size, draw, |solution| Split::new(solution_hash(size, solution)) == split)?;
        board = Board::new(shape, &solution)?;
    }
    let mut left = draw.between(*empty.start(), *empty.end());
    let mut cells: Vec<usize> = (0..solution.len()).collect();
    draw.shuffle(&mut cells);
    for cell in cells {
        if left > 0 && remove(&mut board, cell) {
            left -= 1;
        }
    }
    let clues = board.cells().to_vec();
    (left == 0).then(|| Sudoku { size, grid: clues.clone(), clues, solution })
}

/// Fills three boxes that share no row and column with each other, and can therefore have any digits.
fn fill_diagonal_boxes(board: &mut Board, draw: &mut Draw) {
    for start in [0, 30, 60] {
        let mut digits: Vec<u8> = (1..=9).collect();
        draw.shuffle(&mut digits);
        let cells = (0..9).map(|place| start + place / 3 * 9 + place % 3);
        cells.zip(digits).for_each(|(cell, digit)| board.set(cell, digit));
    }
}

/// Maximum number of boards that are tried before another one is drawn.
const MAX_VARIANTS: usize = 20;

/// Changes a full board of 9 x 9 until `fits` holds: two rows of a band that have the same two digits in two columns
/// swap them, which leads to another board that is rarely symmetric to the old one. Returns `None` if no rows have.
fn vary_until(board: &mut [u8], size: usize, draw: &mut Draw, fits: impl Fn(&[u8]) -> bool) -> Option<()> {
    for _ in 0..MAX_VARIANTS {
        if fits(board) {
            return Some(());
        }
        let swaps = swaps(board, size);
        let [row, other, left, right] = *draw.pick(&swaps)?;
        for row in [row, other] {
            board.swap(row * size + left, row * size + right);
        }
    }
    None
}

/// Returns the pairs of rows and of columns whose four cells have two digits crosswise.
fn swaps(board: &[u8], size: usize) -> Vec<[usize; 4]> {
    let at = |row: usize, column: usize| board[row * size + column];
    let mut swaps = Vec::new();
    for other in 0..size {
        for row in other - other % 3..other {
            for right in 0..size {
                let crosswise =
                    |left: &usize| at(row, *left) == at(other, right) && at(row, right) == at(other, *left);
                swaps.extend((0..right).filter(crosswise).map(|left| [row, other, left, right]));
            }
        }
    }
    swaps
}

/// Removes a clue if no other digit in its place leads to a solution.
fn remove(board: &mut Board, cell: usize) -> bool {
    let digit = board.clear(cell);
    for other in 1..=9 {
        if other == digit || !board.allows(cell, other) {
            continue;
        }
        board.set(cell, other);
        let found = board.solve(1, &mut Vec::new());
        board.clear(cell);
        if found > 0 {
            board.set(cell, digit);
            return false;
        }
    }
    true
}

/// Returns a hash that doesn't depend on the names of the digits, on the order of rows and columns within their bands
/// and of the bands, and on a transposition. For 9 x 9 it is that of the solution, whose classes are many; the solutions
/// of smaller sizes have few classes, so there it is that of the puzzle.
pub fn symmetry_hash(puzzle: &Sudoku) -> u64 {
    match puzzle.size {
        9 => solution_hash(puzzle.size, &puzzle.solution),
        _ => puzzle_hash(puzzle),
    }
}

/// Rounds of refinement. Each spreads the hash of a cell to its units.
const ROUNDS: usize = 4;

/// Colour refinement (Weisfeiler and Leman) of the cells, from clue or empty, along rows, columns, boxes and digits.
fn puzzle_hash(puzzle: &Sudoku) -> u64 {
    let Some(shape) = Shape::new(puzzle.size) else { return 0 };
    let mut colours: Vec<u64> = puzzle.clues.iter().map(|clue| u64::from(*clue != 0)).collect();
    for _ in 0..ROUNDS {
        let mut sums = [[0_u64; 9]; 4];
        let units = |cell: usize| {
            let [row, column, square] = shape.units(cell);
            [row, column, square, usize::from(puzzle.solution[cell]) - 1]
        };
        for (cell, colour) in colours.iter().enumerate() {
            for (sums, unit) in sums.iter_mut().zip(units(cell)) {
                sums[unit] = sums[unit].wrapping_add(combine(&[*colour]));
            }
        }
        let refined = colours.iter().enumerate().map(|(cell, colour)| {
            let [row, column, square, digit] = units(cell);
            let lines = combine_unordered([sums[0][row], sums[1][column]]);
            combine(&[*colour, lines, sums[2][square], sums[3][digit]])
        });
        colours = refined.collect();
    }
    combine_unordered(colours)
}

/// Hash of the cycles of the permutations between every two rows of a band, and every two columns: the permutation
/// takes the digit in one line to the digit beside it in the other.
fn solution_hash(size: usize, solution: &[u8]) -> u64 {
    let band = 3;
    let lines = |digit: &dyn Fn(usize, usize) -> u8| {
        let pairs = (0..size).flat_map(|one| (0..one).map(move |other| (one, other)));
        let hashes: Vec<u64> = pairs
            .map(|(one, other)| {
                let mut next = [0_usize; 10];
                (0..size).for_each(|place| next[usize::from(digit(one, place))] = digit(other, place).into());
                combine(&[u64::from(one / band == other / band), cycles(&next[..=size])])
            })
            .collect();
        combine_unordered(hashes)
    };
    let rows = lines(&|row, column| solution[row * size + column]);
    let columns = lines(&|column, row| solution[row * size + column]);
    combine_unordered([rows, columns])
}

/// Returns a hash of the lengths of a permutation's cycles. The permutation starts at 1.
fn cycles(next: &[usize]) -> u64 {
    let mut seen = [false; 10];
    let mut lengths = Vec::new();
    for start in 1..next.len() {
        let (mut at, mut length) = (start, 0);
        while !std::mem::replace(&mut seen[at], true) {
            at = next[at];
            length += 1;
        }
        lengths.push(length);
    }
    combine_unordered(lengths)
}
