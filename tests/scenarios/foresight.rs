//! The plan of a workflow against its run, and the drawings of `graph`.

use std::path::Path;

use serde_json::Value;

use crate::support::{metrics, pl_host, repository, run, scenario, stderr, stdout, succeed};

fn plan(file: &Path) -> Value {
    let output = succeed(pl_host().arg("plan").arg(file).args(["--json", "--device", "cpu"]));
    serde_json::from_str(&stdout(&output)).unwrap()
}

/// Runs a workflow and checks every step and every evaluation against its plan. Returns the plan and the metric lines
/// of the steps.
fn run_within_plan(name: &str) -> (Value, Vec<Value>) {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (scenario(name), folder.path().join("run"));
    let plan = plan(&file);
    succeed(&mut run(&file, &out, &[]));
    let lines = metrics(&out);
    let lines_of = |kind: &str| lines.iter().filter(|line| line["kind"] == kind).cloned().collect::<Vec<_>>();
    let training = &plan["training"];
    let steps = lines_of("step");
    assert_eq!(steps.len() as u64, training["steps"].as_u64().unwrap(), "{name}");
    let within = |line: &Value, key: &str, most: &Value| {
        assert!(line[key].as_u64().unwrap() <= most.as_u64().unwrap(), "{name}: {key} above {most}: {line}");
    };
    for line in &steps {
        let step = &training["step"];
        within(line, "transitions", &step["completions"]);
        within(line, "groups", &step["groups"]);
        let played = line["episodes"].as_u64().unwrap() + line["lost"].as_u64().unwrap();
        assert_eq!(played, step["episodes"].as_u64().unwrap(), "{name}");
        // Failed attempts sample tokens too.
        if line["failures"] == 0 {
            within(line, "tokens", &step["tokens"]);
        }
        for (_, policy) in line["policies"].as_object().unwrap() {
            within(policy, "optimizer_steps", &step["optimizer_steps"]);
        }
    }
    for evaluation in plan["evaluations"].as_array().unwrap() {
        let rounds: Vec<Value> = lines_of("evaluation")
            .into_iter()
            .filter(|line| line["name"] == evaluation["tasks"]["name"])
            .collect();
        assert_eq!(rounds.len() as u64, evaluation["rounds"].as_u64().unwrap(), "{name}");
        for line in rounds {
            let played = line["episodes"].as_u64().unwrap() + line["lost"].as_u64().unwrap();
            assert_eq!(played, evaluation["round"]["episodes"].as_u64().unwrap(), "{name}");
        }
    }
    let (count, bytes) = size(&out.join("checkpoints"));
    let checkpoints = &training["checkpoints"];
    assert!(count <= checkpoints["kept"].as_u64().unwrap(), "{name}: {count} checkpoints");
    let each = checkpoints["bytes_each"].as_u64().unwrap();
    // Plus names, shapes, configurations and tokenizers.
    assert!(
        (each..each + (256 << 10)).contains(&(bytes / count)),
        "{name}: {bytes} bytes in {count} checkpoints"
    );
    (plan, steps)
}

/// Returns the number of entries of a folder and the bytes of all files below it.
fn size(folder: &Path) -> (u64, u64) {
    let mut count = 0;
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()) {
        let metadata = entry.metadata().unwrap();
        // The link to the best checkpoint.
        if metadata.is_symlink() {
            continue;
        }
        count += 1;
        bytes += if metadata.is_dir() { size(&entry.path()).1 } else { metadata.len() };
    }
    (count, bytes)
}

#[test]
fn a_run_stays_within_its_plan() {
    let (plan, steps) = run_within_plan("letters/tree-l2.mas");
    // No episode ends early here, so some step reaches the bounds.
    let most = &plan["training"]["step"];
    assert!(steps.iter().any(|line| line["transitions"] == most["completions"]), "{most}");
    assert!(steps.iter().any(|line| line["groups"] == most["groups"]), "{most}");
    run_within_plan("letters/flat-l3.mas");
    run_within_plan("letters/together-l1.mas");
}

#[test]
fn a_plan_names_missing_files_and_fetches_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = pl_host();
    command.arg("plan").arg(repository().join("examples/math-mixed.mas")).args(["--device", "cpu"]);
    command.args(["--set", "other.source=hf:nobody/nothing", "--set", "problems.tasks=gone.jsonl"]);
    command.env("HF_HOME", folder.path()).env("HF_ENDPOINT", "http://127.0.0.1:9");
    let message = stdout(&succeed(&mut command));
    for part in [
        "other  hf:nobody/nothing  f32  from a hub, will be fetched",
        "problems  MISSING: there is no task file",
        "memory    unknown: model other",
        "at most 24 groups, 96 completions, 5,632 sampled tokens",
        "30 steps, folder runs/math_mixed",
    ] {
        assert!(message.contains(part), "no {part:?} in\n{message}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "something was fetched");
}

#[test]
fn graph_draws_in_every_form_and_into_files() {
    let file = repository().join("examples/math.mas");
    let graph = |more: &[&str]| stdout(&succeed(pl_host().arg("graph").arg(&file).args(more)));
    assert!(graph(&[]).contains("├─ else ─┘"));
    assert!(graph(&["--ascii"]).is_ascii());
    assert!(graph(&["--width", "50"]).lines().all(|line| line.chars().count() <= 50));
    assert!(graph(&["--format", "mermaid"]).starts_with("flowchart TD"));
    assert!(graph(&["--format", "dot"]).starts_with("digraph"));
    let json: Value = serde_json::from_str(&graph(&["--format", "json"])).unwrap();
    assert_eq!(json["edges"][2]["when"], "env.agreed");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("math.svg");
    assert_eq!(graph(&["--format", "svg", "--out", out.to_str().unwrap()]), "");
    assert!(std::fs::read_to_string(&out).unwrap().ends_with("</svg>\n"));
    let nowhere = folder.path().join("gone/math.svg");
    let failed = pl_host().arg("graph").arg(&file).arg("--out").arg(nowhere).output().unwrap();
    assert_eq!(failed.status.code(), Some(2));
    assert!(stderr(&failed).contains("cannot write"), "{}", stderr(&failed));
}
