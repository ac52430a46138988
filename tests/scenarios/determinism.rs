//! Same seed, same run: weights, transitions and metrics bit for bit, whatever the timing, and with two CPU threads.

use std::path::Path;

use crate::support::{assert_equal_runs, content, metrics, run, scenario, succeed};

fn twice(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario(name);
    let (a, b, c) = (folder.path().join("a"), folder.path().join("b"), folder.path().join("c"));
    let train = |out: &Path, more: &[&str]| {
        succeed(run(&file, out, more).env("OMP_NUM_THREADS", "2"));
    };
    train(&a, &[]);
    train(&b, &["--set", "train.episodes=1"]);
    // The resolved workflow contains the setting itself.
    std::fs::copy(a.join("workflow.json"), b.join("workflow.json")).unwrap();
    assert_equal_runs(&a, &b, "one episode in flight");
    train(&c, &["--seed", "1"]);
    assert_ne!(content(&a)["metrics.jsonl"], content(&c)["metrics.jsonl"], "the seed has no effect");
    // The comparison means something only where weights did change.
    let lines = metrics(&a);
    let trained = lines.iter().filter(|l| l["kind"] == "step").any(|line| {
        line["policies"].as_object().unwrap().values().any(|p| p["grad_norm"].as_f64().unwrap() > 0.0)
    });
    assert!(trained, "{name} trains nothing");
}

#[test]
fn tree_with_an_adapter_per_agent() {
    twice("letters/tree-l2.mas");
}

#[test]
fn flat_with_a_model_per_agent_and_failing_steps() {
    twice("letters/flat-l3.mas");
}

#[test]
fn an_adapter_and_a_whole_model_in_sixteen_bits() {
    twice("letters/half.mas");
}

#[test]
fn agents_side_by_side_on_one_adapter() {
    twice("letters/together-l1.mas");
}
