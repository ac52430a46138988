//! The board of a Sudoku as bit masks, and the solver.
//!
//! The solver fills the cell with the fewest candidates first (minimum remaining values) and takes a digit that fits in
//! one cell of a unit only before it guesses.

use crate::random::Draw;

/// Side lengths of boards and the heights of their boxes.
const SHAPES: [(usize, usize); 3] = [(4, 2), (6, 2), (9, 3)];

/// Units of a board: its rows, columns and boxes. A cell is in three of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Number of rows, of columns, and of digits.
    pub size: usize,
    /// Number of rows of a box.
    pub box_height: usize,
}

impl Shape {
    /// Returns the shape of boards with this side length. Returns `None` if it is not 4, 6 or 9.
    pub fn new(size: usize) -> Option<Self> {
        let (size, box_height) = *SHAPES.iter().find(|(known, _)| *known == size)?;
        Some(Self { size, box_height })
    }

    /// Number of cells.
    pub fn area(self) -> usize {
        self.size * self.size
    }

    /// Returns the row, the column and the box of a cell, counted from 0.
    pub fn units(self, cell: usize) -> [usize; 3] {
        let (row, column) = (cell / self.size, cell % self.size);
        let box_width = self.size / self.box_height;
        let boxes_per_row = self.box_height;
        [row, column, row / self.box_height * boxes_per_row + column / box_width]
    }
}

/// A partly filled board.
#[derive(Debug, Clone)]
pub struct Board {
    shape: Shape,
    /// Digits, row by row. 0 is an empty cell.
    cells: Vec<u8>,
    /// Digits in each row, column and box, as bits.
    used: [[u16; 9]; 3],
    /// The digits 1 to `size`, as bits.
    all: u16,
}

impl Board {
    /// Creates an empty board.
    pub fn empty(shape: Shape) -> Self {
        let all = ((1_u16 << shape.size) - 1) << 1;
        Self { shape, cells: vec![0; shape.area()], used: [[0; 9]; 3], all }
    }

    /// Fills the cells that are not 0. Returns `None` if a digit comes twice in a unit.
    pub fn new(shape: Shape, cells: &[u8]) -> Option<Self> {
        let mut board = Self::empty(shape);
        for (cell, digit) in cells.iter().enumerate().filter(|(_, digit)| **digit != 0) {
            if !board.allows(cell, *digit) {
                return None;
            }
            board.set(cell, *digit);
        }
        Some(board)
    }

    /// The digits, row by row. 0 is an empty cell.
    pub fn cells(&self) -> &[u8] {
        &self.cells
    }

    /// Returns true if an empty cell's units don't have the digit yet.
    pub fn allows(&self, cell: usize, digit: u8) -> bool {
        self.candidates(cell) & (1 << digit) != 0
    }

    /// Fills an empty cell.
    pub fn set(&mut self, cell: usize, digit: u8) {
        self.cells[cell] = digit;
        self.toggle(cell, digit);
    }

    /// Empties a cell. Returns its digit.
    pub fn clear(&mut self, cell: usize) -> u8 {
        let digit = std::mem::take(&mut self.cells[cell]);
        if digit != 0 {
            self.toggle(cell, digit);
        }
        digit
    }

    fn toggle(&mut self, cell: usize, digit: u8) {
        for (used, unit) in self.used.iter_mut().zip(self.shape.units(cell)) {
            used[unit] ^= 1 << digit;
        }
    }

    /// Returns the digits that fit into a cell, as bits.
    fn candidates(&self, cell: usize) -> u16 {
        let [row, column, square] = self.shape.units(cell);
        self.all & !(self.used[0][row] | self.used[1][column] | self.used[2][square])
    }

    /// Returns the number of solutions, at most `limit`, and leaves the last one that was found in `solution`.
    pub fn solve(&mut self, limit: usize, solution: &mut Vec<u8>) -> usize {
        let Some((cell, candidates)) = self.most_constrained() else {
            solution.clone_from(&self.cells);
            return 1;
        };
        let mut found = 0;
        for digit in digits(candidates) {
            self.set(cell, digit);
            found += self.solve(limit - found, solution);
            self.clear(cell);
            if found >= limit {
                break;
            }
        }
        found
    }

