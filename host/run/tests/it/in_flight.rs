//! Weights that take over while episodes play, and the repetition of such runs.

use std::path::Path;

use pl_record::versions::read_versions;
use pl_run::RunEnding;
use pl_types::Transition;

use crate::schedule::{assert_same_results, try_with_delays};
use crate::support::{Workflow, metrics, resume};

/// Long completions, so that updates come while they are sampled.
const IN_FLIGHT: [&str; 8] = [
    "train.schedule=async",
    "train.staleness=2",
    "train.steps=6",
    "train.episodes=2",
    "train.checkpoint_every=3",
    "held_out.every=3",
    "alto.max_tokens=90",
    "bass.max_tokens=90",
];

fn transitions(run: &Path) -> Vec<(u64, Transition)> {
    let read = |step: u64| {
        let path = run.join(format!("steps/{step:06}.parquet"));
        pl_record::read_transitions(&path).unwrap().into_iter().map(move |own| (step, own))
    };
    (1..=6).flat_map(read).collect()
}

/// Checks the bound of the staleness, that siblings begin alike, and that all versions are recorded. Returns the number of
/// changes within completions.
fn assert_versions(run: &Path, staleness: u64) -> usize {
    let mut all = transitions(run);
    // The second policy may be frozen.
    all.retain(|(_, own)| own.policy == 0);
    let mut changes = 0;
    for (step, own) in &all {
        let spans = own.version_spans();
        assert!(spans.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 > 0), "{spans:?}");
        assert!(spans.iter().all(|(version, _)| *version < *step && step - 1 - version <= staleness));
        let start = own.versions[own.policy as usize];
        assert!(start <= own.version && start + 1 + staleness >= own.key.step);
        changes += own.version_changes.len();
    }
    for (_, own) in &all {
        let sibling = all.iter().find(|(_, other)| other.group == own.group && other.prompt == own.prompt);
        if own.state.is_empty() {
            continue;
        }
        assert_eq!(sibling.unwrap().1.version, own.version, "siblings begin with one version");
    }
    let recorded = read_versions(run).unwrap().unwrap();
    let count: usize = recorded.iter().map(|line| line.completions.len()).sum();
    assert!(count >= all.len(), "{count} of {}", all.len());
    // The shares of the tokens by their age, and those of mixed completions, are in the metrics.
    let mixed =
        |line: &serde_json::Value| line["policies"]["first"]["mixed_versions"].as_f64().unwrap() > 0.0;
    assert_eq!(metrics(run, "step").iter().any(mixed), changes > 0);
    changes
}

/// Rollouts that take longer than updates: the second policy is frozen and writes most of the tokens.
const LONG_ROLLOUTS: [&str; 9] = [
    "train.checkpoint_every=6",
    "held_out.every=6",
    "train.tasks_per_step=6",
    "train.episodes=4",
    "train.epochs=1",
    "train.mini_batches=1",
    "turns.max=1",
    "alto.max_tokens=150",
    "bass.max_tokens=900",
];

#[test]
fn weights_take_over_and_the_run_can_be_repeated() {
    let cases: [(&str, &[&str], &str); 3] = [
        (
            "tree-l2.mas",
            &["train.in_flight=recompute", "second.train=false"],
            "first/adapter_model.safetensors",
        ),
        // Whole models, which are replaced while episodes of several steps play.
        ("flat-l3.mas", &["train.in_flight=keep", "second.train=false"], "first/model.safetensors"),
        ("flat-l3.mas", &["train.in_flight=recompute", "train.order=arrival", "train.staleness=3"], ""),
    ];
    for (scenario, more, policies) in cases {
        let workflow = Workflow::new(scenario, "");
        let overrides = [&IN_FLIGHT[..], &LONG_ROLLOUTS, more].concat();
        let staleness = if more.contains(&"train.staleness=3") { 3 } else { 2 };
        let run = |name: &str, delays, repeated| {
            let ended = try_with_delays(&workflow, name, &overrides, delays, None, repeated).unwrap();
            assert_eq!(ended, RunEnding::Done);
        };
        // When an update ends depends on the machine: the first run in which one ends within a completion is repeated.
        let taken_over = |attempt: &u64| {
            let name = format!("attempt {attempt}");
            run(&name, 3 + attempt, None);
            assert_versions(&workflow.path(&name), staleness) > 0
        };
        let attempt = (0..20).find(taken_over).unwrap_or_else(|| panic!("{scenario} {more:?}"));
        let first = format!("attempt {attempt}");
        run("again", 77, Some(&first));
        assert_same_results(&workflow.path(&first), &workflow.path("again"), policies);
        let recorded = |name: &str| {
            let lines = read_versions(&workflow.path(name)).unwrap().unwrap();
            let mut all: Vec<_> = lines.into_iter().flat_map(|line| line.completions).collect();
            all.sort_by_key(|own| own.seed);
            all
        };
        assert_eq!(recorded(&first), recorded("again"));
    }
}

#[test]
fn a_stopped_and_a_killed_run_in_flight_go_on_and_can_be_repeated() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let overrides = [&IN_FLIGHT[..], &["train.in_flight=keep"]].concat();
    let ending = try_with_delays(&workflow, "stopped", &overrides, 5, Some(1), None).unwrap();
    assert_eq!(ending, RunEnding::Interrupted);
    let stopped = workflow.path("stopped");
    assert_eq!(resume(&stopped, &[]).unwrap(), RunEnding::Done);
    assert_versions(&stopped, 2);
    // As after a kill between the checkpoints of steps 3 and 6.
    std::fs::remove_dir_all(stopped.join("checkpoints/step-00000006")).unwrap();
    assert_eq!(resume(&stopped, &[]).unwrap(), RunEnding::Done);
    assert_versions(&stopped, 2);
    let ending = try_with_delays(&workflow, "again", &overrides, 9, None, Some("stopped")).unwrap();
    assert_eq!(ending, RunEnding::Done);
    assert_same_results(&stopped, &workflow.path("again"), "first/adapter_model.safetensors");
}

#[test]
fn a_run_repeats_only_a_schedule_that_fits() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let overrides = [&IN_FLIGHT[..], &["train.in_flight=keep", "train.steps=2", "held_out.every=0"]].concat();
    try_with_delays(&workflow, "first", &overrides, 1, None, None).unwrap();
    let refused = |more: &[&str], run: &str| {
        let overrides = [&overrides[..], more].concat();
        try_with_delays(&workflow, "other", &overrides, 1, None, Some(run)).unwrap_err().to_string()
    };
    let text = refused(&["train.staleness=1", "train.episodes=4"], "first");
    assert!(text.contains("it has other `staleness`, `episodes` than this run"), "{text}");
    let text = refused(&["train.in_flight=off"], "first");
    assert!(text.contains("only a run with `order = arrival` or `in_flight`"), "{text}");
    workflow.try_run("pinned", &[&overrides[..], &["train.in_flight=off"]].concat()).unwrap();
    assert!(read_versions(&workflow.path("pinned")).unwrap().is_none());
    assert!(refused(&[], "pinned").contains("it has other `in_flight`"));
    std::fs::remove_file(workflow.path("first").join("versions.jsonl")).unwrap();
    assert!(refused(&[], "first").contains("it has no versions.jsonl"));
    assert!(!workflow.path("other").exists());
}
