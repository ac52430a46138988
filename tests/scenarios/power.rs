//! Faults of disks and machines: power loss at any sync, full disks, calls that fail, kills while checkpoints change, and
//! shells with little of anything. A run ends as an undisturbed one, or says what is missing.

mod disk;
mod failing_disk;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use pl_testing::{has_strace, sample};

use crate::support::{assert_equal_runs, content, pl_host, run, scenario, stderr, succeed};

use self::disk::{CALLS, Call, Disk, Loss};
use self::failing_disk::{Change, FailingDisk, Fault, changes};

/// States of the disk that are tried, of each kind. `PL_HOST_ALL_PROGRAMS=1` tries all.
const STATES: usize = 8;

/// Faults of the disk that are tried at even distances, besides those at powers of two.
const SPACED: usize = 2;

/// Beginnings of the names of files that a run goes on without: that of the process that holds the lock, the mark of the
/// user's own, and the picture.
const DISPENSABLE: [&str; 3] = ["run.lock", ".workflow.json.mac.", "curves."];

/// Calls that rename.
const RENAMES: &str = "rename,renameat,renameat2";

/// Returns a command under strace.
fn traced(command: &Command, arguments: &[&str]) -> Command {
    let mut strace = Command::new("strace");
    strace.args(arguments).arg("--").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => strace.env(name, value),
            None => strace.env_remove(name),
        };
    }
    strace
}

fn resume(out: &Path) -> Command {
    let mut command = pl_host();
    command.arg("run").arg("--resume").arg(out).args(["--device", "cpu"]);
    command
}

/// Continues a run and compares it with an undisturbed one. A run may ask whether it is trusted, if it could not be marked as
/// the user's own, and whether to start again, if it has no checkpoint.
fn continues(out: &Path, reference: &Path, what: &str) {
    let mut command = resume(out);
    let mut resumed = command.output().unwrap();
    for flag in ["--trust", "--from-start"] {
        if resumed.status.code() == Some(2) && stderr(&resumed).contains(flag) {
            resumed = command.arg(flag).output().unwrap();
        }
    }
    assert!(resumed.status.success(), "{what}: {}", stderr(&resumed));
    assert_equal_runs(reference, out, what);
}

/// The calls of a run, and the folder that it wrote.
fn record(folder: &Path) -> Vec<Call> {
    let logs = folder.join("logs");
    fs::create_dir(&logs).unwrap();
    let command = run(&scenario("letters/tree-l2.mas"), &folder.join("reference"), &[]);
    let (log, calls) = (logs.join("log").display().to_string(), format!("trace={CALLS}"));
    let how = ["-ff", "-T", "--seccomp-bpf", "-y", "-xx", "-s", "100000000"];
    let clock = ["--absolute-timestamps=format:unix,precision:ns", "-e", &calls, "-o", &log];
    succeed(&mut traced(&command, &[&how[..], &clock[..]].concat()));
    Call::read_all(&logs)
}

#[test]
fn a_run_survives_power_loss_at_any_sync() {
    if !has_strace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let reference = folder.path().join("reference");
    let calls = record(folder.path());
    let mut disk = Disk::new(&reference);
    let mut states = Vec::new();
    for call in &calls {
        if disk.apply(call) {
            states.push((call.name.clone(), disk.clone()));
        }
    }
    assert!(states.len() > 50, "only {} calls changed the run folder", states.len());
    // With the power on, the files are those that the run wrote.
    disk.apply(&Call::sync());
    let whole = folder.path().join("whole");
    disk.write(Loss::All, &whole);
    assert_equal_runs(&reference, &whole, "the whole log");

    let (mut resumed, mut begun) = (0, BTreeSet::new());
    for loss in [Loss::All, Loss::Contents] {
        let step = states.len().div_ceil(STATES);
        for (number, (name, disk)) in sample(states.iter().enumerate().rev().collect(), step) {
            let out = folder.path().join(format!("{loss:?}-{number}"));
            disk.write(loss, &out);
            let what = format!("power loss ({loss:?}) after change {number} of {}, {name}", states.len());
            if fs::read(out.join("workflow.json")).is_ok_and(|text| !text.is_empty()) {
                continues(&out, &reference, &what);
                resumed += 1;
            } else {
                // The run folder was not complete yet: nothing is lost, and a message says so.
                let refused = resume(&out).output().unwrap();
                assert_eq!(refused.status.code(), Some(2), "{what}: {}", stderr(&refused));
                begun.insert(number);
            }
            fs::remove_dir_all(&out).unwrap();
        }
    }
    eprintln!("{} changes, {resumed} runs resumed, {} had not begun", states.len(), begun.len());
    assert!(resumed > STATES / 2, "{resumed}");
}

