//! Sokoban: push every box onto a goal.

mod generate;
mod mask;
mod reference;
mod solver;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use pl_sdk::prelude::*;

use crate::drawing::{Svg, colour};
use crate::game::{Game, GameKind, ReferenceOutcome, Values};
use crate::grid::{Cell, Direction, canonical_board, dimensions};
use crate::literal::Literal;
use crate::random::{Draw, hash};
use crate::splits::Split;
use crate::text;

/// Maximum height and width of a room.
const MAX_SIZE: usize = 100;

/// Value of a move into a wall or a box that is stuck.
const INVALID: f64 = -0.05;

/// Value of a box on a goal.
const ON_GOAL: f64 = 1.0;

/// Value of one cell that a box is nearer to its nearest goal.
const PER_CELL: f64 = 0.1;

/// Maximum number of states that the search for a solution visits: enough for every generated room and most of Boxoban's,
/// and within the default fuel.
const MAX_STATES: usize = 5000;

/// A room with boxes and a player.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sokoban {
    /// Rows of `#` (wall), a space (floor) and `.` (goal).
    room: Vec<String>,
    boxes: BTreeSet<Cell>,
    player: Cell,
}

/// Record of a task: the room, as the usual text of Sokoban levels or as its rows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    room: Rows,
}

/// A text, or its lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Rows {
    Lines(Vec<String>),
    Text(String),
}

impl Game for Sokoban {
    const NAME: &'static str = "sokoban";
    const DOC: &'static str = "Sokoban: push every box onto a goal.";
    const KIND: GameKind = GameKind::Sokoban;
    const LEVELS: RangeInclusive<u32> = generate::LEVELS;
    const VALUES: Values = Values { step: -0.01, goal: 10.0, bonus: 0.0, fail: -5.0 };

    type Record = Record;
    type Move = Direction;

    fn start(record: Record) -> Result<Self> {
        let lines = match record.room {
            Rows::Lines(lines) => lines,
            Rows::Text(text) => text.lines().map(str::to_owned).collect(),
        };
        let mut rows: Vec<Vec<char>> = lines.iter().map(|line| line.trim_end().chars().collect()).collect();
        // Files leave out the spaces at the end of a line.
        let width = rows.iter().map(Vec::len).max().unwrap_or(0);
        rows.iter_mut().for_each(|row| row.resize(width, ' '));
        dimensions(&rows, MAX_SIZE)?;
        let (mut boxes, mut players) = (BTreeSet::new(), Vec::new());
        for (row, cells) in rows.iter_mut().enumerate() {
            for (column, symbol) in cells.iter_mut().enumerate() {
                let cell = Cell { row, column };
                if matches!(symbol, '$' | '*') {
                    boxes.insert(cell);
                }
                if matches!(symbol, '@' | '+') {
                    players.push(cell);
                }
                *symbol = match symbol {
                    '#' => '#',
                    ' ' | '$' | '@' => ' ',
                    '.' | '*' | '+' => '.',
                    odd => return Err(Error::task(format!("a room has the cells `# .$@*+`, not `{odd}`"))),
                };
            }
        }
        let [player] = players[..] else {
            return Err(Error::task(format!(
                "a room has one player (`@` or `+`), this one {}",
                players.len()
            )));
        };
        let goals = rows.iter().flatten().filter(|cell| **cell == '.').count();
        if boxes.is_empty() || goals < boxes.len() {
            let count = boxes.len();
            return Err(Error::task(format!("the room has {count} boxes and {goals} goals for them")));
        }
        let puzzle = Self { room: rows.iter().map(String::from_iter).collect(), boxes, player };
        if puzzle.solved() {
            return Err(Error::task("every box is on a goal at the start"));
        }
        Ok(puzzle)
    }

    fn record(&self) -> Record {
        Record { room: Rows::Lines(self.rows()) }
    }

    fn generate(level: u32, split: Split, draw: &mut Draw) -> Option<Self> {
        generate::puzzle(level, split, draw)
    }

    fn symmetry_hash(&self) -> u64 {
        room_hash(&self.room)
    }

    fn plan(literal: &Literal) -> Option<Vec<Direction>> {
        Direction::plan(literal)
    }

    fn bare_plan(text: &str) -> Option<Literal> {
        text::last_row(text, |row| Direction::plan(row).is_some())
    }

