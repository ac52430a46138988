//! Attempts at episodes as lines of a table.

use pl_record::{EpisodeSummaries, EpisodeSummary};
use serde::Serialize;

use crate::reward_weights::{RewardWeights, ScenarioWeights};

/// Attempt at an episode, as a line of a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EpisodeRow {
    task: u32,
    sample: u32,
    attempt: u32,
    task_id: Box<str>,
    /// `None` in workflows without scenarios.
    scenario: Option<Box<str>>,
    tree: bool,
    success: bool,
    truncated: bool,
    turns: u32,
    tokens: u64,
    /// Mean reward over all samples. `None` if nothing was scored.
    reward: Option<f32>,
    /// First line of the failure.
    failure: Option<Box<str>>,
    /// Number of failed candidates of a tree.
    failed_candidates: u32,
    agents: Vec<AgentRow>,
}

/// Part of an agent in an attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct AgentRow {
    name: Box<str>,
    /// Number of completions.
    completions: u32,
    tokens: u32,
    /// Mean reward of the completions.
    reward: Option<f32>,
}

impl EpisodeRow {
    /// Returns the line of a row.
    pub(crate) fn new(all: &EpisodeSummaries, row: &EpisodeSummary, weights: &ScenarioWeights) -> EpisodeRow {
        let (row, weights) = (row.clone(), weights_of(all, row, weights));
        EpisodeRow {
            reward: reward(&row, None, weights),
            agents: row
                .agents
                .iter()
                .map(|agent| AgentRow {
                    name: all.name(agent.name).into(),
                    completions: agent.completions,
                    tokens: agent.tokens,
                    reward: reward(&row, Some(agent.name), weights),
                })
                .collect(),
            task: row.key.task,
            sample: row.key.sample,
            attempt: row.key.attempt,
            task_id: row.task_id,
            scenario: row.scenario.map(|name| all.name(name).into()),
            tree: row.tree,
            success: row.success,
            truncated: row.truncated,
            turns: row.turns,
            tokens: row.tokens,
            failure: row.failure,
            failed_candidates: row.failed_candidates,
        }
    }
}

/// Returns the weights of a row's scenario.
pub(crate) fn weights_of(
    all: &EpisodeSummaries,
    row: &EpisodeSummary,
    weights: &ScenarioWeights,
) -> RewardWeights {
    weights.for_scenario(row.scenario.map(|name| all.name(name)))
}

/// Returns the mean reward of an agent, given by its name's position, or of all. Returns `None` if nothing was scored.
pub(crate) fn reward(row: &EpisodeSummary, agent: Option<u32>, weights: RewardWeights) -> Option<f32> {
    let wanted = row.agents.iter().filter(|part| agent.is_none_or(|agent| part.name == agent));
    let (sum, scored) = wanted.fold((0.0, 0), |(sum, scored), part| {
        let reward = weights.team * f64::from(part.team) + weights.local * f64::from(part.local);
        (sum + reward, scored + part.scored)
    });
    (scored > 0).then(|| (sum / f64::from(scored)) as f32)
}
