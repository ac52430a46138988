//! Starting `pl-host` and looking at what it leaves.

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

/// Real data sets, where the machine has them.
pub fn data(name: &str) -> Option<PathBuf> {
    let root =
        std::env::var_os("PL_HOST_DATA").map_or_else(|| repository().join("../shared/data"), PathBuf::from);
    let path = root.join(name);
    if !path.exists() {
        eprintln!("skipped: no {} (set PL_HOST_DATA)", path.display());
        return None;
    }
    Some(path)
}

/// `pl-host`, on the CPU with two threads, whatever the machine has.
pub fn pl_host() -> Command {
    let program = repository().join("target/release/pl-host");
    assert!(program.is_file(), "{} is missing: run `cargo xtask test`", program.display());
    let mut command = Command::new(program);
    command.env("OMP_NUM_THREADS", "2").env("NO_COLOR", "1");
    command
}

/// `pl-host run FILE --out OUT` with more arguments.
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

/// Runs a command that must end well.
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}\n{}", stderr(&output));
    output
}

/// Everything of a run folder that must be equal for equal runs: all but timings and the picture.
pub fn content(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let kept =
        ["workflow.json", "lock.json", "metrics.jsonl", "failures.jsonl", "steps", "traces", "checkpoints"];
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
        // Holds the length of the file of timings, which no two runs share; everything else in it is in other
        // files too.
        if !name.contains("checkpoint.json") {
            files.insert(name, std::fs::read(path).unwrap());
        }
    }
}

/// Compares two run folders, naming what differs.
pub fn assert_equal_runs(expected: &Path, found: &Path, what: &str) {
    let (expected, found) = (content(expected), content(found));
    let names = |files: &BTreeMap<String, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&expected), names(&found), "{what}: other files");
    for (name, bytes) in &expected {
        assert!(found[name] == *bytes, "{what}: {name} differs");
    }
}

/// The lines of a run's `metrics.jsonl`.
pub fn metrics(root: &Path) -> Vec<serde_json::Value> {
    std::fs::read_to_string(root.join("metrics.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}