/// The control: the same run on a disk that ignores syncs is lost.
#[test]
fn without_syncs_a_power_loss_takes_the_run() {
    if !has_strace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let calls = record(folder.path());
    let mut disk = Disk::new(&folder.path().join("reference"));
    calls.iter().filter(|call| !call.name.contains("sync")).for_each(|call| {
        disk.apply(call);
    });
    let out = folder.path().join("lost");
    disk.write(Loss::Contents, &out);
    assert!(out.join("workflow.json").exists());
    assert!(!resume(&out).output().unwrap().status.success());
}

/// Checks that a command that met a fault has ended with a message, or as if nothing had happened.
fn ends_in_order(output: &Output, what: &str) -> bool {
    let message = stderr(output);
    assert!(!message.contains("panicked"), "{what}: {message}");
    match output.status.code() {
        Some(0) => true,
        Some(1 | 2) => {
            assert!(message.contains("error: "), "{what}: {message}");
            false
        }
        other => panic!("{what}: it ended with {other:?}: {message}"),
    }
}

/// Checks that a run that met a fault of its disk has ended with an error that names the place and the cause, and says what is
/// left and how to continue it, or as if nothing had happened. Returns true if it ended with an error.
fn ends_by_fault(output: &Output, out: &Path, cause: &str, what: &str) -> bool {
    if ends_in_order(output, what) {
        return false;
    }
    let message = format!("\n{}", stderr(output));
    let error = message.split_once("\nerror: ").map_or("", |(_, error)| error);
    let (reason, left) = error.split_once("the run stopped after").unwrap_or((error, ""));
    // The first sync of a run is that of the folder around its own.
    let place = out.parent().unwrap().display().to_string();
    assert!(reason.contains(&place) && reason.contains(cause), "{what}: {message}");
    if has_begun(output, out) {
        assert_eq!(output.status.code(), Some(1), "{what}: {message}");
        assert!(left.contains(&format!("pl-host run --resume {}", out.display())), "{what}: {message}");
    }
    true
}

/// Returns true if the folder of a run was complete before it ended.
fn has_begun(output: &Output, out: &Path) -> bool {
    let line = format!("run folder {}", out.display());
    stderr(output).lines().any(|shown| shown.starts_with(&line))
}

/// Numbers of runs that met a fault.
#[derive(Default)]
struct FaultCounts {
    runs: usize,
    /// Those that ended with an error.
    failures: usize,
    /// Those of the failures whose folder was complete before.
    begun: usize,
}

impl FaultCounts {
    /// Counts a run, and continues it. One without a workflow in its folder must have ended with an error instead.
    /// One that has ended without an error lacks nothing, also before it is continued.
    fn add(&mut self, has_ended: bool, output: &Output, out: &Path, reference: &Path, what: &str) {
        self.runs += 1;
        self.failures += usize::from(has_ended);
        self.begun += usize::from(has_ended && has_begun(output, out));
        if !has_ended {
            assert_equal_runs(reference, out, what);
        }
        if out.join("workflow.json").exists() {
            continues(out, reference, what);
        } else {
            assert!(has_ended, "{what}");
        }
    }

    /// Checks that at least half of the faults ended a run, and some of them one that had begun.
    fn check(&self) {
        let FaultCounts { runs, failures, begun } = *self;
        eprintln!("{failures} of {runs} faults ended a run");
        assert!(failures * 2 >= runs, "only {failures} of {runs} faults ended a run");
        assert!(begun > 0, "no run had begun when it met its fault");
    }
}

/// Returns the numbers from 1 to `total` at which a fault is tried: powers of two, since a run begins with small files, and
/// some at even distances from the end. `PL_HOST_ALL_PROGRAMS=1` tries all.
fn places(total: u64) -> BTreeSet<u64> {
    let doubled = (0..u64::BITS).map(|bit| 1_u64 << bit).take_while(|place| *place <= total);
    let all: Vec<u64> = (1..=total).rev().collect();
    let step = all.len().div_ceil(SPACED).max(1);
    doubled.chain(sample(all, step)).collect()
}

