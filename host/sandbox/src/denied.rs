//! A sandbox that runs nothing.

use async_trait::async_trait;

use crate::job::{Ending, Job, Verdict};
use crate::sandbox::Sandbox;

/// A sandbox that refuses every job and writes its reason to the verdict's stderr.
#[derive(Debug, Clone)]
pub struct DeniedSandbox(pub String);

#[async_trait]
impl Sandbox for DeniedSandbox {
    async fn execute(&self, jobs: Vec<Job>) -> Vec<Verdict> {
        jobs.iter().map(|_| Verdict::from_sandbox(Ending::LostWorker, &self.0, true)).collect()
    }
}
