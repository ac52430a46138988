//! Checkpoints that are kept because an evaluation scored them best.

use std::path::Path;

use serde_json::Value;

use crate::support::{Workflow, checkpoints, metrics};

fn manifest(run: &Path, step: u64) -> Value {
    let path = run.join(format!("checkpoints/step-{step:08}/checkpoint.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn only_the_first_written_evaluation_scores_checkpoints() {
    // The second evaluation is due more often and takes other tasks.
    let workflow = Workflow::new("tree-l2.mas", "\nevaluate other { every = 1; limit = 2; samples = 1 }\n");
    let overrides =
        ["train.steps=4", "train.checkpoint_every=1", "held_out.every=2", "train.keep_checkpoints=9"];
    let run = workflow.run(&overrides);
    assert_eq!(checkpoints(&run), [1, 2, 3, 4]);
    for step in 1..=4 {
        let lines = metrics(&run, "evaluation");
        let own = lines.iter().find(|line| line["step"] == step && line["name"] == "held_out");
        let expected = own.map_or(Value::Null, |line| line["success"].clone());
        assert_eq!(manifest(&run, step)["score"], expected, "step {step}");
        assert_eq!(own.is_some(), step % 2 == 0);
    }
}

#[test]
fn a_better_score_saves_a_checkpoint_and_is_marked() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let overrides =
        ["train.steps=6", "train.checkpoint_every=100", "held_out.every=1", "train.keep_checkpoints=1"];
    let run = workflow.run(&overrides);
    let scores: Vec<(u64, f64)> = metrics(&run, "evaluation")
        .iter()
        .map(|line| (line["step"].as_u64().unwrap(), line["success"].as_f64().unwrap()))
        .filter(|(step, _)| *step > 0)
        .collect();
    let best = scores.iter().copied().reduce(|best, next| if next.1 > best.1 { next } else { best }).unwrap();
    let mut expected = vec![best.0, 6];
    expected.dedup();
    assert_eq!(checkpoints(&run), expected, "{scores:?}");
    let link = std::fs::read_link(run.join("checkpoints/best")).unwrap();
    assert_eq!(link.to_str().unwrap(), format!("step-{:08}", best.0));
    assert!(run.join("checkpoints/best/policies/first/adapter_config.json").is_file());
}
