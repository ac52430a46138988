//! Run folders: what a new run and a resume may overwrite or delete, damaged files, locks.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use std::fs;

use crate::jsonl::read_jsonl;

use super::*;

fn lock() -> Lock {
    Lock {
        version: String::new(),
        contract: String::new(),
        seed: 0,
        date: None,
        device: "cpu".to_owned(),
        threads: 1,
        plugins: BTreeMap::new(),
        grants: BTreeMap::new(),
        models: BTreeMap::new(),
        dtypes: BTreeMap::new(),
        starts: BTreeMap::new(),
        data: BTreeMap::new(),
        images: BTreeMap::new(),
        permissions: BTreeSet::new(),
    }
}

fn create(root: &Path) -> Result<RunFolder, Error> {
    RunFolder::create(root, "workflow w", &json!({}), &lock())
}

#[test]
fn a_new_run_overwrites_nothing() {
    for entry in ENTRIES.into_iter().filter(|entry| *entry != WORKFLOW) {
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join(entry);
        fs::write(&precious, "mine").unwrap();
        let message = create(folder.path()).unwrap_err().to_string();
        assert!(message.contains(&format!("`{entry}`")) && message.contains("--out"), "{message}");
        assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{entry}");
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("notes.txt"), "mine").unwrap();
    create(folder.path()).unwrap();
    assert!(matches!(create(folder.path()), Err(Error::Occupied { .. })));
    assert_eq!(fs::read_to_string(folder.path().join("notes.txt")).unwrap(), "mine");
}

/// A workflow that can't be written, as on a full disk.
struct Unwritable;

impl Serialize for Unwritable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("no space"))
    }
}

#[test]
fn a_run_whose_folder_cannot_be_written_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    RunFolder::create(&root, "workflow w", &Unwritable, &lock()).unwrap_err();
    assert!(!root.exists());
    create(&root).unwrap();
    // Other files of the user stay.
    let root = folder.path().join("shared");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("notes.txt"), "mine").unwrap();
    RunFolder::create(&root, "workflow w", &Unwritable, &lock()).unwrap_err();
    let left: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["notes.txt"]);
}

#[test]
fn what_a_killed_start_leaves_is_named_and_can_be_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("run");
    drop(create(&root).unwrap());
    fs::remove_file(root.join(WORKFLOW)).unwrap();
    let errors = [create(&root).unwrap_err(), RunFolder::lock(&root).unwrap_err()];
    for error in errors {
        assert!(matches!(error, Error::Unstarted { .. }), "{error}");
        assert!(error.to_string().contains("delete the folder"), "{error}");
    }
    // What was recorded is not to be deleted.
    fs::write(root.join(METRICS), "{}\n").unwrap();
    assert!(matches!(create(&root).unwrap_err(), Error::InUse { .. }));
    assert!(matches!(RunFolder::lock(&root).unwrap_err(), Error::NoRun { .. }));
    fs::remove_dir_all(&root).unwrap();
    create(&root).unwrap();
}

#[test]
fn a_resume_deletes_only_the_runs_own_later_files() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    drop(create(root).unwrap());
    let own = [
        "steps/000003.parquet",
        "steps/.000002.parquet.a1B2.partial",
        // The second step was played ahead of its update.
        "tokens/000002.parquet",
        "traces/000003.jsonl.zst",
        "traces/000003-held_out.jsonl.zst",
        "traces/.000001-held_out.jsonl.zst.a1B2.partial",
        ".plan.json.a1B2.partial",
    ];
    let kept = [
        "steps/000002.parquet",
        "tokens/000001.parquet",
        "traces/000002-held_out.jsonl.zst",
        "steps/3.parquet",
        "steps/+000003.parquet",
        "steps/000003.csv",
        "steps/notes.txt",
        "traces/plot.jsonl.zst",
        "traces/.000003.jsonl.zst.swp",
        ".notes.txt.a1B2.partial",
        "plan.json",
    ];
    for name in own.iter().chain(&kept) {
        fs::write(root.join(name), "x").unwrap();
    }
    let steps = FinishedSteps { played: 2, trained: 1 };
    RunFolder::resume(RunFolder::lock(root).unwrap(), steps, LogLengths::default()).unwrap();
    assert_eq!(own.map(|name| root.join(name).exists()), [false; 7]);
    assert_eq!(kept.map(|name| root.join(name).exists()), [true; 11]);
}

/// Lets two writers into a folder, each of which writes at the position that it knows: one that has done three steps, and
/// one that continues after the first step. Once the lock's file is gone, the second one gets a lock of its own.
fn without_the_lock(root: &Path) -> [RunFolder; 2] {
    let mut first = create(root).unwrap();
    first.append_metrics(1, &json!({ "step": 1 })).unwrap();
    let checkpoint = root.join(METRICS).metadata().unwrap().len();
    first.append_metrics(2, &json!({ "step": 2 })).unwrap();
    first.append_metrics(3, &json!({ "step": 3 })).unwrap();
    assert!(matches!(RunFolder::lock(root), Err(Error::Locked { .. })));
    fs::remove_file(root.join("run.lock")).unwrap();
    let steps = FinishedSteps { played: 1, trained: 1 };
    let lengths = LogLengths { metrics: checkpoint, ..LogLengths::default() };
    let second = RunFolder::resume(RunFolder::lock(root).unwrap(), steps, lengths).unwrap();
    [first, second]
}

