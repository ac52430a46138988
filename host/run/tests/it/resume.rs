//! Resumed runs: longer ones, changed inputs, settings that can't change.

use std::path::Path;

use pl_run::{Error, RunEnding};

use crate::support::{Workflow, metrics, resume};

#[test]
fn a_prolonged_run_ends_as_one_that_was_started_longer() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let common = ["train.lr_schedule=constant", "train.warmup=0", "held_out.every=2"];
    let long = workflow.path("long");
    workflow.try_run("long", &[&common[..], &["train.steps=4"]].concat()).unwrap();
    let run = workflow.run(&[&common[..], &["train.steps=2"]].concat());
    assert_eq!(resume(&run, &["train.steps=4", "train.checkpoint_every=3"]).unwrap(), RunEnding::Done);
    let read = |root: &Path, name: &str| std::fs::read(root.join(name)).unwrap();
    let tokens = ["tokens/000003.parquet", "tokens/000004.parquet"];
    for name in ["metrics.jsonl", "steps/000003.parquet", "steps/000004.parquet"].iter().chain(&tokens) {
        assert!(read(&long, name) == read(&run, name), "{name} differs");
    }
    let weights = "checkpoints/step-00000004/policies/first/adapter_model.safetensors";
    assert!(read(&long, weights) == read(&run, weights), "the weights differ");
    // The change is stored: another resume has nothing left to do.
    assert_eq!(resume(&run, &[]).unwrap(), RunEnding::Done);
    assert_eq!(metrics(&run, "step").len(), 4);
}

#[test]
fn settings_that_steps_depend_on_are_refused() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let run = workflow.run(&["train.steps=2"]);
    let before = std::fs::read(run.join("workflow.json")).unwrap();
    let error = resume(&run, &["train.steps=4", "train.learning_rate=0.5"]).unwrap_err();
    assert!(matches!(error, Error::FixedSettings { .. }) && error.is_input());
    let message = error.to_string();
    assert!(
        message.contains("train.learning_rate: the run was started with 0.01, now it is 0.5"),
        "{message}"
    );
    assert!(resume(&run, &["train.steps=1"]).unwrap_err().to_string().contains("2 steps are finished"));
    assert!(matches!(resume(&run, &["train.no_such=1"]).unwrap_err(), Error::Workflow(_)));
    assert_eq!(before, std::fs::read(run.join("workflow.json")).unwrap());
}

#[test]
fn a_changed_task_file_is_named_once_for_all_that_read_it() {
    let more = "\nevaluate one { tasks = \"tasks.jsonl\" }\nevaluate two { tasks = \"tasks.jsonl\" }\n";
    let workflow = Workflow::new("tree-l2.mas", more);
    let file = workflow.path("tasks.jsonl");
    std::fs::write(&file, "{\"topic\":\"sea\"}\n").unwrap();
    let run = workflow.run(&["train.steps=1"]);
    std::fs::write(&file, "{\"topic\":\"sky\"}\n").unwrap();
    let error = resume(&run, &["train.steps=2"]).unwrap_err();
    assert!(matches!(&error, Error::Changed { differences, .. } if differences.len() == 1), "{error}");
    let message = error.to_string();
    assert!(message.contains("data one, two: ") && message.contains("tasks.jsonl has changed"), "{message}");
    assert!(message.ends_with("hint: restore what the run began with, or begin a new run"), "{message}");
}

#[test]
fn scores_of_a_changed_evaluation_start_anew() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let run = workflow.run(&["train.steps=2", "held_out.every=1", "train.keep_checkpoints=1"]);
    let best = || std::fs::read_link(run.join("checkpoints/best")).unwrap();
    let before = best();
    resume(&run, &["train.steps=3", "held_out.limit=1"]).unwrap();
    // Step 3 is the only checkpoint that the changed evaluation has scored.
    assert_eq!(best().to_str().unwrap(), "step-00000003");
    // Nothing shows that it is better than the best by the evaluation as it was.
    assert!(run.join("checkpoints").join(before).is_dir());
}

/// Trains an adapter, and returns a workflow whose policies start from copies of it.
fn started_from_adapters(frozen: bool) -> Workflow {
    let source = Workflow::new("tree-l2.mas", "");
    let run = source.run(&["train.steps=1"]);
    let workflow = Workflow::new("tree-l2.mas", "");
    let policies = run.join("checkpoints/step-00000001/policies");
    for (from, to) in [("first", "start-first"), ("second", "start-second")] {
        copy(&policies.join(from), &workflow.path(to));
    }
    let text = std::fs::read_to_string(&workflow.file).unwrap();
    let train = if frozen { "train = false; " } else { "" };
    let text = text
        .replace("policy first  { ", "policy first  { from = \"./start-first\"; ")
        .replace("policy second { ", &format!("policy second {{ {train}from = \"./start-second\"; "));
    std::fs::write(&workflow.file, text).unwrap();
    workflow
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

#[test]
fn a_changed_start_of_a_frozen_policy_is_refused() {
    let workflow = started_from_adapters(true);
    let run = workflow.run(&["train.steps=1"]);
    let weights = workflow.path("start-second/adapter_model.safetensors");
    let mut bytes = std::fs::read(&weights).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&weights, &bytes).unwrap();
    let error = resume(&run, &["train.steps=2"]).unwrap_err();
    assert!(matches!(error, Error::Changed { .. }), "{error}");
    assert!(error.to_string().contains("`from` of policy second"), "{error}");
}

#[test]
fn a_trained_policy_does_not_need_its_start_after_a_checkpoint() {
    let workflow = started_from_adapters(false);
    let run = workflow.run(&["train.steps=1"]);
    std::fs::remove_dir_all(workflow.path("start-first")).unwrap();
    std::fs::remove_dir_all(workflow.path("start-second")).unwrap();
    assert_eq!(resume(&run, &["train.steps=2"]).unwrap(), RunEnding::Done);
    assert_eq!(metrics(&run, "step").len(), 2);
}

#[test]
fn a_start_that_is_the_reference_policy_is_needed_after_a_checkpoint() {
    let workflow = started_from_adapters(false);
    let run = workflow.run(&["train.steps=1", "train.kl=0.1"]);
    assert_eq!(resume(&run, &["train.steps=2"]).unwrap(), RunEnding::Done);
    std::fs::remove_dir_all(workflow.path("start-first")).unwrap();
    let error = resume(&run, &["train.steps=3"]).unwrap_err();
    assert!(error.to_string().contains("start-first"), "{error}");
}

#[test]
fn a_changed_start_of_a_trained_policy_is_refused() {
    let workflow = started_from_adapters(false);
    let run = workflow.run(&["train.steps=1"]);
    std::fs::write(workflow.path("start-first/notes.txt"), "another adapter").unwrap();
    let error = resume(&run, &["train.steps=2"]).unwrap_err();
    assert!(error.to_string().contains("`from` of policy first"), "{error}");
}
