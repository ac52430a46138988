//! Filters of groups in whole runs: tasks that are replaced, and runs that are resumed.

use serde_json::Value;

use crate::support::{Workflow, metrics, resume};

/// Two samples of a letter often have the same return.
const FILTERS: [&str; 8] = [
    "alto.max_tokens=1",
    "bass.max_tokens=1",
    "train.flat_groups=drop",
    "train.max_refills=3",
    "train.samples=2",
    "train.lr_schedule=constant",
    "train.warmup=0",
    "held_out.every=2",
];

/// Sum of a metric over all policies of a line.
fn sum(line: &Value, key: &str) -> u64 {
    line["policies"].as_object().unwrap().values().map(|policy| policy[key].as_u64().unwrap()).sum()
}

#[test]
fn tasks_without_a_spread_of_returns_are_replaced() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let run = workflow.run(&[&FILTERS[..], &["train.steps=4"]].concat());
    let lines = metrics(&run, "step");
    let mut refilled = 0;
    let mut tasks = 0;
    for line in &lines {
        refilled += line["refilled_tasks"].as_u64().unwrap();
        // A tree for each task.
        tasks += line["episodes"].as_u64().unwrap() + line["lost"].as_u64().unwrap();
        assert_eq!(line["flat_groups"], 0, "{line}");
        assert!(sum(line, "dropped_flat_groups") > 0 || line["refilled_tasks"] == 0, "{line}");
    }
    assert!(refilled > 0, "no task was replaced");
    let planned = lines.len() as u64 * 2;
    assert_eq!(tasks, planned + refilled);
}

#[test]
fn a_resumed_run_replaces_the_same_tasks() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let whole = workflow.path("whole");
    workflow.try_run("whole", &[&FILTERS[..], &["train.steps=4"]].concat()).unwrap();
    let run = workflow.run(&[&FILTERS[..], &["train.steps=2"]].concat());
    resume(&run, &["train.steps=4"]).unwrap();
    for name in ["metrics.jsonl", "steps/000003.parquet", "steps/000004.parquet"] {
        let read = |root: &std::path::Path| std::fs::read(root.join(name)).unwrap();
        assert!(read(&whole) == read(&run), "{name} differs");
    }
}

#[test]
fn shares_and_outliers_are_left_out_and_counted() {
    let workflow = Workflow::new("flat-l3.mas", "");
    let filters = ["train.steps=1", "train.drop_groups=0.5", "train.drop_by=mean", "train.outliers=0.9"];
    let run = workflow.run(&filters);
    let line = metrics(&run, "step").remove(0);
    assert!(sum(&line, "dropped_groups") > 0 && sum(&line, "outliers") > 0, "{line}");
    assert!(line.get("refilled_tasks").is_none());
}
