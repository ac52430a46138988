//! Faults of disks and machines: power loss at any sync, writes that fail, and shells with little of anything. A run ends as
//! an undisturbed one, or says what is missing.

mod disk;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use pl_testing::{Requirement, sample, skip_or_fail};

use crate::support::{assert_equal_runs, pl_host, run, scenario, stderr, succeed};

use self::disk::{CALLS, Call, Disk, Loss};

/// States of the disk that are tried, of each kind. `PL_HOST_ALL_PROGRAMS=1` tries all.
const STATES: usize = 8;

fn has_strace() -> bool {
    let found = Command::new("strace").args(["-o", "/dev/null", "true"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return true;
    }
    skip_or_fail(Requirement::Strace, "strace is not on the PATH, or may not trace");
    false
}

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

/// Continues a run and compares it with an undisturbed one. A run that has no checkpoint may ask whether to start again.
fn continues(out: &Path, reference: &Path, what: &str) {
    let mut resumed = resume(out).output().unwrap();
    if resumed.status.code() == Some(2) && stderr(&resumed).contains("--from-start") {
        resumed = resume(out).arg("--from-start").output().unwrap();
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
        for (number, (name, disk)) in sample(states.iter().enumerate().skip(step / 2).collect(), step) {
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

#[test]
fn a_failing_disk_ends_a_run_that_continues_afterwards() {
    if !has_strace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/tree-l2.mas");
    let reference = folder.path().join("reference");
    succeed(&mut run(&file, &reference, &[]));
    let mut failures = 0;
    let faults: Vec<(&str, u32)> = [("fsync", 2), ("fsync", 9), ("fsync", 25), ("fsync", 60)]
        .into_iter()
        .chain([("rename,renameat,renameat2,link,linkat", 1), ("rename,renameat,renameat2,link,linkat", 7)])
        .chain([("ftruncate", 1), ("mkdir,mkdirat", 3)])
        .collect();
    for (number, (calls, when)) in faults.iter().enumerate() {
        let out = folder.path().join(format!("failed-{number}"));
        let inject = format!("inject={calls}:error=EIO:when={when}");
        let log = folder.path().join("log").display().to_string();
        let what = format!("call {when} of {calls}");
        let mut failing = traced(&run(&file, &out, &[]), &["-f", "--seccomp-bpf", "-e", &inject, "-o", &log]);
        let succeeded = ends_in_order(&failing.output().unwrap(), &what);
        failures += u32::from(!succeeded);
        if out.join("workflow.json").exists() {
            continues(&out, &reference, &what);
        } else {
            assert!(!succeeded, "{what}");
        }
    }
    assert!(failures >= 4, "only {failures} of {} faults ended a run", faults.len());
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
