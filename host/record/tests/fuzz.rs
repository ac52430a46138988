//! Tables of a run folder from strangers, mutated: an error or rows, never a panic.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::fs;

use pl_record::{read_transitions, write_transitions};
use pl_testing::fuzz::fuzz;
use pl_types::{Group, Key, Transition, VersionChange};

fn transition(task: u32) -> Transition {
    Transition {
        group: Group { step: 3, task, agent: 1, turn: 1, node_visit: None },
        key: Key { step: 3, task, sample: 1, node_visit: 2, agent: 1, branch: 4, call: 0 },
        task_id: format!("train-{task}"),
        agent: "tool".into(),
        policy: 0,
        turn: 1,
        prompt: vec![1, 2, 3],
        completion: vec![4; task as usize],
        logprobs: vec![-0.5; task as usize],
        support: (task > 0).then(|| vec![vec![4, 9]; task as usize]),
        temperature: 1.0,
        versions: vec![7],
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
        cut_off: false,
        final_call: true,
        next_prompt: (task > 1).then(|| vec![5]),
        values: None,
    }
}

#[test]
fn transitions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("step.parquet");
    write_transitions(&path, &[0, 1, 2].map(transition)).unwrap();
    fuzz("tables of transitions", &[fs::read(&path).unwrap()], &["PAR1"], |bytes| {
        fs::write(&path, bytes).unwrap();
        // What is read can be written.
        if let Ok(rows) = read_transitions(&path) {
            write_transitions(&path, &rows).unwrap();
        }
    });
}
