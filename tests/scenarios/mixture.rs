//! Several scenarios in a file: trained together by weights, evaluated apart, with levels that rise.

use std::path::Path;

use serde_json::Value;

use crate::support::{
    assert_equal_runs, metrics, pl_host, repository, run, scenario, stderr, stdout, succeed,
};

fn steps(root: &Path) -> Vec<Value> {
    metrics(root).into_iter().filter(|line| line["kind"] == "step").collect()
}

/// Numbers of a scenario in the lines of the steps; null where it had no task.
fn numbers(steps: &[Value], scenario: &str, field: &str) -> Vec<Value> {
    steps.iter().map(|line| line["scenarios"][scenario][field].clone()).collect()
}

#[test]
fn scenarios_share_steps_by_their_weights_and_have_levels_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    succeed(&mut run(&scenario("letters/mix.mas"), &out, &[]));
    let steps = steps(&out);
    // Two thirds and one third of four tasks a step; the third scenario is not trained.
    assert_eq!(numbers(&steps, "duet", "tasks"), [3, 2, 3, 3, 2, 3]);
    assert_eq!(numbers(&steps, "solo", "tasks"), [1, 2, 1, 1, 2, 1]);
    assert!(numbers(&steps, "rest", "tasks").iter().all(Value::is_null));
    // One level rises every two steps, the other after each step with a success.
    assert_eq!(numbers(&steps, "duet", "level"), [1, 1, 2, 2, 3, 3]);
    let successes = numbers(&steps, "solo", "rollout_success");
    let mut level = 1;
    for (found, success) in numbers(&steps, "solo", "level").iter().zip(successes) {
        assert_eq!(found, &Value::from(level));
        level += i32::from(success.as_f64().unwrap() >= 0.01 && level < 6);
    }
    let lines = metrics(&out);
    let at_the_end: Vec<&str> = lines
        .iter()
        .filter(|line| line["kind"] == "evaluation" && line["step"] == 6)
        .map(|line| line["name"].as_str().unwrap())
        .collect();
    assert_eq!(at_the_end, ["held_out.duet", "held_out.solo", "held_out.rest", "far"]);
    let agents = |name: &str| {
        let line = lines.iter().find(|line| line["name"] == name).unwrap();
        line["agents"].as_object().unwrap().keys().cloned().collect::<Vec<_>>()
    };
    assert_eq!(agents("held_out.duet"), ["alto", "bass"]);
    assert_eq!(agents("held_out.solo"), ["alto"]);
    // Every episode is replayed with the turns and the reward of its scenario.
    succeed(pl_host().arg("replay").arg(&out).arg("--all"));
}

#[test]
fn a_mixture_does_not_depend_on_timing() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    succeed(&mut run(&scenario("letters/mix.mas"), &a, &[]));
    succeed(&mut run(&scenario("letters/mix.mas"), &b, &["--set", "train.episodes=1"]));
    std::fs::copy(a.join("workflow.json"), b.join("workflow.json")).unwrap();
    assert_equal_runs(&a, &b, "one episode in flight");
}

#[test]
fn commands_take_the_name_of_a_scenario() {
    let file = scenario("letters/mix.mas");
    let play = |name: &str| {
        let mut command = pl_host();
        command.arg("play").arg(&file).args(["--device", "cpu", "--scenario", name]);
        command
    };
    let solo = stdout(&succeed(&mut play("solo")));
    assert!(solo.contains("alto") && !solo.contains("bass"), "{solo}");
    let unknown = play("duo").output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    assert!(stderr(&unknown).contains("--scenario duo: the workflow's scenarios are duet, solo, rest"));
    let graph = stdout(&succeed(pl_host().arg("graph").arg(&file)));
    for name in ["scenario duet", "scenario solo", "scenario rest"] {
        assert!(graph.contains(name), "{graph}");
    }
    let plan = stdout(&succeed(pl_host().arg("plan").arg(&file).args(["--device", "cpu"])));
    assert!(plan.contains("66.7 % of the tasks") && plan.contains("evaluated only"), "{plan}");
}

/// Two steps of the example, as shipped except for the lengths.
#[test]
fn the_example_trains_both_domains() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("run");
    let sets = [
        "train.steps=2",
        "train.tasks_per_step=2",
        "reason.max_tokens=24",
        "plan.max_tokens=16",
        "test.limit=2",
    ];
    let more: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    succeed(&mut run(&repository().join("examples/mix.mas"), &out, &more));
    let steps = steps(&out);
    assert_eq!(numbers(&steps, "sums", "tasks"), [1, 2]);
    assert_eq!(steps[0]["scenarios"]["maze"]["level"], 1);
}
