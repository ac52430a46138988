//! N Queens: complete a board on which some queens stand, one queen to a row.

mod generate;
mod reference;

use std::ops::RangeInclusive;

use pl_sdk::prelude::*;

use crate::drawing::{Svg, colour};
use crate::game::{Game, GameKind, ReferenceOutcome, Values};
use crate::grid::{Cell, canonical_board};
use crate::literal::Literal;
use crate::random::{Draw, hash};
use crate::splits::Split;
use crate::text;

/// Maximum side length: completing a larger board takes too long.
const MAX_SIZE: usize = 16;

/// Value of a list that is not a board, or moves a given queen.
const INVALID: f64 = -1.0;

/// Value of two queens that attack each other.
const PER_ATTACK: f64 = -0.1;

/// Value of an unsolved board.
const UNSOLVED: f64 = -0.5;

/// A board. Rows and columns are counted from 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queens {
    /// Column of the given queen of each row.
    given: Vec<Option<usize>>,
    /// Column of the queen of each row.
    columns: Vec<Option<usize>>,
}

/// Record of a task: the column of each row's queen, from 0 on, and `null` or -1 for a row without one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    queens: Vec<Option<i64>>,
}

impl Game for Queens {
    const NAME: &'static str = "queens";
    const DOC: &'static str = "N Queens: place the queens that are missing so that none attacks another.";
    const KIND: GameKind = GameKind::Queens;
    const LEVELS: RangeInclusive<u32> = generate::LEVELS;
    const VALUES: Values = Values { step: -0.01, goal: 2.0, bonus: 0.5, fail: 0.0 };

    type Record = Record;
    /// The columns of all queens, row by row.
    type Move = Vec<i64>;

    fn start(record: Record) -> Result<Self> {
        let size = record.queens.len();
        if !(1..=MAX_SIZE).contains(&size) {
            return Err(Error::task(format!("a board has 1 to {MAX_SIZE} rows, this one {size}")));
        }
        let column = |column: Option<i64>| match column {
            None | Some(-1) => Ok(None),
            Some(column) => match usize::try_from(column) {
                Ok(column) if column < size => Ok(Some(column)),
                _ => Err(Error::task(format!("a queen stands in column {column} of {size}"))),
            },
        };
        let given = record.queens.into_iter().map(column).collect::<Result<Vec<_>>>()?;
        if !given.contains(&None) {
            return Err(Error::task("no queen is missing"));
        }
        match complete(&given, &mut |_| {}) {
            Some(_) => Ok(Self { columns: given.clone(), given }),
            None => Err(Error::task("the queens can't be completed to a solution")),
        }
    }

    fn record(&self) -> Record {
        Record { queens: self.given.iter().map(|column| column.map(|column| column as i64)).collect() }
    }

    fn generate(level: u32, _split: Split, draw: &mut Draw) -> Option<Self> {
        generate::puzzle(level, draw)
    }

    fn symmetry_hash(&self) -> u64 {
        let size = self.given.len();
        hash(&canonical_board(size, size, |cell| u8::from(self.given[cell.row] == Some(cell.column))))
    }

    fn plan(literal: &Literal) -> Option<Vec<Vec<i64>>> {
        let columns: Vec<i64> = literal.list()?.iter().map(Literal::integer).collect::<Option<_>>()?;
        (!columns.is_empty()).then(|| vec![columns])
    }

    fn bare_plan(text: &str) -> Option<Literal> {
        text::last_row(text, |row| Self::plan(row).is_some())
    }

    fn play(&mut self, next: &Vec<i64>) -> bool {
        let Some(columns) = self.read(next) else { return false };
        let kept = |(given, column): (&Option<usize>, &usize)| given.is_none_or(|given| given == *column);
        let valid = self.given.iter().zip(&columns).all(kept);
        if valid {
            self.columns = columns.into_iter().map(Some).collect();
        }
        valid
    }

    fn penalty(_next: &Vec<i64>) -> f64 {
        INVALID
    }

    fn solved(&self) -> bool {
        !self.columns.contains(&None) && self.attacks() == 0
    }

    fn potential(&self) -> f64 {
        PER_ATTACK * self.attacks() as f64 + if self.solved() { 0.0 } else { UNSOLVED }
    }

    fn par(&self) -> u32 {
        self.given.len() as u32
    }

    fn horizon(&self) -> u32 {
        4 * self.given.len() as u32
    }

    fn play_by_reference(&mut self, plan: Option<&[Vec<i64>]>, steps: &mut u32) -> ReferenceOutcome {
        reference::play(self, plan, steps)
    }

    fn show(&self) -> String {
        let symbol = |queen: Option<usize>, column| if queen == Some(column) { 'Q' } else { '.' };
        let row =
            |queen: &Option<usize>| (0..self.columns.len()).map(|column| symbol(*queen, column)).collect();
        let rows: Vec<String> = self.columns.iter().map(row).collect();
        let fixed: Vec<String> = self
            .given
            .iter()
            .enumerate()
            .filter_map(|(row, column)| Some(format!("row {row} column {}", (*column)?)))
            .collect();
        match fixed.as_slice() {
            [] => rows.join("\n"),
            fixed => format!("{}\nFixed queens: {}.", rows.join("\n"), fixed.join(", ")),
        }
    }

    fn draw(&self) -> Svg {
        let size = self.given.len();
        let mut svg = Svg::board(size, size);
        let cells = (0..size).flat_map(|row| (0..size).map(move |column| Cell { row, column }));
        svg.fill(cells.filter(|cell| (cell.row + cell.column) % 2 == 1), colour::SHADE);
        let queens: Vec<(usize, usize)> = self.queens().collect();
        for queen in &queens {
            let (row, column) = *queen;
            let colour = match (
                queens.iter().any(|other| other != queen && attack(*other, *queen)),
                self.given[row],
            ) {
                (true, _) => colour::WRONG,
                (false, Some(_)) => colour::DARK,
                (false, None) => colour::PLAYER,
            };
            svg.disc(Cell { row, column }, 0.36, colour);
            svg.label(Cell { row, column }, "Q", colour::LIGHT);
        }
        svg
    }

