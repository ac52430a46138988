//! Starts `pl-host` and reads what it wrote.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// A file below `tests/scenarios`.
pub fn scenario(name: &str) -> PathBuf {
    repository().join("tests/scenarios").join(name)
}

/// Returns a `pl-host` command with one CPU thread on every machine: threads that wait for products of a tiny model keep the
/// other tests from running. Its workflows may read the repository, which has the model of most tests, and connect to this
/// machine.
pub fn pl_host() -> Command {
    let mut command = pl_host_without_permissions();
    command.env("PL_HOST_ALLOW_READ", repository()).env("PL_HOST_ALLOW_NET", "127.0.0.1,localhost");
    command
}

/// Returns a `pl-host` command whose workflows may use no more than their own folders.
pub fn pl_host_without_permissions() -> Command {
    let program = repository().join("target/release/pl-host");
    assert!(program.is_file(), "{} is missing: run `cargo xtask test`", program.display());
    let mut command = Command::new(program);
    command.env("OMP_NUM_THREADS", "1").env("NO_COLOR", "1");
    for variable in ["PL_HOST_ALLOW_READ", "PL_HOST_ALLOW_NET", "PL_HOST_ALLOW_ENV"] {
        command.env_remove(variable);
    }
    command
}

/// Returns the command `pl-host run FILE --out OUT` with further arguments.
pub fn run(file: &Path, out: &Path, more: &[&str]) -> Command {
    let mut command = pl_host();
    command.arg("run").arg(file).arg("--out").arg(out).args(["--device", "cpu"]).args(more);
    command
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command that must succeed.
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", stderr(&output));
    output
}

/// Returns the files of a run folder that must be equal for equal runs: all except timings and the picture.
pub fn content(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let kept = [
        "workflow.json",
        "lock.json",
        "metrics.jsonl",
        "failures.jsonl",
        "steps",
        "tokens",
        "traces",
        "checkpoints",
    ];
    for name in kept {
        collect(root, &root.join(name), &mut files);
    }
    files
}

fn collect(root: &Path, path: &Path, files: &mut BTreeMap<String, Vec<u8>>) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            collect(root, &entry.unwrap().path(), files);
        }
    } else if path.exists() {
        let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        if name == "lock.json" {
            files.insert(name, lock_without_date(root));
        // Contains the length of timings.jsonl, which differs between runs; its other content is in other files too.
        } else if !name.contains("checkpoint.json") {
            files.insert(name, std::fs::read(path).unwrap());
        }
    }
}

/// Returns the lock file of a run.
pub fn lock(out: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(out.join("lock.json")).unwrap()).unwrap()
}

/// Returns a lock file without the date at which its run was started: midnight may be between two runs.
fn lock_without_date(out: &Path) -> Vec<u8> {
    let mut lock = lock(out);
    assert!(lock.as_object_mut().unwrap().remove("date").is_some(), "a lock file has a date");
    lock.to_string().into_bytes()
}

/// Compares two run folders, naming what differs.
pub fn assert_equal_runs(expected: &Path, found: &Path, what: &str) {
    let (expected, found) = (content(expected), content(found));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&expected), names(&found), "{what}: other files");
    let differing: Vec<&String> = expected.keys().filter(|name| found[*name] != expected[*name]).collect();
    let numbers = |files: &BTreeMap<String, Vec<u8>>| files.get("metrics.jsonl").cloned().unwrap_or_default();
    assert!(
        differing.is_empty(),
        "{what}: {differing:?} differ; metrics.jsonl: {}",
        first_difference(&numbers(&expected), &numbers(&found))
    );
}

/// Returns what stands around the first difference of two texts, in each of them.
fn first_difference(expected: &[u8], found: &[u8]) -> String {
    let Some(at) = expected.iter().zip(found).position(|(a, b)| a != b) else {
        return format!("{} bytes, then {}", expected.len(), found.len());
    };
    let around = |bytes: &[u8]| {
        let part = &bytes[at.saturating_sub(400)..bytes.len().min(at + 200)];
        String::from_utf8_lossy(part).into_owned()
    };
    format!("expected …{}…\nfound …{}…", around(expected), around(found))
}

/// The lines of a run's `metrics.jsonl`.
pub fn metrics(root: &Path) -> Vec<serde_json::Value> {
    std::fs::read_to_string(root.join("metrics.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
