//! Blocksworld: rebuild stacks of blocks, one block at a time.

mod generate;
mod reference;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use pl_sdk::prelude::*;
use serde_json::{Value, json};

use crate::drawing::{Svg, colour};
use crate::game::{Game, GameKind, ReferenceOutcome, Values};
use crate::grid::Cell;
use crate::literal::Literal;
use crate::random::{Draw, combine, combine_unordered};
use crate::splits::Split;

/// Maximum number of blocks.
const MAX_BLOCKS: usize = 100;

/// Name of the place where a block starts a new stack.
const TABLE: &str = "table";

/// Value of a move that is impossible.
const INVALID: f64 = -0.3;

/// Value of an item that is not a move, such as a list without a destination.
const MALFORMED: f64 = -0.5;

/// Value of all blocks between their neighbours of the goal.
const SIMILARITY: f64 = 0.5;

/// Stacks of blocks, each from the bottom to the top.
type Stacks = Vec<Vec<String>>;

/// Stacks and the goal. Empty stacks are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blocksworld {
    start: Stacks,
    stacks: Stacks,
    goal: Stacks,
}

/// Record of a task: stacks from the bottom to the top.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    #[serde(alias = "init_stacks")]
    start: Stacks,
    #[serde(alias = "goal_stacks")]
    goal: Stacks,
}

/// A move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// A block and its new place: another block or the table.
    Block { block: String, to: String },
    /// An item of a plan that is not a move.
    Malformed,
}

impl Game for Blocksworld {
    const NAME: &'static str = "blocksworld";
    const DOC: &'static str = "Blocksworld: rebuild stacks of blocks, one block at a time.";
    const KIND: GameKind = GameKind::Blocksworld;
    const LEVELS: RangeInclusive<u32> = generate::LEVELS;
    const VALUES: Values = Values { step: -0.01, goal: 2.0, bonus: 0.5, fail: 0.0 };

    type Record = Record;
    type Move = Move;

    fn start(record: Record) -> Result<Self> {
        let Record { mut start, mut goal } = record;
        start.retain(|stack| !stack.is_empty());
        goal.retain(|stack| !stack.is_empty());
        let blocks = |stacks: &Stacks| stacks.iter().flatten().cloned().collect::<BTreeSet<_>>();
        let count = start.iter().flatten().count();
        if blocks(&start).len() != count || goal.iter().flatten().count() != count {
            return Err(Error::task("each block stands once at the start and once in the goal"));
        }
        if blocks(&start) != blocks(&goal) {
            return Err(Error::task("the start and the goal have different blocks"));
        }
        if count > MAX_BLOCKS || blocks(&start).contains(TABLE) {
            return Err(Error::task(format!(
                "there are at most {MAX_BLOCKS} blocks, none of them named `{TABLE}`"
            )));
        }
        let puzzle = Self { stacks: start.clone(), start, goal };
        if puzzle.solved() {
            return Err(Error::task("the start is the goal"));
        }
        Ok(puzzle)
    }

    fn record(&self) -> Record {
        Record { start: self.start.clone(), goal: self.goal.clone() }
    }

    fn generate(level: u32, _split: Split, draw: &mut Draw) -> Option<Self> {
        generate::puzzle(level, draw)
    }

    /// Colour refinement (Weisfeiler and Leman) of the blocks along their neighbours below and above.
    fn symmetry_hash(&self) -> u64 {
        let blocks: Vec<&String> = self.start.iter().flatten().collect();
        let index =
            |name: &String| blocks.iter().position(|block| *block == name).map_or(0, |index| index + 1);
        let neighbours: Vec<[usize; 4]> = blocks
            .iter()
            .map(|block| {
                let ([below, above], [later_below, later_above]) =
                    (neighbours(&self.start, block), neighbours(&self.goal, block));
                [below, above, later_below, later_above].map(|block| block.map_or(0, index))
            })
            .collect();
        // Colour 0 is that of no block.
        let mut colours = vec![1; blocks.len() + 1];
        colours[0] = 0;
        for _ in &blocks {
            let refined: Vec<u64> = neighbours
                .iter()
                .enumerate()
                .map(|(block, around)| {
                    let [a, b, c, d] = around.map(|other| colours[other]);
                    combine(&[colours[block + 1], a, b, c, d])
                })
                .collect();
            colours[1..].copy_from_slice(&refined);
        }
        combine_unordered(colours)
    }

    /// Reads a list of moves: `{"move": ["B", "table"]}` or `["B", "table"]`.
    fn plan(literal: &Literal) -> Option<Vec<Move>> {
        let items = literal.list()?;
        // A lone move: its list would otherwise look like a plan of two words.
        if let Some(single) = pair(items) {
            return Some(vec![single]);
        }
        let read = |item: &Literal| match item {
            Literal::List(items) => Some(pair(items).unwrap_or(Move::Malformed)),
            Literal::Map(entries) => {
                let entry = entries.iter().find(|(key, _)| key == "move");
                Some(entry.and_then(|(_, value)| pair(value.list()?)).unwrap_or(Move::Malformed))
            }
            Literal::Integer(_) | Literal::Word(_) => None,
        };
        items.iter().map(read).collect()
    }

