//! The trait that all games share: a puzzle, its moves, its potential.

use std::fmt::Debug;
use std::ops::RangeInclusive;

use pl_sdk::prelude::*;
use serde::de::DeserializeOwned;

use crate::drawing::Svg;
use crate::literal::Literal;
use crate::random::Draw;
use crate::splits::Split;

/// One puzzle and its current state.
///
/// The state's value is its [`potential`](Self::potential), and moves cost. A move is therefore worth its cost plus a
/// difference of potentials (Ng, Harada and Russell 1999, with a discount of 1): the differences cancel out on every
/// way back to an earlier state, so that only the costs remain and no loop pays.
pub trait Game: Clone + PartialEq + Debug + Serialize + DeserializeOwned + 'static {
    /// Name of the environment.
    const NAME: &'static str;
    /// One sentence for users.
    const DOC: &'static str;
    /// The game, as views name it.
    const KIND: GameKind;
    /// Levels of the generator.
    const LEVELS: RangeInclusive<u32>;
    /// Values of moves and endings.
    const VALUES: Values;
    /// True if the game has words for its state.
    const HAS_WORDS: bool = false;

    /// Fields of a task's record.
    type Record: Serialize + DeserializeOwned;
    /// One move of a plan.
    type Move: Clone + PartialEq + Debug;

    /// Sets up the puzzle of a record.
    ///
    /// # Errors
    /// [`Error::task`] if the record is not a puzzle.
    fn start(record: Self::Record) -> Result<Self>;

    /// Returns the record of the puzzle at its start.
    fn record(&self) -> Self::Record;

    /// Draws a puzzle of a level and a split. Returns `None` if this attempt failed: the caller tries another stream.
    fn generate(level: u32, split: Split, draw: &mut Draw) -> Option<Self>;

    /// Returns a hash that is equal for puzzles that are symmetric to each other. It decides the split.
    fn symmetry_hash(&self) -> u64;

    /// Reads a plan. Returns `None` if the list is not one of this game.
    fn plan(literal: &Literal) -> Option<Vec<Self::Move>>;

    /// Reads a plan without brackets, such as the bare rows of a board, from the lines that end a text.
    fn bare_plan(text: &str) -> Option<Literal> {
        let _ = text;
        None
    }

    /// Plays a move. Returns false if the move is invalid.
    fn play(&mut self, next: &Self::Move) -> bool;

    /// Value of an invalid move, below 0.
    fn penalty(next: &Self::Move) -> f64;

    /// Returns true if the puzzle is solved.
    fn solved(&self) -> bool;

    /// Value of the state.
    fn potential(&self) -> f64;

    /// Maximum number of moves of a solution that still earns the bonus.
    fn par(&self) -> u32;

    /// Number of moves after which the episode is truncated.
    fn horizon(&self) -> u32;

    /// Plays a whole plan by the rules of the reference, PettingLLMs (arXiv 2510.11062), with all their flaws.
    /// `None` stands for text without a plan. `steps` counts what the reference counts.
    fn play_by_reference(&mut self, plan: Option<&[Self::Move]>, steps: &mut u32) -> ReferenceOutcome;

    /// Returns the current state as agents see it.
    fn show(&self) -> String;

    /// Returns the current state in words, for agents that make one move at a time. The board, if there are none.
    fn describe(&self) -> String {
        self.show()
    }

    /// Returns a drawing of the current state for people.
    fn draw(&self) -> Svg;

    /// Returns a plan that solves the puzzle from its current state. Returns `None` if none was found.
    fn solution(&self) -> Option<Vec<Self::Move>>;

    /// Writes a plan as an agent would.
    fn write(plan: &[Self::Move]) -> String;
}

/// Values of moves and endings. Costs are below 0.
#[derive(Debug, Clone, Copy)]
pub struct Values {
    /// A valid move.
    pub step: f64,
    /// A solved puzzle.
    pub goal: f64,
    /// A solved puzzle after at most [`Game::par`] moves, in addition.
    pub bonus: f64,
    /// An unsolved puzzle at the horizon.
    pub fail: f64,
}

/// Result of a plan by the reference's rules.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReferenceOutcome {
    /// The state's reward.
    pub reward: f64,
    /// True if the reference calls the episode finished, and therefore solved.
    pub done: bool,
}

/// Form of the state that agents see.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateForm {
    /// The whole board, for whole plans.
    #[default]
    Board,
    /// The facts that the next move depends on, in words.
    Words,
}

impl StateForm {
    /// Returns the word for what agents answer with.
    pub fn noun(self) -> &'static str {
        match self {
            Self::Board => "plan",
            Self::Words => "move",
        }
    }

    /// Returns true if agents see the board.
    pub fn is_board(&self) -> bool {
        *self == Self::Board
    }
}

/// The games.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GameKind {
    PlanPath,
    Sokoban,
    Sudoku,
    Queens,
    Blocksworld,
}
