//! Sudoku on 4 x 4, 6 x 6 and 9 x 9 cells: puzzles with one solution, whose clues stay.

mod board;
mod generate;
mod reference;

use std::ops::RangeInclusive;

use pl_sdk::prelude::*;
use serde_json::json;

use crate::drawing::{Svg, colour};
use crate::game::{Game, GameKind, ReferenceOutcome, Values};
use crate::grid::Cell;
use crate::literal::Literal;
use crate::random::Draw;
use crate::splits::Split;
use crate::text;
use board::{Board, Shape};

/// Value of a digit that can't be filled in.
const INVALID_FILL: f64 = -0.3;

/// Value of a whole grid that breaks a rule or a clue.
const INVALID_GRID: f64 = -0.5;

/// Value of the right digit in every empty cell, in addition to that of a solved puzzle.
const PROGRESS: f64 = 0.5;

/// Maximum number of empty cells whose places are listed: a help for small models.
const MAX_LISTED: usize = 16;

/// A puzzle and the digits filled in so far. Grids are row by row, 0 is an empty cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sudoku {
    /// Side length.
    size: usize,
    clues: Vec<u8>,
    grid: Vec<u8>,
    solution: Vec<u8>,
}

/// Record of a task: the puzzle as rows of numbers, with 0 for an empty cell, or as a text of one character per cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    puzzle: Puzzle,
    /// Line of a collection in plain text that the puzzle is from, counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Puzzle {
    Rows(Vec<Vec<u8>>),
    Text(String),
}

/// A move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fill {
    /// Row, column (from 0) and digit.
    Cell([i64; 3]),
    /// A whole grid. 0 leaves a cell empty.
    Grid(Vec<Vec<i64>>),
}

impl Game for Sudoku {
    const NAME: &'static str = "sudoku";
    const DOC: &'static str = "Sudoku on 4 x 4, 6 x 6 or 9 x 9 cells, with one solution.";
    const KIND: GameKind = GameKind::Sudoku;
    const LEVELS: RangeInclusive<u32> = generate::LEVELS;
    const VALUES: Values = Values { step: -0.01, goal: 2.0, bonus: 0.5, fail: 0.0 };

    type Record = Record;
    type Move = Fill;

    fn start(record: Record) -> Result<Self> {
        let Record { puzzle, line } = record;
        Self::read(puzzle).map_err(|error| match line {
            Some(line) => {
                Error { message: format!("line {line} of the collection: {}", error.message), ..error }
            }
            None => error,
        })
    }

    fn record(&self) -> Record {
        let rows = self.clues.chunks(self.size).map(<[u8]>::to_vec).collect();
        Record { puzzle: Puzzle::Rows(rows), line: None }
    }

    fn generate(level: u32, split: Split, draw: &mut Draw) -> Option<Self> {
        generate::puzzle(level, split, draw)
    }

    fn symmetry_hash(&self) -> u64 {
        generate::symmetry_hash(self)
    }

    fn plan(literal: &Literal) -> Option<Vec<Fill>> {
        let items = literal.list()?;
        if let Some(numbers) = numbers(literal) {
            return match *numbers {
                [row, column, digit] => Some(vec![Fill::Cell([row, column, digit])]),
                _ => {
                    let size =
                        Shape::new(numbers.len().isqrt()).filter(|shape| shape.area() == numbers.len())?.size;
                    Some(vec![Fill::Grid(numbers.chunks(size).map(<[i64]>::to_vec).collect())])
                }
            };
        }
        let rows: Vec<Vec<i64>> = items.iter().map(numbers).collect::<Option<_>>()?;
        if Shape::new(rows.len()).is_some() && rows.iter().all(|row| row.len() == rows.len()) {
            return Some(vec![Fill::Grid(rows)]);
        }
        rows.into_iter().map(|row| Some(Fill::Cell(row.try_into().ok()?))).collect()
    }

    /// Reads the last whole grid among the lines.
    fn bare_plan(text: &str) -> Option<Literal> {
        let rows: Vec<Literal> = text::rows(text).collect();
        let grids = [4, 6, 9]
            .into_iter()
            .flat_map(|size| rows.windows(size).enumerate().map(move |(start, rows)| (start + size, rows)));
        let whole = grids.filter(|(_, rows)| {
            rows.iter().all(|row| numbers(row).is_some_and(|numbers| numbers.len() == rows.len()))
        });
        whole.max_by_key(|(end, _)| *end).map(|(_, rows)| Literal::List(rows.to_vec()))
    }

    fn play(&mut self, next: &Fill) -> bool {
        match next {
            Fill::Cell(cell) => self.fill(*cell),
            Fill::Grid(rows) => self.fill_all(rows),
        }
    }

