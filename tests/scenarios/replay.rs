//! Runs leave traces, and `pl-host replay` plays them again: as they were, or naming the first thing that differs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::support::{pl_host, repository, run, scenario, stderr, stdout, succeed};

/// A run of a scenario of letters, with its plugin beside it.
struct Played {
    _folder: tempfile::TempDir,
    out: PathBuf,
}

impl Played {
    fn new(name: &str, more: &[&str]) -> Played {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("run");
        succeed(&mut run(&scenario(name), &out, more));
        Played { _folder: folder, out }
    }

    fn replay(&self, more: &[&str]) -> Command {
        let mut command = pl_host();
        command.arg("replay").arg(&self.out).args(more);
        command
    }

    /// What it says; it must end with this code.
    fn said(&self, code: i32, more: &[&str]) -> String {
        let output = self.replay(more).output().unwrap();
        let said = stdout(&output) + &stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{more:?}: {said}");
        said
    }

    fn lines(&self, more: &[&str]) -> Vec<String> {
        stdout(&succeed(&mut self.replay(more))).lines().map(str::to_owned).collect()
    }
}

#[test]
fn flat_and_tree_are_played_again_as_they_were_with_steps_that_trap() {
    for (name, more) in [
        ("letters/flat-l3.mas", &["--set", "train.steps=3"][..]),
        ("letters/tree-l2.mas", &["--set", "train.steps=3", "--set", "board.trap=0.1"]),
        ("letters/together-l1.mas", &["--set", "train.steps=2", "--set", "train.rollout=flat"]),
    ] {
        let played = Played::new(name, more);
        let all = played.lines(&["--all"]);
        let count = played.lines(&[]).len();
        assert_eq!(all.last().unwrap(), &format!("{count} episodes: {count} as recorded"), "{name}");
        // What the run noted as a failure is found by the name that it gave, and fails again.
        let failures = std::fs::read_to_string(played.out.join("failures.jsonl")).unwrap();
        let first = failures.lines().next().unwrap_or_else(|| panic!("{name}: nothing failed"));
        let first: serde_json::Value = serde_json::from_str(first).unwrap();
        let id = first["episode"].as_str().unwrap();
        let failed = played.lines(&["--failed"]);
        assert!(failed.iter().any(|line| line.starts_with(id)), "{id}: {failed:?}");
        let said = played.said(0, &[id]);
        assert!(said.contains(&format!("episode {id}: as recorded")), "{said}");
        if first["branch"].is_null() {
            assert!(said.contains("it fails: task"), "{said}");
        }
    }
}

#[test]
fn an_episode_is_shown_as_a_conversation() {
    let played = Played::new("letters/tree-l2.mas", &["--set", "train.steps=1"]);
    let said = played.said(0, &["1.0.0", "--show"]);
    for part in ["task train-", "── alto · turn 1 ──", "[alto says]", "[or says]", "[alto does]", "after"]
    {
        assert!(said.contains(part), "no {part}: {said}");
    }
    let said = played.said(0, &["held_out@0.1.1", "--show"]);
    assert!(said.contains("task test-1") && said.contains("episode held_out@0.1.1#0: as recorded"), "{said}");
}

#[test]
fn what_is_not_there_is_said() {
    let played = Played::new("letters/tree-l2.mas", &["--set", "train.steps=1"]);
    let said = played.said(2, &["7.0.0"]);
    assert!(said.contains("has no step 7") && said.contains("lists what there is"), "{said}");
    assert!(played.said(2, &["1.99.0"]).contains("has no episode 1.99.0"));
    assert!(played.said(2, &["other@1.0.0"]).contains("has no evaluation other after step 1"));
    assert!(played.said(2, &["first"]).contains("STEP.TASK.SAMPLE"));
    let elsewhere = pl_host().arg("replay").arg(repository()).output().unwrap();
    assert_eq!(elsewhere.status.code(), Some(2));
    assert!(stderr(&elsewhere).contains("is no run folder"), "{}", stderr(&elsewhere));
}

/// Rewrites the text of a run's traces.
fn tamper(out: &Path, step: &str, change: impl Fn(String) -> String) {
    let path = out.join(format!("traces/{step}.jsonl.zst"));
    let text = String::from_utf8(zstd::decode_all(std::fs::File::open(&path).unwrap()).unwrap()).unwrap();
    let changed = change(text.clone());
    assert_ne!(text, changed, "nothing was changed");
    std::fs::write(&path, zstd::encode_all(changed.as_bytes(), 0).unwrap()).unwrap();
}

