//! The kernel's counts of processes that it killed for want of memory and of processes that it refused.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The counts of this container, of version 2 and 1 of control groups.
pub struct Counters {
    memory: Count,
    processes: Count,
}

struct Count {
    file: Option<File>,
    key: &'static str,
    last: u64,
}

impl Counters {
    /// Where the container has no such counts, nothing is ever found to have happened.
    pub fn open() -> Self {
        Self {
            memory: Count::open(
                &["/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"],
                "oom_kill",
            ),
            processes: Count::open(&["/sys/fs/cgroup/pids.events", "/sys/fs/cgroup/pids/pids.events"], "max"),
        }
    }

    /// Whether a process was killed for want of memory, and whether one was refused, since the last call.
    pub fn since_last(&mut self) -> (bool, bool) {
        (self.memory.has_grown(), self.processes.has_grown())
    }
}

impl Count {
    fn open(places: &[&str], key: &'static str) -> Self {
        let file = places.iter().find_map(|place| File::open(place).ok());
        let mut count = Self { file, key, last: 0 };
        count.has_grown();
        count
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
