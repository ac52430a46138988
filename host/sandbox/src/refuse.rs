//! A sandbox for those that may not have one.

use async_trait::async_trait;

use crate::{Ending, Job, Sandbox, Verdict};

/// Refuses every job, saying why on stderr.
#[derive(Debug, Clone)]
pub struct Refuse(pub String);

#[async_trait]
impl Sandbox for Refuse {
    async fn execute(&self, jobs: Vec<Job>) -> Vec<Verdict> {
        jobs.iter().map(|_| Verdict::of_sandbox(Ending::LostWorker, &self.0, true)).collect()
    }
}
