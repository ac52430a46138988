//! Attempts at episodes as lines of a table.

use std::sync::Arc;

use serde::Serialize;

use crate::event::{Counts, Kind, Mode, RewardWeights, TraceRecord};

/// Largest number of agents of a row.
const MOST_AGENTS: usize = 64;

/// Longest text that an index keeps, in characters.
const LONGEST_TEXT: usize = 200;

/// Attempt at an episode, as a line of a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EpisodeRow {
    /// Position in the trace file, from 0.
    #[serde(skip)]
    pub(crate) position: u32,
    pub(crate) task: u32,
    pub(crate) sample: u32,
    pub(crate) attempt: u32,
    pub(crate) task_id: Box<str>,
    pub(crate) tree: bool,
    pub(crate) success: bool,
    pub(crate) truncated: bool,
    pub(crate) turns: u32,
    pub(crate) tokens: u64,
    /// Mean reward over all samples. `None` if nothing was scored.
    pub(crate) reward: Option<f32>,
    /// First line of the failure.
    pub(crate) failure: Option<Box<str>>,
    /// Number of failed candidates of a tree.
    pub(crate) failed_candidates: u32,
    pub(crate) agents: Box<[AgentRow]>,
}

/// Part of an agent in an attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct AgentRow {
    pub(crate) name: Arc<str>,
    /// Number of completions.
    pub(crate) completions: u32,
    pub(crate) tokens: u64,
    /// Mean reward of the completions.
    pub(crate) reward: Option<f32>,
}

/// Sums of one agent.
#[derive(Default)]
struct AgentSums {
    completions: u32,
    tokens: u64,
    rewards: f64,
    scored: u32,
}

/// Summarises an attempt. `names` has the agents' names of earlier rows.
pub(crate) fn row(
    position: u32,
    trace: &TraceRecord<Counts>,
    weights: RewardWeights,
    names: &mut Vec<Arc<str>>,
) -> EpisodeRow {
    let mut sums: Vec<(Arc<str>, AgentSums)> = Vec::new();
    // Agents whose completions are not scored yet.
    let mut acting: Vec<usize> = Vec::new();
    let mut failed_candidates = 0;
    for event in &trace.events {
        match (&event.kind, &event.position.agent) {
            (Kind::Completion(completion), Some(agent)) => {
                let index = match sums.iter().position(|(name, _)| **name == **agent) {
                    Some(index) => index,
                    None if sums.len() == MOST_AGENTS => continue,
                    None => {
                        sums.push((shared(names, agent), AgentSums::default()));
                        sums.len() - 1
                    }
                };
                if let Some((_, sums)) = sums.get_mut(index) {
                    sums.completions += 1;
                    sums.tokens += completion.tokens.0 as u64;
                }
                acting.push(index);
            }
            (Kind::Scores(scores), _) => {
                acting.sort_unstable();
                acting.dedup();
                for index in acting.drain(..) {
                    if let Some((name, sums)) = sums.get_mut(index) {
                        sums.rewards += weights.reward(scores, name);
                        sums.scored += 1;
                    }
                }
            }
            (Kind::Fault(_), _) => {
                failed_candidates += u32::from(event.position.candidate.is_some());
                acting.clear();
            }
            _ => {}
        }
    }
    let mean = |rewards: f64, scored: u32| (scored > 0).then(|| (rewards / f64::from(scored)) as f32);
    let all = sums.iter().fold((0.0, 0), |(r, n), (_, sums)| (r + sums.rewards, n + sums.scored));
    let end = &trace.end;
    let first_line = |text: &String| -> Box<str> {
        text.lines().next().unwrap_or_default().chars().take(LONGEST_TEXT).collect::<String>().into()
    };
    EpisodeRow {
        position,
        task: trace.key.task,
        sample: trace.key.sample,
        attempt: trace.key.attempt,
        task_id: first_line(&trace.task.id),
        tree: trace.mode == Mode::Tree,
        success: end.success,
        truncated: end.truncated,
        turns: end.turns,
        tokens: end.tokens,
        reward: mean(all.0, all.1),
        failure: end.failure.as_ref().map(first_line),
        failed_candidates,
        agents: sums
            .into_iter()
            .map(|(name, sums)| AgentRow {
                name,
                completions: sums.completions,
                tokens: sums.tokens,
                reward: mean(sums.rewards, sums.scored),
            })
            .collect(),
    }
}

/// Returns one copy of a name for all rows.
fn shared(names: &mut Vec<Arc<str>>, name: &str) -> Arc<str> {
    if let Some(known) = names.iter().find(|known| ***known == *name) {
        return Arc::clone(known);
    }
    let new: Arc<str> = name.into();
    names.push(Arc::clone(&new));
    new
}