    fn play(&mut self, next: &Move) -> bool {
        let Move::Block { block, to } = next else { return false };
        let top = |name: &String| self.stacks.iter().position(|stack| stack.last() == Some(name));
        let (Some(from), onto) = (top(block), top(to)) else { return false };
        let alone = self.stacks.get(from).is_some_and(|stack| stack.len() == 1);
        let possible = if to == TABLE { !alone } else { onto.is_some_and(|onto| onto != from) };
        if possible {
            move_block(&mut self.stacks, from, onto);
        }
        possible
    }

    fn penalty(next: &Move) -> f64 {
        match next {
            Move::Block { .. } => INVALID,
            Move::Malformed => MALFORMED,
        }
    }

    fn solved(&self) -> bool {
        sorted(&self.stacks) == sorted(&self.goal)
    }

    fn potential(&self) -> f64 {
        SIMILARITY * self.similarity()
    }

    fn par(&self) -> u32 {
        2 * self.blocks() as u32
    }

    fn horizon(&self) -> u32 {
        8 * self.blocks() as u32
    }

    fn play_by_reference(&mut self, plan: Option<&[Move]>, steps: &mut u32) -> ReferenceOutcome {
        reference::play(self, plan, steps)
    }

    fn show(&self) -> String {
        format!("Stacks: {}\nGoal: {}", write(&self.stacks), write(&self.goal))
    }

    /// Draws the stacks on the left and the goal on the right.
    fn draw(&self) -> Svg {
        let height = self.stacks.iter().chain(&self.goal).map(Vec::len).max().unwrap_or(0);
        // Room for every block to stand alone would leave little of small drawings.
        let goal_at = self.stacks.len() + 1;
        let mut svg = Svg::blank(height + 1, goal_at + self.goal.len());
        svg.label(Cell { row: 0, column: goal_at }, "goal", colour::DARK);
        for (stacks, left) in [(&self.stacks, 0), (&self.goal, goal_at)] {
            for (column, stack) in stacks.iter().enumerate() {
                for (level, block) in stack.iter().enumerate() {
                    let cell = Cell { row: height - level, column: left + column };
                    let fits = left > 0 || self.fits(block);
                    svg.square(cell, if fits { colour::GOAL } else { colour::BLOCK });
                    svg.label(cell, block, colour::LIGHT);
                }
            }
        }
        svg
    }

    /// Puts every block on the table, and builds the goal from there.
    fn solution(&self) -> Option<Vec<Move>> {
        let block = |name: &str, to: &str| Move::Block { block: name.to_owned(), to: to.to_owned() };
        let unstack =
            self.stacks.iter().flat_map(|stack| stack.iter().skip(1).rev().map(|name| block(name, TABLE)));
        let build = self
            .goal
            .iter()
            .flat_map(|stack| stack.iter().zip(stack.iter().skip(1)).map(|(below, name)| block(name, below)));
        Some(unstack.chain(build).collect())
    }

    fn write(plan: &[Move]) -> String {
        let moves: Vec<Value> = plan
            .iter()
            .map(|next| match next {
                Move::Block { block, to } => json!({"move": [block, to]}),
                Move::Malformed => json!({}),
            })
            .collect();
        json!(moves).to_string()
    }
}

/// Reads a block and its new place.
fn pair(items: &[Literal]) -> Option<Move> {
    let name = |item: &Literal| match item {
        Literal::Word(word) => Some(word.clone()),
        Literal::Integer(number) => Some(number.to_string()),
        Literal::List(_) | Literal::Map(_) => None,
    };
    match items {
        [block, to] => Some(Move::Block { block: name(block)?, to: name(to)? }),
        _ => None,
    }
}

/// Moves the top block of a stack onto another one, or onto the table.
fn move_block(stacks: &mut Stacks, from: usize, onto: Option<usize>) {
    let block = stacks[from].pop();
    match onto {
        Some(onto) => stacks[onto].extend(block),
        None => stacks.push(block.into_iter().collect()),
    }
    stacks.retain(|stack| !stack.is_empty());
}

/// Returns the blocks below and above a block.
fn neighbours<'s>(stacks: &'s Stacks, block: &str) -> [Option<&'s String>; 2] {
    let found = stacks.iter().find_map(|stack| Some((stack, stack.iter().position(|other| other == block)?)));
    let Some((stack, height)) = found else { return [None, None] };
    [height.checked_sub(1).and_then(|below| stack.get(below)), stack.get(height + 1)]
}

fn sorted(stacks: &Stacks) -> Stacks {
    let mut sorted = stacks.clone();
    sorted.sort();
    sorted
}

