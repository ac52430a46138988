//! The planning domain: Plan-Path, Sokoban, Sudoku, N Queens and Blocksworld, a planner and a tool agent.

mod agents;
mod blocksworld;
mod drawing;
mod environment;
mod game;
mod grid;
#[cfg(test)]
mod laws;
mod literal;
mod plan_path;
mod program;
mod prompts;
mod queens;
mod random;
mod rules;
mod score;
mod sokoban;
mod splits;
mod sudoku;
mod tasks;
mod text;

pub use agents::{Planner, Tool};
pub use blocksworld::Blocksworld;
pub use environment::Puzzle;
pub use plan_path::PlanPath;
pub use queens::Queens;
pub use score::Score;
pub use sokoban::Sokoban;
pub use sudoku::Sudoku;

pl_sdk::export! {
    environments: [Puzzle<PlanPath>, Puzzle<Sokoban>, Puzzle<Sudoku>, Puzzle<Queens>, Puzzle<Blocksworld>],
    agents: [Planner, Tool],
    rewards: [Score]
}
