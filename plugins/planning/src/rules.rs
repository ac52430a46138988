//! The two sets of rules, and the value of a plan by each.

use pl_sdk::prelude::*;

use crate::game::{Game, ReferenceOutcome, Values};

/// Value of an answer without a plan.
const NO_PLAN: f64 = -1.0;

/// Value of the same in the reference, for the agent that moves.
const REFERENCE_NO_PLAN: f64 = -2.0;

/// Rules of moves, rewards and success.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rules {
    /// The rules of each game: clues stay, loops don't pay, only a solved puzzle is solved.
    #[default]
    Sound,
    /// The rules of the reference's program (PettingLLMs), with its flaws. For comparison with published numbers only.
    Reference,
}

/// A puzzle that is being played.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(bound = "G: Game")]
pub struct Play<G> {
    /// The puzzle and its state.
    pub game: G,
    /// Number of moves so far, as the rules count them.
    pub steps: u32,
    /// Number of invalid moves so far.
    pub invalid: u32,
    /// True if the puzzle is solved, or was declared so by the reference's rules.
    pub solved: bool,
}

/// Worth of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Worth {
    /// Costs of the moves and the change of the state's potential.
    pub conduct: f64,
    /// Goal, bonus, or failure at the horizon.
    pub ending: f64,
    /// Number of moves, with the invalid ones.
    pub moves: u32,
    /// Place of the first invalid move in the plan, from 1 on.
    pub first_invalid: Option<u32>,
}

impl Worth {
    /// Returns the whole worth.
    pub fn total(self) -> f64 {
        self.conduct + self.ending
    }
}

impl<G: Game> Play<G> {
    /// Starts a puzzle.
    pub fn new(game: G) -> Self {
        Self { game, steps: 0, invalid: 0, solved: false }
    }

    /// Plays a plan, up to the move that solves the puzzle or is the last before the horizon. `None` stands for an answer
    /// without a plan.
    pub fn run(&mut self, plan: Option<&[G::Move]>) -> Worth {
        let Some(plan) = plan else {
            return Worth { conduct: NO_PLAN, ..Worth::default() };
        };
        // Agents side by side may act after the ending, which is paid once.
        if self.solved || self.at_horizon() {
            return Worth::default();
        }
        let Values { step, goal, bonus, fail } = G::VALUES;
        let before = self.game.potential();
        let mut worth = Worth::default();
        for next in plan {
            if self.solved || self.at_horizon() {
                break;
            }
            self.steps += 1;
            worth.moves += 1;
            if self.game.play(next) {
                worth.conduct += step;
            } else {
                worth.conduct += G::penalty(next);
                self.invalid += 1;
                worth.first_invalid = worth.first_invalid.or(Some(worth.moves));
            }
            self.solved = self.game.solved();
        }
        worth.conduct += self.game.potential() - before;
        if self.solved {
            worth.ending = goal + if self.steps <= self.game.par() { bonus } else { 0.0 };
        } else if self.at_horizon() {
            worth.ending = fail;
        }
        worth
    }

    /// Plays a plan by the reference's rules. Returns its reward.
    pub fn run_by_reference(&mut self, plan: Option<&[G::Move]>) -> f64 {
        let ReferenceOutcome { reward, done } = self.game.play_by_reference(plan, &mut self.steps);
        self.solved |= done;
        reward
    }

    /// Returns true if no move is left.
    pub fn at_horizon(&self) -> bool {
        self.steps >= self.game.horizon()
    }
}

/// Rewards that the reference gives besides those of its states.
pub mod reference {
    use super::REFERENCE_NO_PLAN;
    use crate::game::GameKind;

    /// Returns the own reward of the agent that moves. `state` is the state's reward.
    pub fn planner(state: f64, has_plan: bool) -> f64 {
        if has_plan { state } else { REFERENCE_NO_PLAN }
    }

    /// Returns the own reward of the agent that programs. `trial` is the reward of its plan on a copy of the state.
    pub fn tool(game: GameKind, trial: f64, has_plan: bool) -> f64 {
        match game {
            GameKind::PlanPath | GameKind::Sokoban if !has_plan => 0.0,
            _ => trial,
        }
    }
}