/// Returns errors of changes of some kinds, for each kind at [`places`] of the number that an undisturbed run makes.
fn errors_of(kinds: &[&'static str], undisturbed: &[Change]) -> Vec<Fault> {
    let mut faults = Vec::new();
    for kind in kinds.iter().copied() {
        let total = undisturbed.iter().filter(|change| change.kind == kind).count() as u64;
        assert!(total > 0, "the library has seen no change of the kind `{kind}`");
        faults.extend(places(total).into_iter().map(|number| Fault::Change(kind, number)));
    }
    faults
}

/// Lets runs meet faults of their disk, which `faults` takes from the changes that an undisturbed run makes. Each run
/// ends with an error if the write of a file failed that it can't go on without, and continues afterwards.
fn survives_faults(faults: impl Fn(&[Change]) -> Vec<Fault>) {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let disk = FailingDisk::compile(&root);
    let file = scenario("letters/tree-l2.mas");
    let reference = root.join("reference");
    let mut undisturbed = run(&file, &reference, &[]);
    disk.hold(&mut undisturbed, &reference, None);
    succeed(&mut undisturbed);
    let counted = changes(&reference);
    // The library has seen the writes of all files.
    let bytes: u64 = counted.iter().map(|change| change.bytes).sum();
    let left: usize = content(&reference).values().map(Vec::len).sum();
    assert!(bytes > left as u64, "{bytes} bytes were written, but {left} are there");

    let mut counts = FaultCounts::default();
    for (number, fault) in faults(&counted).into_iter().enumerate() {
        let (out, what) = (root.join(format!("failed-{number}")), format!("{fault:?}"));
        let mut failing = run(&file, &out, &[]);
        disk.hold(&mut failing, &out, Some(fault));
        let output = failing.output().unwrap();
        let has_ended = ends_by_fault(&output, &out, fault.cause(), &what);
        let failed: Vec<Change> = changes(&out).into_iter().filter(|change| change.has_failed).collect();
        // Other changes may fail without harm, such as creating a folder that is there already.
        if failed.iter().all(|change| change.kind == "write") {
            let is_dispensable = |change: &Change| DISPENSABLE.iter().any(|own| change.file.starts_with(own));
            let is_fatal = !failed.iter().all(is_dispensable);
            assert_eq!(has_ended, is_fatal, "{what}: {failed:?}: {}", stderr(&output));
        }
        counts.add(has_ended, &output, &out, &reference, &what);
        // A run that could not start may have left nothing.
        if out.exists() {
            fs::remove_dir_all(&out).unwrap();
        }
    }
    counts.check();
}

/// The disk is full after 1, 2, 4, … KiB of all that a run writes, and at even distances up to the end.
#[test]
fn a_disk_full_at_any_kibibyte_ends_a_run_that_continues() {
    survives_faults(|undisturbed| {
        let bytes: u64 = undisturbed.iter().map(|change| change.bytes).sum();
        places(bytes >> 10).into_iter().map(|number| Fault::Full(number << 10)).collect()
    });
}

/// The 1st, 2nd, 4th, … write of a run is an error, and some at even distances up to the last one.
#[test]
fn any_write_that_fails_ends_a_run_that_continues_afterwards() {
    survives_faults(|undisturbed| errors_of(&["write"], undisturbed));
}

/// Temporary files that are renamed afterwards, logs, the lock, and the files of checkpoints.
#[test]
fn any_file_that_can_not_be_created_ends_a_run_that_continues_afterwards() {
    survives_faults(|undisturbed| errors_of(&["create"], undisturbed));
}

/// Folders of a run and of its checkpoints, and the link to the best one.
#[test]
fn any_folder_or_link_that_can_not_be_created_ends_a_run_that_continues_afterwards() {
    survives_faults(|undisturbed| errors_of(&["mkdir", "symlink"], undisturbed));
}

/// Files and folders of the checkpoint that later ones replace, and files that show which permissions new ones get.
#[test]
fn any_removal_that_fails_ends_a_run_that_continues_afterwards() {
    survives_faults(|undisturbed| errors_of(&["remove"], undisturbed));
}

/// Lets runs meet errors of system calls, each of the n-th such call of every thread. At least half of them must end a run; all
/// continue afterwards.
fn survives_failing_calls(faults: &[(&str, u32)]) {
    if !has_strace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/tree-l2.mas");
    let reference = folder.path().join("reference");
    // Also makes the user's key and the caches, whose calls would otherwise count in the runs that meet faults.
    succeed(&mut run(&file, &reference, &[]));
    let mut counts = FaultCounts::default();
    for (number, (calls, when)) in faults.iter().enumerate() {
        let out = folder.path().join(format!("failed-{number}"));
        let (trace, inject) = (format!("trace={calls}"), format!("inject={calls}:error=EIO:when={when}"));
        let log = folder.path().join("log").display().to_string();
        let what = format!("call {when} of {calls}");
        let how = ["-f", "--seccomp-bpf", "-e", &trace, "-e", &inject, "-o", &log];
        let mut failing = traced(&run(&file, &out, &[]), &how);
        let output = failing.output().unwrap();
        let has_ended = ends_by_fault(&output, &out, "Input/output error", &what);
        counts.add(has_ended, &output, &out, &reference, &what);
    }
    counts.check();
}

/// Syncs of files that are renamed afterwards, of checkpoints and of folders; and those of logs, which are `fdatasync`.
#[test]
fn any_sync_that_fails_ends_a_run_that_continues_afterwards() {
    let syncs = [1, 2, 4, 8, 16, 32, 64].map(|when: u32| ("fsync", when));
    let logs = [1, 8].map(|when: u32| ("fdatasync", when));
    survives_failing_calls(&[&syncs[..], &logs[..]].concat());
}

/// Renames of files are `renameat`; those of checkpoints and of the link to the best one are `rename`. Also a log that
/// can't be truncated.
#[test]
fn any_rename_that_fails_ends_a_run_that_continues_afterwards() {
    let files = [1, 2, 4, 8].map(|when: u32| ("renameat,renameat2", when));
    let checkpoints = [1, 4, 7].map(|when: u32| ("rename", when));
    let truncation = [("ftruncate", 3)];
    survives_failing_calls(&[&files[..], &checkpoints[..], &truncation[..]].concat());
}

/// SIGKILL at the calls that put a checkpoint in its place, make the link to the best one and delete an earlier one.
#[test]
fn a_kill_at_any_change_of_the_checkpoints_loses_nothing() {
    if !has_strace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/tree-l2.mas");
    let reference = folder.path().join("reference");
    succeed(&mut run(&file, &reference, &[]));
    let changes = [
        ("step-00000002.partial", RENAMES),
        ("step-00000006.partial", RENAMES),
        ("best.new", RENAMES),
        // The second step's is set aside once there are three.
        ("step-00000002.partial", "unlinkat"),
    ];
    for (number, (name, calls)) in changes.into_iter().enumerate() {
        let out = folder.path().join(format!("killed-{number}"));
        let path = out.join("checkpoints").join(name);
        let (trace, inject) = (format!("trace={calls}"), format!("inject={calls}:signal=KILL:when=1"));
        let (watched, log) = (path.display().to_string(), folder.path().join("log").display().to_string());
        // With a filter of the kernel, strace can't send signals.
        let how = ["-f", "-P", &watched, "-e", &trace, "-e", &inject, "-o", &log];
        let killed = traced(&run(&file, &out, &[]), &how).output().unwrap();
        let what = format!("SIGKILL at {calls} of {name}");
        assert_eq!(killed.status.signal(), Some(9), "{what}: {}", stderr(&killed));
        assert!(path.symlink_metadata().is_ok(), "{what}");
        continues(&out, &reference, &what);
    }
}

/// Few descriptors, no folder for temporary files, a home that can't be written.
#[test]
fn a_narrow_shell_gets_an_error_or_a_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/tree-l2.mas");
    let reference = folder.path().join("reference");
    succeed(&mut run(&file, &reference, &[]));
    let home = folder.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o500)).unwrap();
    let home = home.display();
    let mut runs = 0;
    for (number, narrow) in [
        "ulimit -n 16".to_owned(),
        "ulimit -n 40".to_owned(),
        "ulimit -n 128".to_owned(),
        "export TMPDIR=/nonexistent".to_owned(),
        format!("export HOME={home} XDG_CACHE_HOME= XDG_STATE_HOME= PL_HOST_CACHE="),
        "unset HOME XDG_CACHE_HOME XDG_STATE_HOME PL_HOST_CACHE".to_owned(),
        "ulimit -v 400000".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        let out = folder.path().join(format!("narrow-{number}"));
        let wide = run(&file, &out, &[]);
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &format!("{narrow}; exec \"$@\""), "sh"])
            .arg(wide.get_program())
            .args(wide.get_args());
        shell.envs(wide.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let ended = shell.output().unwrap();
        // Out of address space, the loader, or an allocation, ends a program before it can say much.
        if narrow.starts_with("ulimit -v") && ended.status.code() != Some(0) {
            assert!(!ended.stderr.is_empty(), "{narrow}");
        } else if ends_in_order(&ended, narrow) {
            assert_equal_runs(&reference, &out, narrow);
            runs += 1;
            continue;
        }
        if out.join("workflow.json").exists() {
            continues(&out, &reference, narrow);
        }
    }
    assert!(runs >= 2, "only {runs} ran");
}
