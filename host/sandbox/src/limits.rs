//! Limits of jobs.

use std::time::Duration;

use pl_wasm::FUEL_PER_SECOND;
use serde::{Deserialize, Serialize};

/// Limits of one job, and the number of jobs at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLimits {
    /// Time limit of one job. In WebAssembly the job's clock counts fuel: the same job times out at the same
    /// instruction on every machine.
    pub timeout: Duration,
    /// Memory of one job in bytes. In WebAssembly it includes the interpreter's own (about 100 MiB).
    pub memory: u64,
    /// Bytes kept of each of stdout and stderr. A job that prints more is ended.
    pub output: u64,
    /// Number of jobs at a time.
    pub workers: u32,
    /// Fuel of one job in WebAssembly. `None` derives it from `timeout`.
    pub fuel: Option<u64>,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(20),
            memory: 256 << 20,
            output: 64 << 10,
            workers: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            fuel: None,
        }
    }
}

impl SandboxLimits {
    /// Returns the fuel of one job in WebAssembly.
    pub(crate) fn fuel(&self) -> u64 {
        self.fuel.unwrap_or_else(|| {
            let fuel = self.timeout.as_secs_f64() * FUEL_PER_SECOND as f64;
            fuel as u64
        })
    }
}
