//! A run that is killed at any moment and resumed ends as the run that nobody touched, bit for bit.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::{assert_equal_runs, pl_host, run, scenario, stderr, succeed};

/// Moments per scenario, spread over the whole run: rollout, update, evaluation and checkpoint all take their
/// share of it.
const MOMENTS: u32 = 12;

fn killed_anywhere(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario(name);
    let reference = folder.path().join("reference");
    let start = Instant::now();
    succeed(&mut run(&file, &reference, &[]));
    let whole = start.elapsed();
    let mut killed = 0;
    for moment in 0..MOMENTS {
        let out = folder.path().join(format!("killed-{moment}"));
        let mut child = run(&file, &out, &[]).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * (2 * moment + 1) / (2 * MOMENTS));
        child.kill().unwrap();
        let ended_before = child.wait().unwrap().success();
        killed += u32::from(!ended_before);
        finish(&file, &out);
        assert_equal_runs(&reference, &out, &format!("{name}, killed at moment {moment} of {MOMENTS}"));
    }
    assert!(killed >= MOMENTS - 2, "only {killed} runs were killed before they ended");
}

/// Resumes, or begins where the run had not made its folder yet.
fn finish(file: &Path, out: &Path) {
    if out.join("workflow.json").exists() {
        succeed(pl_host().arg("run").arg("--resume").arg(out).args(["--device", "cpu"]));
    } else {
        succeed(&mut run(file, out, &[]));
    }
}

#[test]
fn tree_with_an_adapter_per_agent() {
    killed_anywhere("letters/tree-l2.mas");
}

#[test]
fn flat_with_a_model_per_agent() {
    killed_anywhere("letters/flat-l3.mas");
}

#[test]
fn ctrl_c_finishes_the_step_and_says_how_to_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/tree-l2.mas");
    let (reference, out) = (folder.path().join("reference"), folder.path().join("stopped"));
    let start = Instant::now();
    succeed(&mut run(&file, &reference, &[]));
    let whole = start.elapsed();
    let child = run(&file, &out, &[]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    // Steps take the second half of so short a run.
    while !out.join("steps/000001.parquet").exists() {
        assert!(start.elapsed() < whole * 20 + Duration::from_secs(30), "the run does not get to its first step");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(
        std::process::Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap().success()
    );
    let output = child.wait_with_output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("pl-host run --resume"), "{said}");
    finish(&file, &out);
    // The interrupted run kept the checkpoint of the step it stopped after; the rest is equal.
    std::fs::remove_dir_all(out.join("checkpoints")).unwrap();
    std::fs::remove_dir_all(reference.join("checkpoints")).unwrap();
    assert_equal_runs(&reference, &out, "interrupted");
}
