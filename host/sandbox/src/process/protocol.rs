//! Messages between this program and its worker processes, which share a socket. Each is a frame: the length in four
//! bytes (little endian), then the value in postcard's format.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::limits::SandboxLimits;

/// First message to a worker process. Jobs follow, and each is answered with its verdict.
#[derive(Debug, Serialize, Deserialize)]
pub struct WorkerStart {
    /// Folder of compiled components, which has the worker's.
    pub cache_dir: PathBuf,
    pub limits: SandboxLimits,
}

/// First message of a worker process.
#[derive(Debug, Serialize, Deserialize)]
pub enum WorkerReady {
    /// It is confined and takes jobs.
    Ready,
    /// Reason for which it can't take any.
    Failed(String),
}
