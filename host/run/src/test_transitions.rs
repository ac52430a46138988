//! Transitions for unit tests.

use pl_types::{Group, Key, Transition};

/// Returns a model call of agent `tool` in a turn of an episode, with a reward of 1.
pub(crate) fn call(turn: u32, call: u32, final_call: bool, tokens: usize) -> Transition {
    Transition {
        key: Key { step: 1, task: 0, sample: 0, node_visit: turn, agent: 0, branch: 0, call },
        group: Group { step: 1, task: 0, agent: 0, turn, node_visit: None },
        task_id: "t".to_owned(),
        agent: "tool".to_owned(),
        policy: 0,
        turn,
        prompt: vec![1],
        completion: vec![2; tokens],
        logprobs: vec![-0.5; tokens],
        support: None,
        temperature: 1.0,
        max_tokens: 8,
        cut_off: false,
        final_call,
        versions: vec![0],
        version: 0,
        version_changes: Vec::new(),
        team_reward: 1.0,
        local_reward: 0.0,
        reward: 1.0,
        success: true,
        chosen: true,
        action: "null".to_owned(),
        state: String::new(),
        next_prompt: None,
        values: None,
    }
}
