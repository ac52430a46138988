//! Metrics of a step's episodes, before its update.

use pl_rollout::RolloutBatch;
use pl_types::Transition;
use serde_json::{Map, Value, json};

use crate::evaluation::mean;

/// Returns the metrics of a step's episodes. `agents` are the names of those that have fields of their own.
///
/// `rollout_success` is the success of the episodes; in a tree, that of the chosen path, so it is not to be
/// compared with the success of an evaluation. `agents` has means over all samples, also by turn.
pub(super) fn step_metrics(batch: &RolloutBatch, agents: &[&str]) -> Map<String, Value> {
    let episodes = &batch.episodes;
    let by_agent = agents.iter().map(|agent| ((*agent).to_owned(), agent_metrics(batch, agent)));
    let mut line = Map::new();
    line.insert("episodes".into(), episodes.len().into());
    line.insert("failures".into(), batch.failures.len().into());
    line.insert("lost".into(), batch.lost.into());
    line.insert("rollout_success".into(), json!(mean(episodes.iter().map(|e| f64::from(e.success)))));
    line.insert("agents".into(), Value::Object(by_agent.collect()));
    line.insert("turns".into(), json!(mean(episodes.iter().map(|e| f64::from(e.turns)))));
    line.insert("tokens".into(), json!(episodes.iter().map(|e| e.tokens).sum::<u64>()));
    line.insert("truncated".into(), json!(mean(episodes.iter().map(|e| f64::from(e.truncated)))));
    // Episodes in which a wall clock decided something: another run may differ from here on.
    let clocked = episodes.iter().filter(|e| !e.reproducible).count()
        + batch.failures.iter().filter(|f| !f.reproducible).count();
    line.insert("not_reproducible".into(), clocked.into());
    line
}

/// Returns the means of one agent over every sample that is trained on, not only those that a tree continued from.
fn agent_metrics(batch: &RolloutBatch, agent: &str) -> Value {
    let is_turn = |t: &&Transition| t.agent == agent && t.final_call;
    let own: Vec<&Transition> = batch.transitions.iter().filter(is_turn).collect();
    let turns = own.iter().map(|t| t.turn + 1).max().unwrap_or(0);
    let by_turn: Vec<Value> = (0..turns)
        .map(|turn| means(&own.iter().copied().filter(|t| t.turn == turn).collect::<Vec<_>>()))
        .collect();
    let mut all = means(&own);
    all["by_turn"] = by_turn.into();
    all
}

/// Returns the means of some transitions: the weighted reward, its parts, success and length in tokens.
fn means(transitions: &[&Transition]) -> Value {
    let over = |value: fn(&Transition) -> f64| mean(transitions.iter().map(|t| value(t)));
    json!({
        "completions": transitions.len(),
        "rollout_success": over(|t| f64::from(t.success)),
        "reward": over(|t| t.reward),
        "team_reward": over(|t| t.team_reward),
        "local_reward": over(|t| t.local_reward),
        "length": over(|t| t.completion.len() as f64),
        "cut_off": over(|t| f64::from(t.cut_off)),
    })
}