    fn penalty(next: &Fill) -> f64 {
        match next {
            Fill::Cell(_) => INVALID_FILL,
            Fill::Grid(_) => INVALID_GRID,
        }
    }

    fn solved(&self) -> bool {
        self.grid == self.solution
    }

    fn potential(&self) -> f64 {
        let right = self.empty().filter(|cell| self.grid[*cell] == self.solution[*cell]).count();
        PROGRESS * right as f64 / self.empty().count() as f64
    }

    fn par(&self) -> u32 {
        self.empty().count() as u32
    }

    fn horizon(&self) -> u32 {
        4 * self.clues.len() as u32
    }

    fn play_by_reference(&mut self, plan: Option<&[Fill]>, steps: &mut u32) -> ReferenceOutcome {
        reference::play(self, plan, steps)
    }

    fn show(&self) -> String {
        let symbol = |digit: &u8| if *digit == 0 { ".".to_owned() } else { digit.to_string() };
        let row = |row: &[u8]| row.iter().map(symbol).collect::<Vec<_>>().join(" ");
        let grid = self.grid.chunks(self.size).map(row).collect::<Vec<_>>().join("\n");
        let place = |cell: usize| format!("[{}, {}]", cell / self.size, cell % self.size);
        let empty = self.grid.iter().enumerate().filter(|(_, digit)| **digit == 0);
        let places: Vec<String> = empty.map(|(cell, _)| place(cell)).collect();
        match places.len() {
            1..=MAX_LISTED => format!("{grid}\nEmpty cells: {}.", places.join(" ")),
            _ => grid,
        }
    }

    fn draw(&self) -> Svg {
        let mut svg = Svg::board(self.size, self.size);
        let cell = |at: usize| Cell { row: at / self.size, column: at % self.size };
        svg.fill((0..self.clues.len()).filter(|at| self.clues[*at] != 0).map(cell), colour::SHADE);
        for (at, digit) in self.grid.iter().enumerate().filter(|(_, digit)| **digit != 0) {
            let colour = match (self.clues[at] != 0, *digit == self.solution[at]) {
                (true, _) => colour::DARK,
                (false, true) => colour::PLAYER,
                (false, false) => colour::WRONG,
            };
            svg.label(cell(at), &digit.to_string(), colour);
        }
        if let Some(shape) = Shape::new(self.size) {
            svg.lines(shape.box_height, shape.size / shape.box_height, 0.08, colour::DARK);
        }
        svg
    }

    fn solution(&self) -> Option<Vec<Fill>> {
        let row = |row: &[u8]| row.iter().map(|digit| i64::from(*digit)).collect();
        Some(vec![Fill::Grid(self.solution.chunks(self.size).map(row).collect())])
    }

    fn write(plan: &[Fill]) -> String {
        match plan {
            [Fill::Grid(rows)] => json!(rows).to_string(),
            _ => {
                let cell = |fill: &Fill| match fill {
                    Fill::Cell(cell) => Some(*cell),
                    Fill::Grid(_) => None,
                };
                json!(plan.iter().filter_map(cell).collect::<Vec<_>>()).to_string()
            }
        }
    }
}

/// Reads a character of a puzzle.
fn digit(symbol: char) -> Result<u8> {
    match symbol {
        '.' | '_' => Ok(0),
        _ => symbol
            .to_digit(10)
            .map(|digit| digit as u8)
            .ok_or_else(|| Error::task(format!("`{symbol}` is not a digit of a puzzle"))),
    }
}

/// Reads a list of integers.
fn numbers(literal: &Literal) -> Option<Vec<i64>> {
    literal.list()?.iter().map(Literal::integer).collect()
}

impl Sudoku {
    /// Sets up a puzzle that has one solution.
    fn read(puzzle: Puzzle) -> Result<Self> {
        let clues = match puzzle {
            Puzzle::Rows(rows) if rows.iter().any(|row| row.len() != rows.len()) => {
                return Err(Error::task("the rows of the puzzle are not as long as there are rows"));
            }
            Puzzle::Rows(rows) => rows.concat(),
            Puzzle::Text(text) => {
                text.chars().filter(|c| !c.is_whitespace()).map(digit).collect::<Result<_>>()?
            }
        };
        let size = clues.len().isqrt();
        let shape = Shape::new(size).filter(|shape| shape.area() == clues.len()).ok_or_else(|| {
            Error::task(format!("a puzzle has 16, 36 or 81 cells, this one {}", clues.len()))
        })?;
        if let Some(digit) = clues.iter().find(|digit| usize::from(**digit) > size) {
            return Err(Error::task(format!("the puzzle has the digit {digit}, but its size is {size}")));
        }
        let mut solution = Vec::new();
        let solutions = Board::new(shape, &clues).map_or(0, |mut board| board.solve(2, &mut solution));
        match solutions {
            0 => Err(Error::task("the puzzle has no solution")),
            1 if clues == solution => Err(Error::task("the puzzle has no empty cell")),
            1 => Ok(Self { size, grid: clues.clone(), clues, solution }),
            _ => Err(Error::task("the puzzle has more than one solution")),
        }
    }

