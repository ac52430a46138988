//! Plan-Path: a way from S to G on a grid with walls.

mod generate;
mod reference;

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use pl_sdk::prelude::*;

use crate::drawing::{Svg, colour};
use crate::game::{Game, GameKind, ReferenceOutcome, Values};
use crate::grid::{Cell, Direction, canonical_board, dimensions};
use crate::literal::Literal;
use crate::random::{Draw, hash};
use crate::splits::Split;
use crate::text;

/// Maximum height and width of a grid.
const MAX_SIZE: usize = 100;

/// Value of a move into a wall or off the grid.
const INVALID: f64 = -0.1;

/// Value of one cell nearer to the goal.
const PER_CELL: f64 = 1.0;

/// A grid with a walker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanPath {
    /// Rows of `.` (free) and `#` (wall).
    grid: Vec<String>,
    start: Cell,
    goal: Cell,
    position: Cell,
    /// Length of the shortest path from start to goal.
    shortest: u32,
}

/// Record of a task: rows of `.` and `#`, with `S` and `G`, or with `start` and `goal` as row and column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    grid: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start: Option<[usize; 2]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    goal: Option<[usize; 2]>,
}

impl Game for PlanPath {
    const NAME: &'static str = "plan_path";
    const DOC: &'static str = "Plan-Path: walk from S to G on a grid with walls.";
    const KIND: GameKind = GameKind::PlanPath;
    const LEVELS: RangeInclusive<u32> = generate::LEVELS;
    const VALUES: Values = Values { step: -0.01, goal: 1.0, bonus: 0.5, fail: -1.0 };
    const HAS_WORDS: bool = true;

    type Record = Record;
    type Move = Direction;

    fn start(record: Record) -> Result<Self> {
        let mut rows: Vec<Vec<char>> = record.grid.iter().map(|row| row.chars().collect()).collect();
        dimensions(&rows, MAX_SIZE)?;
        let given = |cell: Option<[usize; 2]>| cell.map(|[row, column]| Cell { row, column });
        let start = given(record.start).or_else(|| take(&mut rows, 'S'));
        let goal = given(record.goal).or_else(|| take(&mut rows, 'G'));
        if let Some(odd) = rows.iter().flatten().find(|cell| !matches!(cell, '.' | '#')) {
            return Err(Error::task(format!("a grid has the cells `.`, `#`, `S` and `G`, not `{odd}`")));
        }
        let (Some(start), Some(goal)) = (start, goal) else {
            return Err(Error::task("the grid has no `S` and `G`, and the record no `start` and `goal`"));
        };
        if start == goal {
            return Err(Error::task("start and goal are the same cell"));
        }
        let grid = rows.iter().map(String::from_iter).collect();
        let mut puzzle = Self { grid, start, goal, position: start, shortest: 0 };
        for (name, cell) in [("start", start), ("goal", goal)] {
            if !puzzle.is_free(cell) {
                let Cell { row, column } = cell;
                return Err(Error::task(format!(
                    "the {name} [{row}, {column}] is a wall or lies outside the grid"
                )));
            }
        }
        let distance = puzzle.distances(start).get(puzzle.index(goal)).copied().flatten();
        puzzle.shortest = distance.ok_or_else(|| Error::task("no path leads from start to goal"))?;
        Ok(puzzle)
    }

    fn record(&self) -> Record {
        let cell = |cell: Cell| Some([cell.row, cell.column]);
        Record { grid: self.grid.clone(), start: cell(self.start), goal: cell(self.goal) }
    }

    fn generate(level: u32, _split: Split, draw: &mut Draw) -> Option<Self> {
        generate::puzzle(level, draw)
    }

    fn symmetry_hash(&self) -> u64 {
        hash(&canonical_board(self.grid.len(), self.width(), |cell| match cell {
            cell if cell == self.start => b'S',
            cell if cell == self.goal => b'G',
            cell => self.at(cell).unwrap_or(b'#'),
        }))
    }

    fn plan(literal: &Literal) -> Option<Vec<Direction>> {
        Direction::plan(literal)
    }

    fn bare_plan(text: &str) -> Option<Literal> {
        text::last_row(text, |row| Direction::plan(row).is_some())
    }

    fn play(&mut self, next: &Direction) -> bool {
        let target = self.position.step(*next).filter(|cell| self.is_free(*cell));
        self.position = target.unwrap_or(self.position);
        target.is_some()
    }

    fn penalty(_next: &Direction) -> f64 {
        INVALID
    }

    fn solved(&self) -> bool {
        self.position == self.goal
    }

    fn potential(&self) -> f64 {
        -PER_CELL * self.position.manhattan(self.goal) as f64
    }

    fn par(&self) -> u32 {
        self.shortest
    }