    fn play(&mut self, next: &Direction) -> bool {
        let Some(target) = self.player.step(*next).filter(|cell| self.is_floor(*cell)) else { return false };
        if self.boxes.contains(&target) {
            let Some(beyond) = target.step(*next).filter(|cell| self.is_free(*cell)) else { return false };
            self.boxes.remove(&target);
            self.boxes.insert(beyond);
        }
        self.player = target;
        true
    }

    fn penalty(_next: &Direction) -> f64 {
        INVALID
    }

    fn solved(&self) -> bool {
        self.on_goal() == self.boxes.len()
    }

    fn potential(&self) -> f64 {
        ON_GOAL * self.on_goal() as f64 - PER_CELL * self.distance() as f64
    }

    fn par(&self) -> u32 {
        0
    }

    fn horizon(&self) -> u32 {
        // The reference's limit of 200 is for rooms of 6 x 6.
        (8 * self.room.len() * self.width()).max(200) as u32
    }

    fn play_by_reference(&mut self, plan: Option<&[Direction]>, steps: &mut u32) -> ReferenceOutcome {
        reference::play(self, plan, steps)
    }

    /// The places in numbers help small models, and keep the walls apart from the mark before a plan.
    fn show(&self) -> String {
        let place = |cell: Cell| format!("[{}, {}]", cell.row, cell.column);
        let places = |cells: &mut dyn Iterator<Item = Cell>| cells.map(place).collect::<Vec<_>>().join(" ");
        format!(
            "{}\nYou are at {}. Boxes: {}. Goals: {}.",
            self.rows().join("\n"),
            place(self.player),
            places(&mut self.boxes.iter().copied()),
            places(&mut self.cells().filter(|cell| self.is_goal(*cell)))
        )
    }

    fn draw(&self) -> Svg {
        let mut svg = Svg::board(self.room.len(), self.width());
        svg.fill(self.cells().filter(|cell| !self.is_floor(*cell)), colour::DARK);
        for cell in self.cells().filter(|cell| self.is_goal(*cell)) {
            svg.ring(cell, 0.2, colour::GOAL);
        }
        for cell in &self.boxes {
            svg.square(*cell, if self.is_goal(*cell) { colour::GOAL } else { colour::BLOCK });
        }
        svg.disc(self.player, 0.3, colour::PLAYER);
        svg
    }

    fn solution(&self) -> Option<Vec<Direction>> {
        solver::solve(self, MAX_STATES)
    }

    fn write(plan: &[Direction]) -> String {
        crate::plan_path::write_directions(plan)
    }
}

/// Hash of the walls and goals alone, so that splits share no room: boxes and the player may stand anywhere in it.
fn room_hash(room: &[String]) -> u64 {
    let width = room.first().map_or(0, String::len);
    hash(&canonical_board(room.len(), width, |cell| room[cell.row].as_bytes()[cell.column]))
}

impl Sokoban {
    fn width(&self) -> usize {
        self.room.first().map_or(0, String::len)
    }

    fn at(&self, cell: Cell) -> u8 {
        self.room.get(cell.row).and_then(|row| row.as_bytes().get(cell.column)).copied().unwrap_or(b'#')
    }

    fn is_floor(&self, cell: Cell) -> bool {
        self.at(cell) != b'#'
    }

    fn is_goal(&self, cell: Cell) -> bool {
        self.at(cell) == b'.'
    }

    /// Returns true for floor without a box.
    fn is_free(&self, cell: Cell) -> bool {
        self.is_floor(cell) && !self.boxes.contains(&cell)
    }

    fn cells(&self) -> impl Iterator<Item = Cell> {
        let width = self.width();
        (0..self.room.len()).flat_map(move |row| (0..width).map(move |column| Cell { row, column }))
    }

    /// Number of boxes on goals.
    fn on_goal(&self) -> usize {
        self.boxes.iter().filter(|cell| self.is_goal(**cell)).count()
    }

    /// Sum of the distances from each box to its nearest goal.
    fn distance(&self) -> usize {
        let goals: Vec<Cell> = self.cells().filter(|cell| self.is_goal(*cell)).collect();
        let nearest = |cell: &Cell| goals.iter().map(|goal| cell.manhattan(*goal)).min().unwrap_or(0);
        self.boxes.iter().map(nearest).sum()
    }