    /// Fills an empty or partly filled board at random. Returns false, with the board unchanged, if that is impossible.
    pub fn fill(&mut self, draw: &mut Draw) -> bool {
        let Some((cell, candidates)) = self.most_constrained() else { return true };
        let mut digits: Vec<u8> = digits(candidates).collect();
        draw.shuffle(&mut digits);
        for digit in digits {
            self.set(cell, digit);
            if self.fill(draw) {
                return true;
            }
            self.clear(cell);
        }
        false
    }

    /// Returns the empty cell to fill next and its digits: one without choice if there is any. Returns `None` if the
    /// board is full.
    fn most_constrained(&self) -> Option<(usize, u16)> {
        let empty = self.cells.iter().enumerate().filter(|(_, digit)| **digit == 0).map(|(cell, _)| cell);
        // Digits that fit into at least one and at least two cells of each unit.
        let (mut once, mut twice) = ([[0_u16; 9]; 3], [[0_u16; 9]; 3]);
        let mut best: Option<(usize, u16)> = None;
        for cell in empty.clone() {
            let candidates = self.candidates(cell);
            if candidates.count_ones() <= 1 {
                return Some((cell, candidates));
            }
            if best.is_none_or(|(_, fewest)| candidates.count_ones() < fewest.count_ones()) {
                best = Some((cell, candidates));
            }
            for (kind, unit) in self.shape.units(cell).into_iter().enumerate() {
                twice[kind][unit] |= once[kind][unit] & candidates;
                once[kind][unit] |= candidates;
            }
        }
        let only_place = |cell: usize| {
            let mut units = self.shape.units(cell).into_iter().enumerate();
            units.find_map(|(kind, unit)| {
                let single = self.candidates(cell) & once[kind][unit] & !twice[kind][unit];
                (single != 0).then_some((cell, single))
            })
        };
        empty.clone().find_map(only_place).or(best)
    }
}

/// Iterates over the digits of a mask, from 1 on.
fn digits(mask: u16) -> impl Iterator<Item = u8> {
    (1..=9).filter(move |digit| mask & (1 << digit) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_of_six_are_two_rows_high() {
        let shape = Shape::new(6).unwrap();
        let boxes: Vec<usize> = (0..12).map(|cell| shape.units(cell)[2]).collect();
        assert_eq!(boxes, [0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]);
        assert_eq!(shape.units(35), [5, 5, 5]);
        assert_eq!(Shape::new(16), None);
    }

    /// 288 grids of 4 x 4 and 28,200,960 of 6 x 6 are known; the latter are counted with a fixed first row and column.
    #[test]
    fn all_boards_of_four_are_found() {
        let mut board = Board::empty(Shape::new(4).unwrap());
        assert_eq!(board.solve(usize::MAX, &mut Vec::new()), 288);
        let shape = Shape::new(6).unwrap();
        let mut cells = vec![0; 36];
        cells[..6].copy_from_slice(&[1, 2, 3, 4, 5, 6]);
        assert_eq!(Board::new(shape, &cells).unwrap().solve(usize::MAX, &mut Vec::new()) * 720, 28_200_960);
    }

    #[test]
    fn two_equal_digits_in_a_unit_are_no_board() {
        let shape = Shape::new(4).unwrap();
        let board = |cells: [(usize, u8); 2]| {
            let mut board = vec![0; 16];
            cells.iter().for_each(|(cell, digit)| board[*cell] = *digit);
            Board::new(shape, &board).is_some()
        };
        assert!(!board([(0, 1), (3, 1)]) && !board([(0, 1), (12, 1)]) && !board([(0, 1), (5, 1)]));
        assert!(!board([(0, 5), (1, 1)]) && board([(0, 1), (6, 1)]));
    }

    /// The hardest puzzles at hand, each with one solution.
    #[test]
    fn puzzles_with_seventeen_clues_have_one_solution() {
        let Some(file) = pl_testing::data("sudoku/sudokus_17.txt") else { return };
        let text = std::fs::read_to_string(file).unwrap();
        let shape = Shape::new(9).unwrap();
        for line in text.lines().step_by(100) {
            let cells: Vec<u8> = line.bytes().take(81).map(|byte| byte.wrapping_sub(b'0') % 10).collect();
            let mut solution = Vec::new();
            let mut board = Board::new(shape, &cells).unwrap();
            assert_eq!(board.solve(2, &mut solution), 1, "{line}");
            assert!(
                Board::new(shape, &solution).is_some_and(|full| full.most_constrained().is_none()),
                "{line}"
            );
        }
    }
}
