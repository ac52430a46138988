//! Programs that track experiments log and read back what a run has recorded, with their own clients.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use pl_testing::{Requirement, skip_or_fail};
use pl_viewer::{ExportFormat, export};

use crate::recorded::{Letters, create, example};

/// Prints the numbers of an offline run of W&B: records of LevelDB's log format, in blocks of 32 KiB, after a header of 7
/// bytes. Their content is read with the client's own messages.
const READ_WANDB: &str = r#"
import glob, struct
from wandb.proto.wandb_internal_pb2 import Record
data, at, record = open(glob.glob("wandb/offline-run-*/*.wandb")[0], "rb").read(), 7, b""
while at + 7 <= len(data):
    if 32768 - at % 32768 < 7:
        at += 32768 - at % 32768
        continue
    length, kind = struct.unpack("<xxxxHB", data[at:at + 7])
    record = (b"" if kind in (1, 2) else record) + data[at + 7:at + 7 + length]
    at += 7 + length
    if kind in (1, 4):
        history = Record.FromString(record).history
        for item in history.item:
            name = item.key or "/".join(item.nested_key)
            if "/" in name:
                print(history.step.num, name, float(item.value_json))
"#;

/// Prints the numbers of the runs of a project of trackio.
const READ_TRACKIO: &str = r#"
import sys
from trackio.sqlite_storage import SQLiteStorage
for run in SQLiteStorage.get_runs(sys.argv[1]):
    for line in SQLiteStorage.get_logs(sys.argv[1], run):
        for name, number in line.items():
            if "/" in name:
                print(line["step"], name, float(number))
"#;

const NUMBERS: [&str; 8] = [
    "0 evaluations/test/success 0.25",
    "0 evaluations/test/tasks 8.0",
    "1 agents/tool/reward 0.5",
    "1 rollouts/rollout_success 0.5",
    "1 seconds/play 1.0",
    "1 seconds/train 2.0",
    "2 agents/tool/reward 0.75",
    "2 rollouts/rollout_success 0.75",
];

/// Returns a command for Python in which W&B is offline and trackio keeps its projects in the folder.
fn python(folder: &Path, script: &str) -> Command {
    let mut python = Command::new("python3");
    python.args(["-c", script]).current_dir(folder).env("HOME", folder);
    python.env("WANDB_MODE", "offline").env("TRACKIO_DIR", folder.join("trackio"));
    python
}

fn has(package: &str) -> bool {
    let probe = Command::new("python3").args(["-c", &format!("import {package}")]).output();
    probe.is_ok_and(|probe| probe.status.success())
}

fn succeed(mut command: Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (out, errors) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}\n{out}\n{errors}");
    out.into_owned()
}

/// The script of `docs/viewer.md` that logs the numbers of a run.
fn documented_script() -> String {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/viewer.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, script) = page.split_once("```python\n").unwrap();
    script.split_once("```").unwrap().0.to_owned()
}

/// Creates the folder of a user: the run `runs/math` and its numbers in `scalars.jsonl`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let run = example(&folder.path().join("runs"), "math", 0);
    let mut numbers = Vec::new();
    export(&run, ExportFormat::Scalars, &Letters, &mut numbers).unwrap();
    std::fs::write(folder.path().join("scalars.jsonl"), numbers).unwrap();
    folder
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn wandb_logs_the_numbers_of_a_run() {
    if !has("wandb") {
        return skip_or_fail(Requirement::Wandb, "python3 has no package wandb");
    }
    let folder = folder();
    succeed(python(folder.path(), &documented_script()));
    assert_eq!(sorted(&succeed(python(folder.path(), READ_WANDB))), NUMBERS);
}

#[test]
fn trackio_logs_the_numbers_of_a_run() {
    if !has("trackio") {
        return skip_or_fail(Requirement::Trackio, "python3 has no package trackio");
    }
    let folder = folder();
    succeed(python(folder.path(), &documented_script().replace("import wandb", "import trackio as wandb")));
    let mut read = python(folder.path(), READ_TRACKIO);
    read.arg("math");
    assert_eq!(sorted(&succeed(read)), NUMBERS);
}

#[test]
fn trackio_imports_the_event_files_of_runs() {
    if !has("trackio, tbparse") {
        return skip_or_fail(Requirement::Trackio, "python3 has no package trackio[tensorboard]");
    }
    let folder = tempfile::tempdir().unwrap();
    let (_, mut run) = create(&folder.path().join("runs"), "math", 0);
    let line = serde_json::json!({ "kind": "step", "step": 3, "agents": { "tool": { "reward": 0.5 } } });
    run.append_metrics(3, &line).unwrap();
    run.sync().unwrap();
    succeed(python(folder.path(), "import trackio\ntrackio.import_tf_events('runs', project='imported')"));
    let mut read = python(folder.path(), READ_TRACKIO);
    read.arg("imported");
    assert_eq!(succeed(read).trim(), "3 agents/tool/reward 0.5");
}
