//! Metrics of a step's episodes, before its update.

use std::collections::BTreeMap;

use pl_rollout::RolloutBatch;
use pl_types::{Key, Transition};
use serde_json::{Map, Value, json};

use crate::evaluation::mean_of;

/// Returns the metrics of a step's episodes. `agents` are the names of those that have fields of their own.
///
/// `rollout_success` is the success of the episodes; in a tree, that of the chosen path, so it is not to be
/// compared with the success of an evaluation. `agents` has means over all samples, also by turn. Means of nothing are null.
pub(super) fn step_metrics(batch: &RolloutBatch, agents: &[&str]) -> Map<String, Value> {
    let episodes = &batch.episodes;
    let transitions = batch.transitions.as_slice();
    let by_agent = agents.iter().map(|agent| ((*agent).to_owned(), agent_metrics(transitions, agent)));
    let mut line = Map::new();
    line.insert("episodes".into(), episodes.len().into());
    line.insert("failures".into(), batch.failures.len().into());
    line.insert("lost".into(), batch.lost.into());
    line.insert("rollout_success".into(), json!(mean_of(episodes.iter().map(|e| f64::from(e.success)))));
    line.insert("agents".into(), Value::Object(by_agent.collect()));
    line.insert("turns".into(), json!(mean_of(episodes.iter().map(|e| f64::from(e.turns)))));
    line.insert("tokens".into(), json!(episodes.iter().map(|e| e.tokens).sum::<u64>()));
    line.insert("truncated".into(), json!(mean_of(episodes.iter().map(|e| f64::from(e.truncated)))));
    // Episodes in which a wall clock decided something: another run may differ from here on.
    let clocked = episodes.iter().filter(|e| !e.reproducible).count()
        + batch.failures.iter().filter(|f| !f.reproducible).count();
    line.insert("not_reproducible".into(), clocked.into());
    line
}

/// A turn of an agent.
#[derive(Clone, Copy)]
struct Turn<'t> {
    /// Its last completion, which stands for it.
    last: &'t Transition,
    /// Number of tokens of all of its completions.
    tokens: usize,
}

/// Returns the means of one agent over every sample that is trained on, not only those that a tree continued from.
fn agent_metrics(transitions: &[Transition], agent: &str) -> Value {
    let calls = || transitions.iter().filter(|t| t.agent == agent);
    let turn_key = |t: &Transition| Key { call: 0, ..t.key.clone() };
    let mut tokens: BTreeMap<Key, usize> = BTreeMap::new();
    for call in calls() {
        *tokens.entry(turn_key(call)).or_default() += call.completion.len();
    }
    let turn = |last| Turn { last, tokens: tokens.get(&turn_key(last)).copied().unwrap_or_default() };
    let own: Vec<Turn<'_>> = calls().filter(|t| t.final_call).map(turn).collect();
    let turns = own.iter().map(|own| own.last.turn + 1).max().unwrap_or(0);
    let by_turn: Vec<Value> = (0..turns)
        .map(|turn| means(&own.iter().copied().filter(|own| own.last.turn == turn).collect::<Vec<_>>()))
        .collect();
    let mut all = means(&own);
    all["by_turn"] = by_turn.into();
    all
}

/// Returns the means of some turns: the weighted reward, its parts, success and length in tokens; null without any turn.
fn means(turns: &[Turn<'_>]) -> Value {
    let over = |value: fn(&Transition) -> f64| mean_of(turns.iter().map(|turn| value(turn.last)));
    json!({
        "completions": turns.len(),
        "rollout_success": over(|t| f64::from(t.success)),
        "reward": over(|t| t.reward),
        "team_reward": over(|t| t.team_reward),
        "local_reward": over(|t| t.local_reward),
        "length": mean_of(turns.iter().map(|turn| turn.tokens as f64)),
        "cut_off": over(|t| f64::from(t.cut_off)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_transitions::call;

    /// Also for a turn between others that only other agents have, and for a step in which no episode was played.
    #[test]
    fn what_an_agent_without_a_turn_would_have_is_null() {
        let calls = [call(0, 0, true, 5), call(2, 0, true, 3)];
        let (batch, names) =
            (RolloutBatch { transitions: calls.to_vec(), ..RolloutBatch::default() }, ["tool", "reason"]);
        let line = step_metrics(&batch, &names);
        let null = ["rollout_success", "reward", "team_reward", "local_reward", "length", "cut_off"];
        for own in [&line["agents"]["reason"], &line["agents"]["tool"]["by_turn"][1]] {
            assert_eq!(own["completions"], 0, "{own}");
            assert!(null.iter().all(|field| own[*field].is_null()), "{own}");
        }
        assert!(null.iter().all(|field| line["agents"]["tool"][*field].is_number()), "{line:?}");
        assert!(
            ["rollout_success", "turns", "truncated"].iter().all(|field| line[*field].is_null()),
            "{line:?}"
        );
    }

    #[test]
    fn the_length_of_a_turn_has_the_tokens_of_all_its_calls() {
        let calls = [call(0, 0, false, 5), call(0, 1, true, 2), call(1, 0, true, 3)];
        let metrics = agent_metrics(&calls, "tool");
        assert_eq!((&metrics["completions"], &metrics["length"]), (&json!(2), &json!(5.0)));
        let by_turn: Vec<&Value> = (0..2usize).map(|turn| &metrics["by_turn"][turn]["length"]).collect();
        assert_eq!(by_turn, [&json!(7.0), &json!(3.0)]);
        assert_eq!(metrics["reward"], 1.0);
    }
}
