//! The interface of all backends.

use async_trait::async_trait;

use crate::job::{Job, Verdict};

/// A backend that runs jobs.
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// Runs the jobs in parallel, as far as there are workers, each on a fresh one. Returns the verdicts in
    /// the order of the jobs.
    async fn execute(&self, jobs: Vec<Job>) -> Vec<Verdict>;
}
