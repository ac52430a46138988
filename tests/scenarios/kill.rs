//! A run that is killed at any moment and resumed ends with the same bits as an undisturbed run.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{assert_equal_runs, content, pl_host, run, scenario, stderr, succeed};

/// Kills of one run. Each continues what the previous kill left, so that together they take hardly longer than the run.
const KILLS: u32 = 4;

/// Runs per scenario. Their kills are at different moments, spread evenly from the creation of the run folder to the end,
/// so that they hit rollouts, updates, evaluations and checkpoints.
const RUNS: u32 = 3;

/// Starts a run and returns once its folder exists.
fn start(file: &Path, out: &Path, settings: &[&str]) -> Child {
    let child = run(file, out, settings).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
    await_file(&out.join("workflow.json"));
    child
}

fn await_file(path: &Path) {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < Duration::from_secs(120), "{} does not appear", path.display());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn resumes_after_any_kill(name: &str) {
    resumes_after_kills(name, &[], RUNS);
}

fn resumes_after_kills(name: &str, settings: &[&str], runs: u32) {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario(name);
    let reference = folder.path().join("reference");
    let begin = Instant::now();
    let mut child = start(&file, &reference, settings);
    let start_up = begin.elapsed();
    assert!(child.wait().unwrap().success());
    let duration = begin.elapsed() - start_up;
    let mut killed = 0;
    for number in 0..runs {
        let out = folder.path().join(format!("killed-{number}"));
        let mut child = start(&file, &out, settings);
        // The first kill of each run is at another moment; the later ones follow at equal intervals.
        std::thread::sleep(duration * (2 * number + 1) / (2 * runs * KILLS));
        for kill in 0..KILLS {
            child.kill().unwrap();
            killed += u32::from(!child.wait().unwrap().success());
            if kill + 1 < KILLS {
                child = resume(&out).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
                // Includes the time that a process takes to load before it continues.
                std::thread::sleep(start_up + duration / KILLS);
            }
        }
        succeed(&mut resume(&out));
        assert_equal_runs(&reference, &out, &format!("{name}, run {number} of {runs}"));
    }
    // A run that is faster than the reference may end before the last kills.
    assert!(killed >= runs, "only {killed} processes were killed before they ended");
}

/// Returns the command that continues a run, or starts it again if it was killed before its first checkpoint.
fn resume(out: &Path) -> Command {
    let mut command = pl_host();
    command.arg("run").arg("--resume").arg(out).args(["--from-start", "--device", "cpu"]);
    command
}

#[test]
fn a_second_process_is_told_who_writes_into_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (scenario("letters/tree-l2.mas"), folder.path().join("run"));
    let mut first = start(&file, &out, &[]);
    // Stopped, so that it can't end before the second process looks.
    let signal = |name: &str| {
        let sent = Command::new("kill").arg(name).arg(first.id().to_string()).status();
        assert!(sent.unwrap().success());
    };
    signal("-STOP");
    let second = resume(&out).output().unwrap();
    let message = stderr(&second);
    assert_eq!(second.status.code(), Some(2), "{message}");
    let holder = format!("in use by process {}", first.id());
    assert!(message.contains(&holder) && message.contains(&out.display().to_string()), "{message}");
    signal("-CONT");
    first.kill().unwrap();
    first.wait().unwrap();
    succeed(&mut resume(&out));
}

/// A limit on the size of files stands for a full disk: a write fails in the middle, and the process goes on.
#[test]
fn a_run_that_can_not_write_says_what_is_left_and_continues() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/tree-l2.mas");
    let reference = folder.path().join("reference");
    succeed(&mut run(&file, &reference, &[]));
    let largest = |name: &str| reference.join(name).metadata().unwrap().len();
    let logs = largest("metrics.jsonl");
    let mut failures = 0;
    // In units of 512 bytes: within the files of the first steps, within a checkpoint, within the logs.
    for blocks in [4, logs / 1024, logs / 600] {
        let out = folder.path().join(format!("limited-{blocks}"));
        let unlimited = run(&file, &out, &[]);
        let mut limited = Command::new("sh");
        limited.args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$@\""), "sh"]);
        limited.arg(unlimited.get_program()).args(unlimited.get_args());
        limited.envs(unlimited.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let failed = limited.output().unwrap();
        let message = stderr(&failed);
        if !out.join("workflow.json").exists() {
            continue;
        }
        failures += 1;
        assert_eq!(failed.status.code(), Some(1), "{blocks}: {message}");
        assert!(message.contains("error: ") && message.contains("the run stopped after"), "{message}");
        assert!(message.contains(&format!("pl-host run --resume {}", out.display())), "{message}");
        succeed(&mut resume(&out));
        assert_equal_runs(&reference, &out, &format!("files of {blocks} blocks"));
    }
    assert!(failures > 0, "no limit let the run begin");
}

#[test]
fn tree_with_an_adapter_per_agent() {
    resumes_after_any_kill("letters/tree-l2.mas");
}