    fn solution(&self) -> Option<Vec<Vec<i64>>> {
        let columns = complete(&self.given, &mut |_| {})?;
        Some(vec![columns.into_iter().map(|column| column as i64).collect()])
    }

    fn write(plan: &[Vec<i64>]) -> String {
        plan.last().map(|columns| format!("{columns:?}")).unwrap_or_default()
    }
}

impl Queens {
    /// Returns the columns of a full board.
    fn read(&self, columns: &[i64]) -> Option<Vec<usize>> {
        let size = self.given.len();
        let column = |column: &i64| usize::try_from(*column).ok().filter(|column| *column < size);
        columns.iter().map(column).collect::<Option<Vec<_>>>().filter(|columns| columns.len() == size)
    }

    /// Iterates over the rows and columns of the queens.
    fn queens(&self) -> impl Iterator<Item = (usize, usize)> {
        self.columns.iter().enumerate().filter_map(|(row, column)| Some((row, (*column)?)))
    }

    /// Number of pairs of queens that attack each other.
    fn attacks(&self) -> usize {
        let queens: Vec<(usize, usize)> = self.queens().collect();
        let attacked =
            |later: usize| queens[..later].iter().filter(|one| attack(**one, queens[later])).count();
        (0..queens.len()).map(attacked).sum()
    }
}

/// Returns true if two queens in different rows attack each other.
fn attack(one: (usize, usize), other: (usize, usize)) -> bool {
    one.1 == other.1 || one.0.abs_diff(other.0) == one.1.abs_diff(other.1)
}

/// Completes a board by backtracking, row by row. `order` arranges the columns of a row before they are tried. Returns
/// `None` if no completion exists.
fn complete(given: &[Option<usize>], order: &mut dyn FnMut(&mut [usize])) -> Option<Vec<usize>> {
    let queens: Vec<(usize, usize)> =
        given.iter().enumerate().filter_map(|(row, column)| Some((row, (*column)?))).collect();
    let fits = |queens: &[(usize, usize)], queen| queens.iter().all(|other| !attack(*other, queen));
    if (0..queens.len()).any(|later| !fits(&queens[..later], queens[later])) {
        return None;
    }
    let empty: Vec<usize> = (0..given.len()).filter(|row| given[*row].is_none()).collect();
    let mut queens = queens;
    place(&empty, given.len(), &mut queens, order).then(|| {
        queens.sort_unstable();
        queens.into_iter().map(|(_, column)| column).collect()
    })
}

fn place(
    empty: &[usize],
    size: usize,
    queens: &mut Vec<(usize, usize)>,
    order: &mut dyn FnMut(&mut [usize]),
) -> bool {
    let Some((row, empty)) = empty.split_first() else { return true };
    let mut columns: Vec<usize> =
        (0..size).filter(|column| queens.iter().all(|other| !attack(*other, (*row, *column)))).collect();
    order(&mut columns);
    for column in columns {
        queens.push((*row, column));
        if place(empty, size, queens, order) {
            return true;
        }
        queens.pop();
    }
    false
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::laws::{Oracle, laws};

    impl Oracle for Queens {
        fn image(&self, draw: &mut Draw) -> Self {
            let size = self.given.len();
            let (mirror, transpose) = (draw.percent(50), draw.percent(50));
            let mut queens = vec![None; size];
            for (row, column) in self.given.iter().enumerate() {
                let Some(column) = column else { continue };
                let column = if mirror { size - 1 - column } else { *column };
                let (row, column) = if transpose { (column, row) } else { (row, column) };
                queens[row] = Some(column as i64);
            }
            Self::start(Record { queens }).unwrap()
        }

        fn any_move(&self, draw: &mut Draw) -> Vec<i64> {
            let size = self.given.len();
            self.given.iter().map(|given| given.unwrap_or_else(|| draw.below(size)) as i64).collect()
        }
    }

    laws!(Queens);

    fn puzzle(queens: serde_json::Value) -> Result<Queens> {
        Queens::start(serde_json::from_value(json!({ "queens": queens })).unwrap())
    }

    #[test]
    fn given_queens_stay() {
        let mut board = puzzle(json!([1, null, null, null])).unwrap();
        assert_eq!(board.show(), ".Q..\n....\n....\n....\nFixed queens: row 0 column 1.");
        for invalid in [vec![2, 0, 3, 1], vec![1, 3, 0], vec![1, 3, 0, 4], vec![1, 3, 0, -1]] {
            assert!(!board.play(&invalid), "{invalid:?}");
        }
        assert_eq!(board.potential(), -0.5);
        assert!(board.play(&vec![1, 1, 1, 1]) && !board.solved());
        assert!((board.potential() - (-0.5 - 0.6)).abs() < 1e-12);
        assert!(board.play(&vec![1, 3, 0, 2]) && board.solved());
        assert_eq!(board.potential(), 0.0);
    }

    #[test]
    fn records_are_checked() {
        let message = |queens| puzzle(queens).unwrap_err().message;
        assert!(message(json!([])).contains("1 to 16 rows"));
        assert!(message(json!([4, null, null, null])).contains("column 4 of 4"));
        assert!(message(json!([0, null, null, null])).contains("can't be completed"));
        assert!(message(json!([1, 1, -1, -1])).contains("can't be completed"));
        assert!(message(json!([1, 3, 0, 2])).contains("no queen is missing"));
    }
}