#[test]
fn a_trace_that_was_tampered_with_differs() {
    let played = Played::new("letters/tree-l2.mas", &["--set", "train.steps=2"]);
    tamper(&played.out, "000002", |text| text.replacen("\"singing\":false", "\"singing\":true", 1));
    let said = played.said(1, &["--all"]);
    assert!(said.contains("episode 2.0.0#0") && said.contains("env.singing differs"), "{said}");
    assert!(said.contains("recorded  true\n  now       false"), "{said}");
    assert!(said.contains("1 of the episodes differ"), "{said}");
    assert!(played.said(1, &["2.0.0"]).contains("env.singing differs"));
    assert!(played.said(0, &["1.0.0"]).contains("as recorded"));
    let path = played.out.join("traces/000001.jsonl.zst");
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(played.said(1, &["1.0.0"]).contains("000001.jsonl.zst"));
}

/// A folder with a workflow of letters and its plugin.
fn with_plugin_beside(folder: &Path) -> (PathBuf, PathBuf) {
    let text = std::fs::read_to_string(scenario("letters/tree-l2.mas")).unwrap();
    let tiny = repository().join("tests/data/tiny");
    let file = folder.join("tree.mas");
    std::fs::write(&file, text.replace("../../data/tiny", &tiny.display().to_string())).unwrap();
    let plugin = folder.join("letters.wasm");
    std::fs::copy(repository().join("target/release/plugins/letters.wasm"), &plugin).unwrap();
    (file, plugin)
}

#[test]
fn another_build_of_a_plugin_is_refused_unless_it_is_to_be_tried() {
    let folder = tempfile::tempdir().unwrap();
    let (file, plugin) = with_plugin_beside(folder.path());
    let out = folder.path().join("run");
    succeed(&mut run(&file, &out, &["--set", "train.steps=1"]));
    // The same code with a longer question: the format's words are in the data of the component.
    let build = std::fs::read(&plugin).unwrap();
    let other = folder.path().join("other.wasm");
    std::fs::write(&other, custom_section(&build)).unwrap();
    let replay = |more: &[&str]| -> Output { pl_host().arg("replay").arg(&out).args(more).output().unwrap() };
    assert!(replay(&["--all"]).status.success());
    let tried = replay(&["--all", "--plugin", &format!("letters={}", other.display())]);
    assert!(tried.status.success(), "{}", stderr(&tried));
    let unknown = replay(&["--all", "--plugin", &format!("digits={}", other.display())]);
    assert!(stderr(&unknown).contains("no such plugin; it has letters"), "{}", stderr(&unknown));
    // In the place of the first one, nobody asked for it.
    std::fs::copy(&other, &plugin).unwrap();
    let refused = replay(&["--all"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = stderr(&refused);
    assert!(said.contains("plugin letters:") && said.contains("--plugin letters=FILE"), "{said}");
    // A plugin that does something else: the maths domain has no such items.
    let math = repository().join("target/release/plugins/math.wasm");
    let wrong = replay(&["1.0.0", "--plugin", &format!("letters={}", math.display())]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("has no environment named board"), "{}", stderr(&wrong));
}

/// The component with a custom section more: another build that does the same.
fn custom_section(component: &[u8]) -> Vec<u8> {
    let content = b"\x05notesanother build";
    let mut bytes = component.to_vec();
    bytes.extend([0, content.len() as u8]);
    bytes.extend(content);
    bytes
}

#[test]
fn a_run_that_was_killed_and_resumed_has_the_traces_of_both_lives() {
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
    succeed(pl_host().arg("run").arg("--resume").arg(&out).args(["--device", "cpu"]));
    let lines = stdout(&succeed(pl_host().arg("replay").arg(&out)));
    for step in 1..=6 {
        assert!(lines.lines().any(|line| line.starts_with(&format!("{step}.0.0"))), "{step}: {lines}");
    }
    let all = stdout(&succeed(pl_host().arg("replay").arg(&out).arg("--all")));
    let count = lines.lines().count();
    assert_eq!(all.trim(), format!("{count} episodes: {count} as recorded"));
}
