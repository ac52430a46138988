//! The kernel's counters of processes that it killed because memory ran out and of processes that it refused
//! to create.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// Counters of this container, for control groups of version 2 or 1.
pub struct Counters {
    memory: Counter,
    processes: Counter,
}

struct Counter {
    file: Option<File>,
    key: &'static str,
    last: u64,
}

impl Counters {
    /// Opens the counters. Without control groups nothing is ever reported.
    pub fn open() -> Self {
        Self {
            memory: Counter::open(
                &["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"],
                "oom_kill",
            ),
            processes: Counter::open(
                &["/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events"],
                "max",
            ),
        }
    }

    /// Returns two flags for the time since the last call: a process was killed because memory ran out; the
    /// creation of a process was refused.
    pub fn since_last(&mut self) -> (bool, bool) {
        (self.memory.has_grown(), self.processes.has_grown())
    }
}

impl Counter {
    fn open(paths: &[&str], key: &'static str) -> Self {
        let file = paths.iter().find_map(|path| File::open(path).ok());
        let mut counter = Self { file, key, last: 0 };
        counter.has_grown();
        counter
    }

    fn has_grown(&mut self) -> bool {
        let now = self.read().unwrap_or(self.last);
        std::mem::replace(&mut self.last, now) < now
    }

    fn read(&self) -> Option<u64> {
        let mut buffer = [0; 512];
        let length = self.file.as_ref()?.read_at(&mut buffer, 0).ok()?;
        let text = std::str::from_utf8(buffer.get(..length)?).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(self.key)?.strip_prefix(' '))?;
        line.trim().parse().ok()
    }
}
