//! Numbers of tasks, updates and jobs, for the status of workers, learners and sandbox machines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use pl_cluster::{Worker, WorkerStatus};
use tokio::task::JoinHandle;

use crate::host::Host;

use super::cpu::cpu_kind;

/// Numbers of a worker's tasks, a learner's updates, or a sandbox machine's jobs.
#[derive(Default)]
pub(super) struct Counters {
    running: AtomicU32,
    done: AtomicU64,
}

impl Counters {
    /// Counts one that begins.
    pub fn begin(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one that has ended.
    pub fn end(&self, is_done: bool) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.done.fetch_add(u64::from(is_done), Ordering::Relaxed);
    }

    /// Counts one while it runs, and afterwards if it is done.
    pub fn count<T, E>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.begin();
        let result = work();
        self.end(result.is_ok());
        result
    }

    /// Returns the number of those that run.
    pub fn running(&self) -> u32 {
        self.running.load(Ordering::Relaxed)
    }

    /// Returns the number of those that are done.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Answers questions for the status of a process until the task is aborted.
    pub fn answer_status(
        self: &Arc<Self>,
        host: &Host,
        worker: &Worker,
        name: &str,
        policies: &[String],
        slots: u32,
    ) -> JoinHandle<()> {
        let (counters, worker) = (Arc::clone(self), worker.clone());
        let idle = WorkerStatus {
            worker: name.to_owned(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            cpu: cpu_kind(),
            policies: policies.to_vec(),
            slots,
            playing: 0,
            played: 0,
        };
        let status =
            move || WorkerStatus { playing: counters.running(), played: counters.done(), ..idle.clone() };
        host.handle().spawn(async move { worker.answer_status(status).await })
    }
}
