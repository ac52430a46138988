//! A run whose clock jumps back and forth ends with the same bits as an undisturbed one.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pl_testing::{Requirement, skip_or_fail};
use tempfile::TempDir;

use crate::support::{assert_equal_runs, lock, pl_host, run, scenario, stderr, succeed};

/// Offsets of the clock, one after the other: hours and days, over midnight and over years.
const OFFSETS: [&str; 8] = ["+0", "+1d", "-1d", "+1h", "-1h", "+12h", "-400d", "+400d"];

/// Time between two jumps. A run has dozens of them.
const BETWEEN: Duration = Duration::from_millis(15);

/// An hour in seconds.
const HOUR: f64 = 3600.0;

/// Returns the library of Debian's package `libfaketime` for programs with several threads.
fn library() -> Option<PathBuf> {
    let of_architecture = fs::read_dir("/usr/lib").ok()?.flatten();
    let found = of_architecture
        .map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"))
        .find(|path| path.exists());
    if found.is_none() {
        skip_or_fail(Requirement::Faketime, "libfaketime is not in /usr/lib/ARCHITECTURE/faketime");
    }
    found
}

/// A clock that can be set while a program runs.
struct Clock {
    folder: TempDir,
    library: PathBuf,
}

impl Clock {
    fn set(&self, offset: &str) {
        let next = self.folder.path().join("next");
        fs::write(&next, offset).unwrap();
        fs::rename(&next, self.offset()).unwrap();
    }

    fn offset(&self) -> PathBuf {
        self.folder.path().join("offset")
    }

    fn start(&self, mut command: Command) -> Child {
        command
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", self.offset())
            .env("FAKETIME_NO_CACHE", "1")
            // As on a machine whose clock is set: the monotonic clock goes on.
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Lets the clock jump until a program ends, or until `enough`, and then kills it. Returns true if it ended.
    fn jump(&self, mut child: Child, enough: impl Fn() -> bool) -> bool {
        let mut jumps = OFFSETS.iter().cycle();
        while child.try_wait().unwrap().is_none() {
            if enough() {
                child.kill().unwrap();
                child.wait().unwrap();
                return false;
            }
            jumps.next().into_iter().for_each(|offset| self.set(offset));
            std::thread::sleep(BETWEEN);
        }
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        true
    }
}

/// Returns the times of the events that a run wrote for TensorBoard, in seconds: records of a length, four bytes, an event
/// that begins with its time, and four bytes.
fn times(out: &Path) -> Vec<f64> {
    let is_events = |path: &PathBuf| path.to_string_lossy().contains("tfevents");
    let path = fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path()).find(is_events).unwrap();
    let bytes = fs::read(path).unwrap();
    let mut rest = bytes.as_slice();
    let mut times = Vec::new();
    while let Some((length, after)) = rest.split_first_chunk::<8>() {
        let length = u64::from_le_bytes(*length) as usize;
        let event = &after[4..4 + length];
        assert_eq!(event[0], 9, "the first field of an event is its time");
        times.push(f64::from_le_bytes(event[1..9].try_into().unwrap()));
        rest = &after[4 + length + 4..];
    }
    times
}

#[test]
fn a_clock_that_jumps_changes_nothing() {
    let Some(library) = library() else { return };
    let clock = Clock { folder: tempfile::tempdir().unwrap(), library };
    let folder = tempfile::tempdir().unwrap();
    let file = scenario("letters/tree-l2.mas");
    let (reference, jumping) = (folder.path().join("reference"), folder.path().join("jumping"));
    succeed(&mut run(&file, &reference, &[]));
    // The date of a run is that of its start.
    clock.set("+0");
    let child = clock.start(run(&file, &jumping, &[]));
    while !jumping.join("lock.json").exists() {
        std::thread::sleep(BETWEEN);
    }
    let date = lock(&jumping)["date"].clone();
    let has_checkpoint = || {
        fs::read_dir(jumping.join("checkpoints"))
            .is_ok_and(|all| all.flatten().any(|one| one.path().is_dir()))
    };
    let ended = clock.jump(child, has_checkpoint);
    assert!(!ended, "the run was faster than its first checkpoint was found");
    let seen = times(&jumping);
    let mut resumed = pl_host();
    resumed.arg("run").arg("--resume").arg(&jumping).args(["--device", "cpu", "--from-start"]);
    // Two days later.
    clock.set("+2d");
    assert!(clock.jump(clock.start(resumed), || false));
    // The control: the program has seen the jumps.
    let seen = [seen, times(&jumping)].concat();
    let back = seen.windows(2).filter(|pair| pair[0] - pair[1] > HOUR / 2.0).count();
    assert!(back > 1, "{seen:?}");
    assert_equal_runs(&reference, &jumping, "a clock that jumps");
    assert_eq!(lock(&jumping)["date"], date);
}
