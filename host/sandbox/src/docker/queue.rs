//! The queue of jobs that wait for a container.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::queued_job::QueuedJob;

/// A first-in, first-out queue. Jobs that lost their container go to its front.
pub struct JobQueue {
    jobs: Mutex<VecDeque<QueuedJob>>,
    /// One permit per queued job.
    permits: Semaphore,
}

impl JobQueue {
    pub fn new() -> Self {
        Self { jobs: Mutex::default(), permits: Semaphore::new(0) }
    }

    pub fn push(&self, job: QueuedJob) {
        self.jobs.lock().push_back(job);
        self.permits.add_permits(1);
    }

    pub fn push_first(&self, job: QueuedJob) {
        self.jobs.lock().push_front(job);
        self.permits.add_permits(1);
    }

    /// Waits for a job. Cancel-safe.
    pub async fn pop(&self) -> QueuedJob {
        loop {
            if let Ok(permit) = self.permits.acquire().await {
                permit.forget();
            }
            if let Some(job) = self.jobs.lock().pop_front() {
                return job;
            }
        }
    }

    /// Removes and returns all queued jobs.
    pub fn take_all(&self) -> Vec<QueuedJob> {
        let mut taken = Vec::new();
        while let Ok(permit) = self.permits.try_acquire() {
            permit.forget();
            taken.extend(self.jobs.lock().pop_front());
        }
        taken
    }
}