    fn horizon(&self) -> u32 {
        4 * (self.grid.len() * self.width()) as u32
    }

    fn play_by_reference(&mut self, plan: Option<&[Direction]>, steps: &mut u32) -> ReferenceOutcome {
        reference::play(self, plan, steps)
    }

    fn show(&self) -> String {
        let mut rows: Vec<Vec<char>> = self.grid.iter().map(|row| row.chars().collect()).collect();
        for (cell, letter) in [(self.goal, 'G'), (self.position, 'S')] {
            if let Some(shown) = rows.get_mut(cell.row).and_then(|row| row.get_mut(cell.column)) {
                *shown = letter;
            }
        }
        let rows: Vec<String> = rows.iter().map(String::from_iter).collect();
        let (from, to) = (self.position, self.goal);
        format!(
            "{}\nS is at row {}, column {}; G is at row {}, column {}.",
            rows.join("\n"),
            from.row,
            from.column,
            to.row,
            to.column
        )
    }

    fn describe(&self) -> String {
        let is_open =
            |direction: &Direction| self.position.step(*direction).is_some_and(|cell| self.is_free(cell));
        let open: Vec<&str> =
            Direction::ALL.iter().filter(|way| is_open(way)).map(|way| way.word()).collect();
        let (here, goal) = (self.position, self.goal);
        let distances = [
            (here.row.saturating_sub(goal.row), Direction::Up),
            (goal.row.saturating_sub(here.row), Direction::Down),
            (here.column.saturating_sub(goal.column), Direction::Left),
            (goal.column.saturating_sub(here.column), Direction::Right),
        ];
        let far: Vec<String> = distances
            .iter()
            .filter(|(cells, _)| *cells > 0)
            .map(|(cells, way)| format!("{cells} {}", way.word()))
            .collect();
        let goal = if far.is_empty() { "here".to_owned() } else { far.join(" and ") };
        format!("Free directions: {}. Goal: {goal}.", open.join(", "))
    }

    fn draw(&self) -> Svg {
        let mut svg = Svg::board(self.grid.len(), self.width());
        svg.fill(self.cells().filter(|cell| !self.is_free(*cell)), colour::DARK);
        svg.fill([self.goal], colour::GOAL);
        svg.label(self.goal, "G", colour::LIGHT);
        svg.ring(self.start, 0.3, colour::LINE);
        svg.disc(self.position, 0.3, colour::PLAYER);
        svg
    }

    fn solution(&self) -> Option<Vec<Direction>> {
        let distances = self.distances(self.goal);
        let distance = |cell: Cell| distances.get(self.index(cell)).copied().flatten();
        let mut cell = self.position;
        let mut plan = Vec::new();
        while cell != self.goal {
            let here = distance(cell)?;
            let nearer = |direction: Direction| {
                let next = cell.step(direction).filter(|next| self.is_free(*next))?;
                (distance(next)? < here).then_some((direction, next))
            };
            let (direction, next) = Direction::ALL.into_iter().find_map(nearer)?;
            plan.push(direction);
            cell = next;
        }
        Some(plan)
    }

    fn write(plan: &[Direction]) -> String {
        write_directions(plan)
    }
}

/// Writes a plan of directions.
pub(crate) fn write_directions(plan: &[Direction]) -> String {
    let letters: Vec<String> = plan.iter().map(|direction| format!("\"{}\"", direction.letter())).collect();
    format!("[{}]", letters.join(", "))
}

/// Replaces the first `letter` by a free cell. Returns its place.
fn take(rows: &mut [Vec<char>], letter: char) -> Option<Cell> {
    let find = |(row, cells): (usize, &mut Vec<char>)| {
        let column = cells.iter().position(|cell| *cell == letter)?;
        cells[column] = '.';
        Some(Cell { row, column })
    };
    rows.iter_mut().enumerate().find_map(find)
}

impl PlanPath {
    fn width(&self) -> usize {
        self.grid.first().map_or(0, String::len)
    }

    fn index(&self, cell: Cell) -> usize {
        cell.row * self.width() + cell.column
    }

    fn at(&self, cell: Cell) -> Option<u8> {
        self.grid.get(cell.row)?.as_bytes().get(cell.column).copied()
    }

    fn is_free(&self, cell: Cell) -> bool {
        self.at(cell) == Some(b'.')
    }

    fn cells(&self) -> impl Iterator<Item = Cell> {
        let width = self.width();
        (0..self.grid.len()).flat_map(move |row| (0..width).map(move |column| Cell { row, column }))
    }

