//! Runs write traces, and `pl-host replay` repeats them: equal, or with the first difference named.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::support::{pl_host, repository, run, scenario, stderr, stdout, succeed};

/// A finished run of a scenario of the letters plugin.
struct FinishedRun {
    _folder: tempfile::TempDir,
    out: PathBuf,
}

impl FinishedRun {
    fn new(name: &str, more: &[&str]) -> FinishedRun {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("run");
        succeed(&mut run(&scenario(name), &out, more));
        FinishedRun { _folder: folder, out }
    }

    fn replay(&self, more: &[&str]) -> Command {
        let mut command = pl_host();
        command.arg("replay").arg(&self.out).args(more);
        command
    }

    /// Runs `replay`, checks its exit code, and returns all that it prints.
    fn output(&self, code: i32, more: &[&str]) -> String {
        let output = self.replay(more).output().unwrap();
        let message = stdout(&output) + &stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{more:?}: {message}");
        message
    }

    fn lines(&self, more: &[&str]) -> Vec<String> {
        stdout(&succeed(&mut self.replay(more))).lines().map(str::to_owned).collect()
    }
}

#[test]
fn flat_and_tree_runs_with_trapping_steps_replay_equal() {
    for (name, more) in [
        ("letters/flat-l3.mas", &["--set", "train.steps=3", "--set", "train.faults=redraw"][..]),
        ("letters/tree-l2.mas", &["--set", "train.steps=3", "--set", "board.trap=0.1"]),
        ("letters/together-l1.mas", &["--set", "train.steps=2", "--set", "train.rollout=flat"]),
    ] {
        let played = FinishedRun::new(name, more);
        let all = played.lines(&["--all"]);
        let count = played.lines(&[]).len();
        assert_eq!(all.last().unwrap(), &format!("{count} episodes: {count} as recorded"), "{name}");
        // A failure that the run recorded is found by its episode id, and fails again.
        let failures = std::fs::read_to_string(played.out.join("failures.jsonl")).unwrap();
        let first = failures.lines().next().unwrap_or_else(|| panic!("{name}: nothing failed"));
        let first: serde_json::Value = serde_json::from_str(first).unwrap();
        let id = first["episode"].as_str().unwrap();
        let failed = played.lines(&["--failed"]);
        assert!(failed.iter().any(|line| line.starts_with(id)), "{id}: {failed:?}");
        let message = played.output(0, &[id]);
        assert!(message.contains(&format!("episode {id}: as recorded")), "{message}");
        // A completion that is penalised ends its episode, which has not failed.
        if more.contains(&"train.faults=redraw") {
            assert!(first["branch"].is_null() && message.contains("it fails: task"), "{message}");
        }
    }
}

#[test]
fn an_episode_is_shown_as_a_conversation() {
    let played = FinishedRun::new("letters/tree-l2.mas", &["--set", "train.steps=1"]);
    let message = played.output(0, &["1.0.0", "--show"]);
    for part in ["task train-", "── alto · turn 1 ──", "[alto says]", "[or says]", "[alto does]", "after"]
    {
        assert!(message.contains(part), "no {part}: {message}");
    }
    let message = played.output(0, &["held_out@0.1.1", "--show"]);
    assert!(
        message.contains("task test-1") && message.contains("episode held_out@0.1.1#0: as recorded"),
        "{message}"
    );
}

#[test]
fn missing_episodes_are_named() {
    let played = FinishedRun::new("letters/tree-l2.mas", &["--set", "train.steps=1"]);
    let message = played.output(2, &["7.0.0"]);
    assert!(message.contains("has no step 7") && message.contains("lists what there is"), "{message}");
    assert!(played.output(2, &["1.99.0"]).contains("has no episode 1.99.0"));
    assert!(played.output(2, &["other@1.0.0"]).contains("has no evaluation other after step 1"));
    assert!(played.output(2, &["first"]).contains("STEP.TASK.SAMPLE"));
    let metrics = played.out.join("metrics.jsonl");
    let lines = std::fs::read_to_string(&metrics).unwrap() + "{\"kind\":\"step\",\"step\":2}\n";
    std::fs::write(&metrics, lines).unwrap();
    let message = played.output(1, &["--all"]);
    assert!(message.contains("000002.jsonl.zst is missing"), "{message}");
    let elsewhere = pl_host().arg("replay").arg(repository()).output().unwrap();
    assert_eq!(elsewhere.status.code(), Some(2));
    assert!(stderr(&elsewhere).contains("is not a run folder"), "{}", stderr(&elsewhere));
}

/// Changes the text of the traces of a step.
fn modify_traces(out: &Path, step: &str, change: impl Fn(String) -> String) {
    let path = out.join(format!("traces/{step}.jsonl.zst"));
    let text = String::from_utf8(zstd::decode_all(std::fs::File::open(&path).unwrap()).unwrap()).unwrap();
    // The changed file has no index.
    let text = text.replacen(",\"indexed\":true", "", 1);
    let changed = change(text.clone());
    assert_ne!(text, changed, "nothing changed");
    std::fs::write(&path, zstd::encode_all(changed.as_bytes(), 0).unwrap()).unwrap();
}

