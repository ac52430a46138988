//! Episodes as trajectories of ATIF, the Agent Trajectory Interchange Format of Harbor (version 1.7).
//!
//! A trajectory has a step of source `user` for the prompt of each turn and one of source `agent` for each completion, in
//! the order of the turns; in a tree, those of the path that was taken. Results of tools are observations of the step
//! whose completion called them, and what the environment made of an action is one of the turn's last step, which also
//! has the action and the reward. Names of agents, actions and rewards are in the fields `extra`, which the format leaves
//! to producers.

use serde_json::{Map, Value, json};

use crate::episode::{AgentTurn, Branch, EpisodeDetails, ModelCall, NodeVisit};

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
            let turn = branch.and_then(|branch| turn_of(branch, &prompt.agent));
            let (Some(branch), Some(turn)) = (branch, turn) else { continue };
            for call in turn.calls(Some(prompt)) {
                steps.push(agent_step(steps.len() + 1, visit, branch, turn, &call));
                totals.prompt_tokens += call.prompt_tokens;
                totals.completion_tokens += call.tokens;
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
    extra.extend(episode.cause().map(|failure| ("failure".to_owned(), json!(failure))));
    (!steps.is_empty()).then(|| {
        json!({
            "schema_version": SCHEMA, "session_id": episode.episode, "agent": agent, "steps": steps,
            "final_metrics": metrics, "extra": extra,
        })
    })
}

/// Sums over the steps of agents.
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
    call: &ModelCall<'_>,
) -> Value {
    let reward = branch.rewards.iter().find(|reward| call.is_last && reward.agent == turn.agent);
    let action = turn.action.as_deref().filter(|_| call.is_last);
    let mut step = json!({
        "step_id": id, "source": "agent", "message": call.text,
        "metrics": { "prompt_tokens": call.prompt_tokens, "completion_tokens": call.tokens },
        "extra": {
            "agent": turn.agent, "node_visit": visit.node_visit, "branch": branch.branch, "call": call.index,
            "finish": call.finish, "action": action.map(parsed), "reward": reward.map(|reward| reward.reward),
        },
    });
    let mut results: Vec<Value> =
        call.tool_results.iter().map(|result| json!({ "content": result })).collect();
    let outcome = branch.outcome.as_ref().filter(|_| call.is_last);
    results.extend(outcome.map(|outcome| {
        let extra = json!({ "done": outcome.done, "truncated": outcome.truncated });
        json!({ "content": outcome.facts.to_string(), "extra": extra })
    }));
    if let (false, Some(fields)) = (results.is_empty(), step.as_object_mut()) {
        fields.insert("observation".to_owned(), json!({ "results": results }));
    }
    step
}

/// Returns a recorded text of JSON as a value, or as a text if it isn't JSON.
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}