    /// Iterates over the cells without a clue.
    fn empty(&self) -> impl Iterator<Item = usize> {
        self.clues.iter().enumerate().filter(|(_, digit)| **digit == 0).map(|(cell, _)| cell)
    }

    /// Returns the board of a grid that breaks no rule.
    fn board(&self, grid: &[u8]) -> Option<Board> {
        Board::new(Shape::new(self.size)?, grid)
    }

    /// Fills one cell. Its own digit may be replaced.
    fn fill(&mut self, [row, column, digit]: [i64; 3]) -> bool {
        let below = |number: i64| usize::try_from(number).ok().filter(|number| *number < self.size);
        let (Some(row), Some(column), Some(digit)) =
            (below(row), below(column), below(digit.saturating_sub(1)))
        else {
            return false;
        };
        let cell = row * self.size + column;
        let Some(mut board) = self.board(&self.grid).filter(|_| self.clues[cell] == 0) else { return false };
        board.clear(cell);
        let digit = digit as u8 + 1;
        let valid = board.allows(cell, digit);
        if valid {
            self.grid[cell] = digit;
        }
        valid
    }

    /// Replaces all digits beside the clues. Digits that contradict a clue or an earlier digit of the grid are left out,
    /// and make the move invalid.
    fn fill_all(&mut self, rows: &[Vec<i64>]) -> bool {
        let digits: Vec<i64> = rows.concat();
        let Some(mut board) = self.board(&self.clues).filter(|_| digits.len() == self.clues.len()) else {
            return false;
        };
        let mut valid = true;
        for (cell, (digit, clue)) in digits.into_iter().zip(&self.clues).enumerate() {
            match u8::try_from(digit).ok().filter(|digit| usize::from(*digit) <= self.size) {
                Some(digit) if digit == *clue || (*clue == 0 && digit == 0) => {}
                Some(digit) if *clue == 0 && board.allows(cell, digit) => board.set(cell, digit),
                _ => valid = false,
            }
        }
        self.grid = board.cells().to_vec();
        valid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::{Oracle, laws};
    use crate::literal::lists;

    impl Oracle for Sudoku {
        fn image(&self, draw: &mut Draw) -> Self {
            let (size, box_height) = (self.size, if self.size == 9 { 3 } else { 2 });
            let mut digits: Vec<u8> = (1..=size as u8).collect();
            draw.shuffle(&mut digits);
            let rows = shuffled_lines(size, box_height, draw);
            let columns = shuffled_lines(size, size / box_height, draw);
            let transpose = size != 6 && draw.percent(50);
            let digit = |row: usize, column: usize| {
                let (row, column) = if transpose { (column, row) } else { (row, column) };
                let digit = self.clues[rows[row] * size + columns[column]];
                if digit == 0 { 0 } else { digits[usize::from(digit) - 1] }
            };
            let row = |row| (0..size).map(|column| digit(row, column)).collect();
            Self::read(Puzzle::Rows((0..size).map(row).collect())).unwrap()
        }

        fn any_move(&self, draw: &mut Draw) -> Fill {
            let mut number = || draw.below(self.size) as i64;
            match number() {
                0 => Fill::Grid(
                    (0..self.size).map(|_| (0..self.size).map(|_| number() + 1).collect()).collect(),
                ),
                _ => Fill::Cell([number(), number(), number() + 1]),
            }
        }
    }

    /// Returns an order of rows or columns that keeps bands of `width` together.
    fn shuffled_lines(size: usize, width: usize, draw: &mut Draw) -> Vec<usize> {
        let mut bands: Vec<Vec<usize>> =
            (0..size / width).map(|band| (band * width..(band + 1) * width).collect()).collect();
        bands.iter_mut().for_each(|band| draw.shuffle(band));
        draw.shuffle(&mut bands);
        bands.concat()
    }

    laws!(Sudoku);

    fn puzzle() -> Sudoku {
        Sudoku::read(Puzzle::Text("12.. 34.. ..43 ..2.".to_owned())).unwrap()
    }

    fn plan(text: &str) -> Option<Vec<Fill>> {
        Sudoku::plan(&lists(text).pop()?.0)
    }

    fn play(puzzle: &mut Sudoku, text: &str) -> Vec<bool> {
        plan(text).unwrap().iter().map(|next| puzzle.play(next)).collect()
    }

    #[test]
    fn digits_are_filled_and_replaced_but_clues_stay() {
        let mut puzzle = puzzle();
        let places = "[0, 2] [0, 3] [1, 2] [1, 3] [2, 0] [2, 1] [3, 0] [3, 1] [3, 3]";
        assert_eq!(puzzle.show(), format!("1 2 . .\n3 4 . .\n. . 4 3\n. . 2 .\nEmpty cells: {places}."));
        assert_eq!((puzzle.potential(), puzzle.par()), (0.0, 9));
        let tried =
            play(&mut puzzle, "[[0,0,1], [0,2,2], [0,2,5], [0,2,0], [4,0,1], [-1,0,1], [0,2,3], [2,0,1]]");
        assert_eq!(tried, [false, false, false, false, false, false, true, false]);
        assert_eq!(puzzle.potential(), 0.5 / 9.0);
        assert_eq!(play(&mut puzzle, "[[1,2,1], [2,0,2], [3,0,4]]"), [true; 3]);
        assert_eq!(puzzle.potential(), 0.5 * 4.0 / 9.0);
        let solution = "[[1,2,3,4],[3,4,1,2],[2,1,4,3],[4,3,2,1]]";
        assert_eq!(play(&mut puzzle, solution), [true]);
        assert!(puzzle.solved());
    }

    #[test]
    fn a_grid_that_ignores_the_clues_is_no_solution() {
        let mut puzzle = puzzle();
        // The example of the reference's prompt with two digits swapped: a full grid that breaks no rule.
        assert_eq!(play(&mut puzzle, "[[2,1,3,4],[3,4,2,1],[1,2,4,3],[4,3,1,2]]"), [false]);
        assert!(!puzzle.solved());
        assert_eq!(puzzle.grid[..2], [1, 2], "clues stay");
        assert_eq!(
            play(&mut puzzle, "[[1,2,0,0],[3,4,0,0],[0,0,4,3],[0,0,2,0]]"),
            [true],
            "erases the digits"
        );
        assert_eq!(puzzle.grid, puzzle.clues);
    }

    #[test]
    fn plans_are_read_in_many_forms() {
        assert_eq!(plan("[(0, 2, 3)]"), Some(vec![Fill::Cell([0, 2, 3])]));
        assert_eq!(plan("[0, 2, '3']"), Some(vec![Fill::Cell([0, 2, 3])]));
        let flat = (1..=16).map(|number| (number % 4 + 1).to_string()).collect::<Vec<_>>().join(",");
        assert!(matches!(plan(&format!("[{flat}]")).unwrap()[..], [Fill::Grid(ref rows)] if rows.len() == 4));
        for wrong in ["[1,2]", "[[1,2],[3,4]]", "[[1,2,3],[1,2]]", "[[\"a\",1,2]]"] {
            assert_eq!(plan(wrong), None, "{wrong}");
        }
        let bare = Sudoku::bare_plan("So:\n1 2 3 4\n3 4 1 2\n2 1 4 3\n|4|3|2|1|\nDone.").unwrap();
        assert!(matches!(Sudoku::plan(&bare).unwrap()[..], [Fill::Grid(_)]));
        assert_eq!(Sudoku::bare_plan("1 2 3 4\n3 4 1 2\n2 1 4\n4 3 2 1"), None);
    }

    #[test]
    fn records_are_checked() {
        let message = |record: serde_json::Value| {
            Sudoku::start(serde_json::from_value(record).unwrap()).unwrap_err().message
        };
        assert!(message(json!({"puzzle": "1234"})).contains("this one 4"));
        assert!(message(json!({"puzzle": [[1, 2], [3]]})).contains("rows"));
        assert!(message(json!({"puzzle": "1".repeat(16)})).contains("no solution"));
        assert!(message(json!({"puzzle": "0".repeat(16)})).contains("more than one"));
        assert!(message(json!({"puzzle": "5".repeat(16)})).contains("digit 5"));
        assert!(message(json!({"puzzle": "x".repeat(16)})).contains("`x`"));
        assert!(message(json!({"puzzle": "1234341221434321"})).contains("no empty cell"));
    }

    #[test]
    fn a_puzzle_of_a_collection_is_named_by_its_line() {
        let start = |puzzle: &str| {
            let record = json!({"puzzle": puzzle, "line": 7});
            Sudoku::start(serde_json::from_value(record).unwrap())
        };
        assert_eq!(start("12..34....43..2.").unwrap(), puzzle());
        let message = start(&"0".repeat(16)).unwrap_err().message;
        assert_eq!(message, "line 7 of the collection: the puzzle has more than one solution");
    }
}