#[test]
fn flat_with_a_model_per_agent() {
    resumes_after_any_kill("letters/flat-l3.mas");
}

#[test]
fn rollouts_ahead_of_updates() {
    resumes_after_kills("letters/flat-l3.mas", &["--set", "train.schedule=async"], 2);
}

/// A critic with an adapter in the passes of the policies, a critic that is a model, a reference that is the base, and
/// tasks that are replaced.
#[test]
fn critics_references_and_refills() {
    let settings = [
        "train.algorithm=ppo",
        "train.kl=0.05",
        "train.flat_groups=drop",
        "first.critic.on=adapter",
        "first.critic.rank=4",
        "second.critic.on=model",
    ];
    resumes_after_kills("letters/tree-l2.mas", &settings.map(|own| ["--set", own]).concat(), 1);
}

/// References are copies of whole models, and tasks are replaced in steps that are played ahead of updates.
#[test]
fn copied_references_and_refills_ahead_of_updates() {
    let settings = ["train.kl=0.05", "train.flat_groups=drop", "train.schedule=async"];
    resumes_after_kills("letters/flat-l3.mas", &settings.map(|own| ["--set", own]).concat(), 1);
}

/// Cursors, shares and levels of several scenarios, also in steps that are played ahead of updates.
#[test]
fn mixtures_and_curricula() {
    resumes_after_kills("letters/mix.mas", &[], 2);
    resumes_after_kills("letters/mix.mas", &["--set", "train.schedule=async"], 1);
}

#[test]
fn a_sweep_continues_in_the_run_that_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let sweep = |out: &Path| {
        let mut command = pl_host();
        command.arg("sweep").arg(scenario("letters/tree-l2.mas")).arg("--out").arg(out);
        command.args(["--seeds", "1,2", "--device", "cpu", "--set", "train.lr_schedule=constant"]);
        command
    };
    let (reference, out) = (folder.path().join("reference"), folder.path().join("killed"));
    succeed(&mut sweep(&reference));
    // In the first run, and in the second.
    for seed in [1, 2] {
        let mut child = sweep(&out).stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        await_file(&out.join(format!("seed={seed}/steps/000001.parquet")));
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success(), "seed {seed} ended before it was killed");
    }
    succeed(&mut sweep(&out));
    for seed in [1, 2] {
        let name = format!("seed={seed}");
        assert_equal_runs(&reference.join(&name), &out.join(&name), &name);
    }
}

#[test]
fn sixteen_bit_weights_with_masters() {
    resumes_after_any_kill("letters/half.mas");
}

#[test]
fn ctrl_c_leaves_no_unfinished_file_of_an_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    let names = || -> Vec<_> {
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    let mut evaluate = pl_host();
    evaluate.arg("evaluate").arg(scenario("letters/tree-l2.mas")).args(["--device", "cpu", "--out"]);
    // Takes minutes.
    evaluate.arg(folder.path().join("completions.jsonl")).args(["--set", "held_out.samples=1024"]);
    let settings = ["--set", "held_out.limit=1000"];
    let child = evaluate.args(settings).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let start = Instant::now();
    while names().is_empty() {
        assert!(start.elapsed() < Duration::from_secs(120), "the file does not appear");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", stderr(&output));
    assert!(names().is_empty(), "{:?}", names());
}

#[test]
fn ctrl_c_finishes_the_step_and_prints_how_to_continue() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/tree-l2.mas");
    let (reference, out) = (folder.path().join("reference"), folder.path().join("stopped"));
    succeed(&mut run(&file, &reference, &[]));
    let child = run(&file, &out, &[]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    await_file(&out.join("steps/000001.parquet"));
    assert!(Command::new("kill").arg("-INT").arg(child.id().to_string()).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(130), "{message}");
    assert!(message.contains("pl-host run --resume"), "{message}");
    succeed(&mut resume(&out));
    // The interrupted run also has the checkpoint of the step after which it stopped; everything else is equal.
    std::fs::remove_dir_all(out.join("checkpoints")).unwrap();
    std::fs::remove_dir_all(reference.join("checkpoints")).unwrap();
    assert_equal_runs(&reference, &out, "interrupted");
}

#[test]
fn resuming_cleans_up_after_a_kill_at_the_very_end() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (scenario("letters/tree-l2.mas"), folder.path().join("run"));
    succeed(&mut run(&file, &out, &[]));
    let before = content(&out);
    let half_removed = out.join("checkpoints/step-00000002.partial");
    std::fs::create_dir_all(half_removed.join("policies")).unwrap();
    std::fs::remove_file(out.join("curves.png")).unwrap();
    succeed(&mut resume(&out));
    assert!(!half_removed.exists());
    assert!(out.join("curves.png").is_file());
    assert_eq!(before.keys().collect::<Vec<_>>(), content(&out).keys().collect::<Vec<_>>());
}