    /// Returns the lengths of the shortest paths from a cell to all cells, row by row (breadth-first search). `None`
    /// stands for a cell that can't be reached.
    fn distances(&self, from: Cell) -> Vec<Option<u32>> {
        let mut distances = vec![None; self.grid.len() * self.width()];
        let mut queue = VecDeque::new();
        if self.is_free(from) {
            distances[self.index(from)] = Some(0);
            queue.push_back((from, 0));
        }
        while let Some((cell, distance)) = queue.pop_front() {
            for next in Direction::ALL.into_iter().filter_map(|direction| cell.step(direction)) {
                let index = self.index(next);
                if self.is_free(next) && distances[index].is_none() {
                    distances[index] = Some(distance + 1);
                    queue.push_back((next, distance + 1));
                }
            }
        }
        distances
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::laws::{Oracle, laws};

    impl Oracle for PlanPath {
        fn image(&self, draw: &mut Draw) -> Self {
            let (mirror, transpose) = (draw.percent(50), draw.percent(50));
            let (height, width) = (self.grid.len(), self.width());
            let place = |cell: Cell| {
                let column = if mirror { width - 1 - cell.column } else { cell.column };
                if transpose { [column, cell.row] } else { [cell.row, column] }
            };
            let mut rows = vec![
                vec!['.'; if transpose { height } else { width }];
                if transpose { width } else { height }
            ];
            for (row, cells) in self.grid.iter().enumerate() {
                for (column, cell) in cells.chars().enumerate() {
                    let [row, column] = place(Cell { row, column });
                    rows[row][column] = cell;
                }
            }
            let grid = rows.iter().map(String::from_iter).collect();
            Self::start(Record { grid, start: Some(place(self.start)), goal: Some(place(self.goal)) })
                .unwrap()
        }

        fn any_move(&self, draw: &mut Draw) -> Direction {
            *draw.pick(&Direction::ALL).unwrap()
        }
    }

    laws!(PlanPath);

    fn puzzle(grid: &[&str]) -> Result<PlanPath> {
        PlanPath::start(serde_json::from_value(json!({ "grid": grid })).unwrap())
    }

    #[test]
    fn moves_follow_the_grid() {
        let mut puzzle = puzzle(&["S#.", "..G"]).unwrap();
        assert_eq!((puzzle.shortest, puzzle.horizon(), puzzle.potential()), (3, 24, -3.0));
        for blocked in [Direction::Up, Direction::Left, Direction::Right] {
            assert!(!puzzle.play(&blocked));
        }
        assert!(puzzle.play(&Direction::Down) && !puzzle.play(&Direction::Down));
        assert_eq!(puzzle.show(), ".#.\nS.G\nS is at row 1, column 0; G is at row 1, column 2.");
        assert!(puzzle.play(&Direction::Right) && !puzzle.solved());
        assert!(puzzle.play(&Direction::Right) && puzzle.solved());
    }

    #[test]
    fn words_say_which_ways_are_free_and_where_the_goal_is() {
        let mut puzzle = puzzle(&["S#.", "..G"]).unwrap();
        assert_eq!(puzzle.describe(), "Free directions: down. Goal: 1 down and 2 right.");
        puzzle.play(&Direction::Down);
        assert_eq!(puzzle.describe(), "Free directions: up, right. Goal: 2 right.");
        puzzle.play(&Direction::Right);
        puzzle.play(&Direction::Right);
        assert_eq!(puzzle.describe(), "Free directions: up, left. Goal: here.");
    }

    #[test]
    fn records_are_checked() {
        let message = |record: serde_json::Value| {
            PlanPath::start(serde_json::from_value(record).unwrap()).unwrap_err().message
        };
        assert!(message(json!({"grid": ["S.", "."]})).contains("row 1"));
        assert!(message(json!({"grid": []})).contains("no cells"));
        assert!(message(json!({"grid": ["S.x", "..G"]})).contains("not `x`"));
        assert!(message(json!({"grid": ["S.."]})).contains("no `start` and `goal`"));
        assert!(message(json!({"grid": ["S#G"]})).contains("no path"));
        assert!(
            message(json!({"grid": ["..."], "start": [0, 0], "goal": [0, 9]})).contains("the goal [0, 9]")
        );
        // Behind the end of a row there is not the next one.
        assert!(
            message(json!({"grid": ["...", "..."], "start": [0, 0], "goal": [0, 3]})).contains("outside")
        );
        assert!(
            message(json!({"grid": [".#."], "start": [0, 1], "goal": [0, 2]})).contains("the start [0, 1]")
        );
        assert!(message(json!({"grid": ["..."], "start": [0, 1], "goal": [0, 1]})).contains("same cell"));
        let given = json!({"grid": ["..."], "start": [0, 2], "goal": [0, 0]});
        assert_eq!(PlanPath::start(serde_json::from_value(given).unwrap()).unwrap().shortest, 2);
    }
}