/// A control of the lock.
#[test]
fn without_the_lock_two_writers_damage_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let [mut first, mut second] = without_the_lock(root);
    second.append_metrics(2, &json!({ "step": 2 })).unwrap();
    let whole = read_jsonl::<Value>(&root.join(METRICS)).unwrap();
    assert_eq!(whole, [json!({ "step": 1 }), json!({ "step": 2 })]);
    first.append_metrics(4, &json!({ "step": 4 })).unwrap();
    // The third step is gone, and zeros stand in its place.
    let damaged = read_jsonl::<Value>(&root.join(METRICS));
    assert!(matches!(damaged, Err(Error::Line { line: 3, .. })), "{damaged:?}");
}

/// A control of the lock. The second writer's numbers differ, as those of a policy on a server may: its line of the second
/// step is as long as two lines of the first writer.
#[test]
fn without_the_lock_two_writers_log_a_step_twice() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let [mut first, mut second] = without_the_lock(root);
    second.append_metrics(2, &json!({ "step": 2, "loss": 0.5 })).unwrap();
    second.append_metrics(3, &json!({ "step": 3 })).unwrap();
    first.append_metrics(4, &json!({ "step": 4 })).unwrap();
    second.append_metrics(4, &json!({ "step": 4 })).unwrap();
    // The log can be read, but the third step is gone, and the fourth is there from each writer.
    let lines = read_jsonl::<Value>(&root.join(METRICS)).unwrap();
    let steps: Vec<u64> = lines.iter().filter_map(|line| line["step"].as_u64()).collect();
    assert_eq!(steps, [1, 2, 4, 4]);
}

#[test]
fn a_log_that_is_too_short_stops_a_resume_before_anything_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    drop(create(root).unwrap());
    for name in ["metrics.jsonl", "timings.jsonl", "steps/000003.parquet"] {
        fs::write(root.join(name), "1\n2\n").unwrap();
    }
    let lengths = LogLengths { metrics: 2, timings: 2, failures: 1, ..LogLengths::default() };
    let steps = FinishedSteps { played: 2, trained: 2 };
    let error = RunFolder::resume(RunFolder::lock(root).unwrap(), steps, lengths).unwrap_err();
    assert!(matches!(error, Error::Truncated { found: 0, expected: 1, .. }), "{error}");
    for name in ["metrics.jsonl", "timings.jsonl", "steps/000003.parquet"] {
        assert_eq!(fs::read_to_string(root.join(name)).unwrap(), "1\n2\n", "{name}");
    }
}

#[test]
fn a_folder_has_episodes_once_something_was_recorded() {
    for name in ["metrics.jsonl", "failures.jsonl", "steps/000001.parquet", "traces/000000-test.jsonl.zst"] {
        let folder = tempfile::tempdir().unwrap();
        drop(create(folder.path()).unwrap());
        fs::write(folder.path().join("steps/notes.txt"), "mine").unwrap();
        assert!(!RunFolder::has_episodes(folder.path()).unwrap());
        fs::write(folder.path().join(name), "{}\n").unwrap();
        assert!(RunFolder::has_episodes(folder.path()).unwrap(), "{name}");
    }
}

#[test]
fn a_pipe_or_a_huge_file_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::os::unix::fs::symlink("/dev/zero", root.join("lock.json")).unwrap();
    let huge = fs::File::create(root.join("workflow.json")).unwrap();
    huge.set_len(LARGEST_TEXT + 1).unwrap();
    let read = |name| RunFolder::read_json::<serde_json::Value>(root, name).unwrap_err().to_string();
    assert!(read("lock.json").contains("it is not a file"), "{}", read("lock.json"));
    assert!(read("workflow.json").contains("larger than 64 MiB"), "{}", read("workflow.json"));
}

#[test]
fn only_runs_are_locked() {
    let folder = tempfile::tempdir().unwrap();
    let error = RunFolder::lock(folder.path()).unwrap_err();
    assert!(matches!(error, Error::NoRun { .. }), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_run_folder_without_its_lock_file_is_not_taken_for_another_folder() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    drop(create(root).unwrap());
    fs::remove_file(root.join("lock.json")).unwrap();
    // A new run there would be refused.
    assert!(matches!(RunFolder::check_unused(root), Err(Error::Occupied { .. })));
    let errors = [RunFolder::require(root).unwrap_err(), RunFolder::read_lock(root).unwrap_err()];
    for error in errors.map(|error| error.to_string()) {
        assert!(error.contains("is a run folder without lock.json; restore"), "{error}");
    }
}