fn write(stacks: &Stacks) -> String {
    let write = |stack: &Vec<String>| {
        let blocks: Vec<String> = stack.iter().map(|block| format!("\"{block}\"")).collect();
        format!("[{}]", blocks.join(", "))
    };
    format!("[{}]", stacks.iter().map(write).collect::<Vec<_>>().join(", "))
}

impl Blocksworld {
    fn blocks(&self) -> usize {
        self.start.iter().flatten().count()
    }

    /// Returns true if a block has the same neighbours as in the goal.
    fn fits(&self, block: &str) -> bool {
        neighbours(&self.stacks, block) == neighbours(&self.goal, block)
    }

    /// Share of the blocks that have the same neighbours as in the goal.
    fn similarity(&self) -> f64 {
        self.start.iter().flatten().filter(|block| self.fits(block)).count() as f64 / self.blocks() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws::{Oracle, laws};
    use crate::literal::lists;

    fn block(block: &str, to: &str) -> Move {
        Move::Block { block: block.to_owned(), to: to.to_owned() }
    }

    impl Oracle for Blocksworld {
        fn image(&self, draw: &mut Draw) -> Self {
            let blocks: Vec<&String> = self.start.iter().flatten().collect();
            let mut names: Vec<usize> = (0..blocks.len()).collect();
            draw.shuffle(&mut names);
            let rename = |name: &String| {
                format!("x{}", names[blocks.iter().position(|block| *block == name).unwrap()])
            };
            let mut image = |stacks: &Stacks| {
                let mut stacks: Stacks =
                    stacks.iter().map(|stack| stack.iter().map(rename).collect()).collect();
                draw.shuffle(&mut stacks);
                stacks
            };
            let (start, goal) = (image(&self.start), image(&self.goal));
            Self::start(Record { start, goal }).unwrap()
        }

        fn any_move(&self, draw: &mut Draw) -> Move {
            let tops: Vec<&str> =
                self.stacks.iter().filter_map(|stack| Some(stack.last()?.as_str())).collect();
            let from = *draw.pick(&tops).unwrap();
            block(from, draw.pick(&tops).copied().filter(|to| *to != from).unwrap_or(TABLE))
        }
    }

    laws!(Blocksworld);

    pub fn puzzle(start: &[&[&str]], goal: &[&[&str]]) -> Result<Blocksworld> {
        let record = json!({"init_stacks": start, "goal_stacks": goal});
        Blocksworld::start(serde_json::from_value(record).unwrap())
    }

    #[test]
    fn only_free_blocks_move() {
        let mut world = puzzle(&[&["A", "B"], &["C"]], &[&["C", "A"], &["B"], &[]]).unwrap();
        assert_eq!(world.show(), "Stacks: [[\"A\", \"B\"], [\"C\"]]\nGoal: [[\"C\", \"A\"], [\"B\"]]");
        let impossible = [("A", "C"), ("B", "B"), ("B", "A"), ("C", "table"), ("B", "X"), ("X", "table")];
        for (name, to) in impossible {
            assert!(!world.play(&block(name, to)), "{name} to {to}");
        }
        assert!(!world.play(&Move::Malformed));
        assert_eq!(world.potential(), 0.0);
        assert!(world.play(&block("B", "table")) && !world.solved());
        assert!((world.potential() - 0.5 / 3.0).abs() < 1e-12, "B stands alone");
        assert!(world.play(&block("A", "C")) && world.solved());
        assert_eq!(world.potential(), 0.5);
    }

    #[test]
    fn plans_are_read_in_many_forms() {
        let plan = |text: &str| Blocksworld::plan(&lists(text).pop()?.0);
        let two = Some(vec![block("B", "table"), block("C", "B")]);
        assert_eq!(plan("[{\"move\": [\"B\", \"table\"]}, {\"move\": [\"C\", \"B\"]}]"), two);
        assert_eq!(plan("[['B', 'table'], (C, B)]"), two);
        assert_eq!(plan("[B, table]"), Some(vec![block("B", "table")]));
        assert_eq!(
            plan("[{\"put\": 1}, [A], [A, B]]"),
            Some(vec![Move::Malformed, Move::Malformed, block("A", "B")])
        );
        assert_eq!(plan("[A, B, C]"), None);
    }

    #[test]
    fn records_are_checked() {
        let message = |start: &[&[&str]], goal: &[&[&str]]| puzzle(start, goal).unwrap_err().message;
        assert!(message(&[&["A", "A"]], &[&["A", "A"]]).contains("once"));
        assert!(message(&[&["A"]], &[&["A"], &["A"]]).contains("once"));
        assert!(message(&[&["A"]], &[&["B"]]).contains("different blocks"));
        assert!(message(&[&["A"], &["table"]], &[&["table", "A"]]).contains("named `table`"));
        assert!(message(&[&["A"], &["B"]], &[&["B"], &["A"]]).contains("the start is the goal"));
    }
}