#[test]
fn a_modified_trace_differs() {
    let played = FinishedRun::new("letters/tree-l2.mas", &["--set", "train.steps=2"]);
    modify_traces(&played.out, "000002", |text| text.replacen("\"singing\":false", "\"singing\":true", 1));
    let message = played.output(1, &["--all"]);
    assert!(message.contains("episode 2.0.0#0") && message.contains("env.singing differs"), "{message}");
    assert!(message.contains("recorded  true\n  now       false"), "{message}");
    assert!(message.contains("1 of the episodes differ"), "{message}");
    assert!(played.output(1, &["2.0.0"]).contains("env.singing differs"));
    assert!(played.output(0, &["1.0.0"]).contains("as recorded"));
    modify_traces(&played.out, "000001", |text| text.replacen("{\"format\":2}\n", "", 1));
    let message = played.output(1, &["1.0.0"]);
    assert!(message.contains("000001.jsonl.zst has format 1 of traces"), "{message}");
    let path = played.out.join("traces/000001.jsonl.zst");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(played.output(1, &["1.0.0"]).contains("000001.jsonl.zst"));
}

/// Copies a workflow of the letters plugin, and the plugin, into a folder.
fn copy_with_plugin(folder: &Path) -> (PathBuf, PathBuf) {
    let text = std::fs::read_to_string(scenario("letters/tree-l2.mas")).unwrap();
    let tiny = repository().join("tests/data/tiny");
    let file = folder.join("tree.mas");
    std::fs::write(&file, text.replace("../../data/tiny", &tiny.display().to_string())).unwrap();
    let plugin = folder.join("letters.wasm");
    std::fs::copy(repository().join("target/release/plugins/letters.wasm"), &plugin).unwrap();
    (file, plugin)
}

#[test]
fn another_build_of_a_plugin_is_refused_unless_it_is_requested() {
    let folder = tempfile::tempdir().unwrap();
    let (file, plugin) = copy_with_plugin(folder.path());
    let out = folder.path().join("run");
    succeed(&mut run(&file, &out, &["--set", "train.steps=1"]));
    // The same code, but a different file.
    let build = std::fs::read(&plugin).unwrap();
    let other = folder.path().join("other.wasm");
    std::fs::write(&other, with_custom_section(&build)).unwrap();
    let replay = |more: &[&str]| -> Output { pl_host().arg("replay").arg(&out).args(more).output().unwrap() };
    assert!(replay(&["--all"]).status.success());
    let tried = replay(&["--all", "--plugin", &format!("letters={}", other.display())]);
    assert!(tried.status.success(), "{}", stderr(&tried));
    let unknown = replay(&["--all", "--plugin", &format!("digits={}", other.display())]);
    assert!(stderr(&unknown).contains("no such plugin; it has letters"), "{}", stderr(&unknown));
    // It replaces the recorded build without a request.
    std::fs::copy(&other, &plugin).unwrap();
    let refused = replay(&["--all"]);
    assert_eq!(refused.status.code(), Some(2));
    let message = stderr(&refused);
    assert!(message.contains("plugin letters:") && message.contains("--plugin letters=FILE"), "{message}");
    // A different plugin: the maths domain lacks these items.
    let math = repository().join("target/release/plugins/math.wasm");
    let wrong = replay(&["1.0.0", "--plugin", &format!("letters={}", math.display())]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("has no environment named board"), "{}", stderr(&wrong));
}

/// Adds a custom section: another build with the same behaviour.
fn with_custom_section(component: &[u8]) -> Vec<u8> {
    let content = b"\x05notesanother build";
    let mut bytes = component.to_vec();
    bytes.extend([0, content.len() as u8]);
    bytes.extend(content);
    bytes
}

#[test]
fn a_killed_and_resumed_run_has_the_traces_of_both_parts() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (scenario("letters/flat-l3.mas"), folder.path().join("run"));
    let mut child = run(&file, &out, &[])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let (began, third) = (Instant::now(), out.join("traces/000003.jsonl.zst"));
    while !third.exists() && began.elapsed() < Duration::from_secs(120) {
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    succeed(pl_host().arg("run").arg("--resume").arg(&out).args(["--from-start", "--device", "cpu"]));
    let lines = stdout(&succeed(pl_host().arg("replay").arg(&out)));
    for step in 1..=6 {
        assert!(lines.lines().any(|line| line.starts_with(&format!("{step}.0.0"))), "{step}: {lines}");
    }
    let all = stdout(&succeed(pl_host().arg("replay").arg(&out).arg("--all")));
    let count = lines.lines().count();
    assert_eq!(all.trim(), format!("{count} episodes: {count} as recorded"));
}
