//! Records for tests.

use pl_types::{Group, Key, Transition, VersionChange};

/// Returns a transition. The number of its task says which of its lists are empty or missing.
pub(crate) fn transition(task: u32, node_visit: Option<u32>) -> Transition {
    let key = Key { step: 3, task, sample: 1, node_visit: 2, agent: 1, branch: 4, call: 0 };
    Transition {
        group: Group { step: 3, task, agent: 1, turn: 1, node_visit },
        key,
        task_id: format!("train-{task}"),
        agent: "tool".into(),
        policy: 0,
        turn: 1,
        prompt: vec![1, 2, 3],
        completion: vec![4; task as usize],
        logprobs: vec![-0.5; task as usize],
        support: match task {
            0 => None,
            1 => Some(Vec::new()),
            _ => Some(vec![Vec::new(), vec![4, 9], Vec::new(), vec![u32::MAX]]),
        },
        temperature: 1.0,
        versions: vec![7, u64::MAX],
        version: 7,
        version_changes: vec![VersionChange { token: task, version: 8 }; task as usize],
        team_reward: 1.0,
        local_reward: 0.5,
        reward: 1.5,
        success: true,
        chosen: false,
        action: r#"{"answer":"4"}"#.into(),
        state: "ab".into(),
        max_tokens: 256,
        cut_off: task == 1,
        final_call: task != 1,
        next_prompt: [None, Some(Vec::new()), Some(vec![5, u32::MAX])][task as usize % 3].clone(),
        values: [Some(Vec::new()), None, Some(vec![0.25, f32::MIN])][task as usize % 3].clone(),
    }
}
