//! The process that writes into a run folder, for messages.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Process that holds the lock of a run folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    pub pid: u32,
    /// Name of its machine. Empty if the system does not tell it.
    pub host: String,
    /// Time at which it took the lock, in UTC.
    pub since: String,
}

impl LockHolder {
    /// Describes this process.
    pub(crate) fn this_process() -> LockHolder {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        LockHolder {
            pid: std::process::id(),
            host: host.trim().to_owned(),
            since: chrono::Utc::now().format("%Y-%m-%d %H:%M:%S UTC").to_string(),
        }
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        if !self.host.is_empty() {
            write!(f, " on {}", self.host)?;
        }
        write!(f, " (since {})", self.since)
    }
}