    /// Returns the room with its boxes and the player.
    fn rows(&self) -> Vec<String> {
        let symbol = |cell: Cell| match (self.at(cell), cell == self.player, self.boxes.contains(&cell)) {
            (b'.', true, _) => '+',
            (b'.', _, true) => '*',
            (_, true, _) => '@',
            (_, _, true) => '$',
            (floor, ..) => char::from(floor),
        };
        let row = |row| (0..self.width()).map(|column| symbol(Cell { row, column })).collect();
        (0..self.room.len()).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::laws::{Oracle, laws};

    impl Oracle for Sokoban {
        fn image(&self, draw: &mut Draw) -> Self {
            let mut rows = self.rows();
            if draw.percent(50) {
                rows.reverse();
            }
            if draw.percent(50) {
                let column = |column| rows.iter().map(|row| char::from(row.as_bytes()[column])).collect();
                rows = (0..self.width()).map(column).collect();
            }
            Self::start(Record { room: Rows::Lines(rows) }).unwrap()
        }

        fn any_move(&self, draw: &mut Draw) -> Direction {
            *draw.pick(&Direction::ALL).unwrap()
        }
    }

    laws!(Sokoban);

    fn puzzle(room: &[&str]) -> Result<Sokoban> {
        Sokoban::start(serde_json::from_value(json!({ "room": room })).unwrap())
    }

    #[test]
    fn boxes_are_pushed_never_pulled() {
        let mut room = puzzle(&["######", "#@$ .#", "######"]).unwrap();
        assert!((room.potential() - -0.2).abs() < 1e-12);
        assert!(!room.play(&Direction::Left) && !room.play(&Direction::Up));
        assert!(room.play(&Direction::Right) && room.play(&Direction::Left));
        let places = "You are at [1, 1]. Boxes: [1, 3]. Goals: [1, 4].";
        assert_eq!(room.show(), format!("######\n#@ $.#\n######\n{places}"));
        assert!(room.play(&Direction::Right) && !room.solved());
        assert!(room.play(&Direction::Right) && room.solved());
        assert_eq!((room.rows()[1].as_str(), room.potential()), ("#  @*#", 1.0));
        assert!(!room.play(&Direction::Right), "a box at a wall is stuck");
    }

    #[test]
    fn a_box_does_not_push_a_box() {
        let mut room = puzzle(&["#######", "#+$$  #", "#  .  #", "#######"]).unwrap();
        assert!(!room.play(&Direction::Right));
        assert_eq!(room.rows()[1], "#+$$  #");
    }

    #[test]
    fn records_are_checked() {
        let message = |room: &[&str]| puzzle(room).unwrap_err().message;
        assert!(message(&[]).contains("no cells"));
        assert!(message(&["#@$.x#"]).contains("not `x`"));
        assert!(message(&["# $.#"]).contains("this one 0"));
        assert!(message(&["#@@$.#"]).contains("this one 2"));
        assert!(message(&["#@ .#"]).contains("0 boxes"));
        assert!(message(&["#@$$.#"]).contains("2 boxes and 1 goals"));
        assert!(message(&["#@*#"]).contains("at the start"));
        let text = json!({"room": "####\n#@$.#\n####"});
        assert_eq!(Sokoban::start(serde_json::from_value(text).unwrap()).unwrap().rows()[0], "#### ");
    }

    /// Rooms of Boxoban's files, as the host reads them.
    #[test]
    fn boxobans_rooms_are_read_and_solved() {
        let Some(file) = pl_testing::data("boxoban/unfiltered_test_000.txt") else { return };
        let text = std::fs::read_to_string(file).unwrap();
        let rooms: Vec<&str> =
            text.split(';').filter_map(|room| room.split_once('\n')).map(|(_, room)| room).collect();
        assert_eq!(rooms.len(), 1000);
        let mut solved = 0;
        for room in rooms.into_iter().step_by(20) {
            let puzzle = Sokoban::start(Record { room: Rows::Text(room.trim_end().to_owned()) }).unwrap();
            assert_eq!((puzzle.boxes.len(), puzzle.room.len(), puzzle.width()), (4, 10, 10));
            // Rooms that need more states are left out: this test is about the rules.
            let Some(plan) = solver::solve(&puzzle, 5000) else { continue };
            let mut played = puzzle.clone();
            assert!(plan.iter().all(|next| played.play(next)) && played.solved());
            solved += 1;
        }
        assert!(solved >= 25, "{solved}");
    }
}
