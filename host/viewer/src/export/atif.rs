//! Episodes as trajectories of ATIF, the Agent Trajectory Interchange Format of Harbor (version 1.7).
//!
//! A trajectory has a step of source `user` for each prompt and one of source `agent` for each completion, in the order of
//! the turns; in a tree, those of the path that was taken. What the environment made of an action is the observation of
//! the agent's step. Names of agents, actions and rewards are in the fields `extra`, which the format leaves to producers.

use serde_json::{Map, Value, json};

use crate::episode::{AgentTurn, Branch, EpisodeDetails, NodeVisit};

/// Version of the format.
const SCHEMA: &str = "ATIF-v1.7";

/// Description of the producer, which every trajectory of a run has.
pub(super) struct Producer {
    /// Name of the workflow.
    pub(super) team: String,
    /// Version of pl-host.
    pub(super) version: String,
}

/// Returns the trajectory of an episode. Returns `None` if it has no prompt, or a prompt without a text.
pub(super) fn trajectory(episode: &EpisodeDetails, producer: &Producer) -> Option<Value> {
    let mut steps: Vec<Value> = Vec::new();
    let mut totals = Totals::default();
    for visit in &episode.visits {
        let branch = visit.taken();
        for prompt in &visit.prompts {
            let extra = json!({ "agent": prompt.agent, "node_visit": visit.node_visit });
            steps.push(json!({
                "step_id": steps.len() + 1, "source": "user", "message": prompt.text.as_ref()?, "extra": extra,
            }));
            totals.prompt_tokens += prompt.tokens;
            let turn = branch.and_then(|branch| turn_of(branch, &prompt.agent));
            if let (Some(branch), Some(turn)) = (branch, turn) {
                steps.push(agent_step(steps.len() + 1, visit, branch, turn, prompt.tokens));
                totals.completion_tokens += turn.tokens;
            }
        }
    }
    let agent = json!({ "name": producer.team, "version": producer.version });
    let metrics = json!({
        "total_prompt_tokens": totals.prompt_tokens, "total_completion_tokens": totals.completion_tokens,
        "total_steps": steps.len(), "extra": { "success": episode.success, "truncated": episode.truncated },
    });
    let mut extra = Map::new();
    for (key, value) in
        [("set", json!(episode.set)), ("task_id", json!(episode.task_id)), ("task", parsed(&episode.task))]
    {
        extra.insert(key.to_owned(), value);
    }
    extra.extend(episode.failure.as_ref().map(|failure| ("failure".to_owned(), json!(failure))));
    (!steps.is_empty()).then(|| {
        json!({
            "schema_version": SCHEMA, "session_id": episode.episode, "agent": agent, "steps": steps,
            "final_metrics": metrics, "extra": extra,
        })
    })
}

#[derive(Default)]
struct Totals {
    prompt_tokens: usize,
    completion_tokens: usize,
}

fn turn_of<'b>(branch: &'b Branch, agent: &str) -> Option<&'b AgentTurn> {
    branch.turns.iter().find(|turn| turn.agent == agent)
}

fn agent_step(
    id: usize,
    visit: &NodeVisit,
    branch: &Branch,
    turn: &AgentTurn,
    prompt_tokens: usize,
) -> Value {
    let reward = branch.rewards.iter().find(|reward| reward.agent == turn.agent).map(|reward| reward.reward);
    let mut step = json!({
        "step_id": id, "source": "agent", "message": turn.text,
        "metrics": { "prompt_tokens": prompt_tokens, "completion_tokens": turn.tokens },
        "extra": {
            "agent": turn.agent, "node_visit": visit.node_visit, "branch": branch.branch, "finish": turn.finish,
            "action": turn.action.as_deref().map(parsed), "reward": reward, "follow_ups": turn.follow_ups,
        },
    });
    if let (Some(outcome), Some(fields)) = (&branch.outcome, step.as_object_mut()) {
        let extra = json!({ "done": outcome.done, "truncated": outcome.truncated });
        let observation = json!({ "results": [{ "content": outcome.facts.to_string(), "extra": extra }] });
        fields.insert("observation".to_owned(), observation);
    }
    step
}

/// Returns a recorded text of JSON as a value, or as a text if it isn't JSON.
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}
