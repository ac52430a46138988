//! Names of a run's streams, subjects and buckets.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::iter::repeat_with;

use crate::lease::LeaseQueue;

/// Bucket that lists the runs of a server.
pub(crate) const REGISTRY: &str = "pl-runs";

/// Durable consumer that all workers share.
pub(crate) const WORKERS: &str = "workers";

/// Durable consumer that all sandbox machines share.
pub(crate) const SANDBOXES: &str = "sandboxes";

/// Largest number of learners in processes of their own: their consumers are listed in the permissions of a server.
pub const MOST_LEARNERS: u32 = 32;

/// Key of the coordinator's epoch in the state of a run.
pub(crate) const EPOCH: &str = "epoch";

/// Returns the name of a worker as it may stand in subjects and keys.
pub(crate) fn worker_name(name: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    name.chars().map(|c| if allowed(c) { c } else { '-' }).collect()
}

/// Returns hexadecimal digits that can't be guessed.
pub fn random_digits(count: usize) -> String {
    // The keys of a `RandomState` come from the system's source of randomness.
    let number = || format!("{:016x}", RandomState::new().build_hasher().finish());
    let digits: String = repeat_with(number).take(count.div_ceil(16)).collect();
    digits.chars().take(count).collect()
}

/// Names that belong to one run.
#[derive(Debug, Clone)]
pub(crate) struct Names {
    pub run: String,
}

impl Names {
    pub fn new(run: &str) -> Names {
        Names { run: run.to_owned() }
    }

    /// Stream of leases, a work queue.
    pub fn tasks(&self) -> String {
        format!("pl-{}-tasks", self.run)
    }

    /// Subject of the leases of a queue.
    pub fn lease_subject(&self, queue: LeaseQueue) -> String {
        match queue {
            LeaseQueue::Workers => format!("pl.{}.task", self.run),
            LeaseQueue::Learner(learner) => format!("pl.{}.update.{learner}", self.run),
        }
    }

    pub fn lease_subjects(&self) -> Vec<String> {
        vec![self.lease_subject(LeaseQueue::Workers), format!("pl.{}.update.*", self.run)]
    }

    /// Durable consumer of a queue.
    pub fn consumer(queue: LeaseQueue) -> String {
        match queue {
            LeaseQueue::Workers => WORKERS.to_owned(),
            LeaseQueue::Learner(learner) => format!("learner-{learner}"),
        }
    }

    /// Stream of results, a log.
    pub fn results(&self) -> String {
        format!("pl-{}-results", self.run)
    }

    /// Subject of the results of a step, so that those of old steps can be removed. Workers may not publish on that of learners.
    pub fn result_subject(&self, queue: LeaseQueue, step: u64) -> String {
        match queue {
            LeaseQueue::Workers => format!("pl.{}.result.{step}", self.run),
            LeaseQueue::Learner(_) => format!("pl.{}.updated.{step}", self.run),
        }
    }

    /// Returns the queue and the step of a subject of results. That of learners' updates names no learner: the first stands for
    /// all. Returns `None` for other subjects.
    pub fn of_result_subject(&self, subject: &str) -> Option<(LeaseQueue, u64)> {
        let rest = subject.strip_prefix("pl.")?.strip_prefix(&self.run)?.strip_prefix('.')?;
        let (kind, step) = rest.split_once('.')?;
        let queue = match kind {
            "result" => LeaseQueue::Workers,
            "updated" => LeaseQueue::Learner(0),
            _ => return None,
        };
        Some((queue, step.parse().ok()?))
    }

    pub fn result_subjects(&self) -> Vec<String> {
        vec![format!("pl.{}.result.*", self.run), format!("pl.{}.updated.*", self.run)]
    }

    /// Key-value bucket: the epoch, and the newest weights of each learner.
    pub fn state(&self) -> String {
        format!("pl-{}-state", self.run)
    }

    /// Object store: weights, plugins, files, large results.
    pub fn blobs(&self) -> String {
        format!("pl-{}-blobs", self.run)
    }

    /// Subject on which the processes of a queue answer with their status. Nothing is stored.
    pub fn status_subject(&self, queue: LeaseQueue) -> String {
        match queue {
            LeaseQueue::Workers => format!("pl.{}.status", self.run),
            LeaseQueue::Learner(_) => format!("pl.{}.learners", self.run),
        }
    }

    /// Stream of jobs, a work queue.
    pub fn jobs(&self) -> String {
        format!("pl-{}-jobs", self.run)
    }

    /// Subject of the jobs.
    pub fn job_subject(&self) -> String {
        format!("pl.{}.job", self.run)
    }

    /// Stream of the parts of jobs that are larger than a message may be.
    pub fn inputs(&self) -> String {
        format!("pl-{}-inputs", self.run)
    }

    /// Subject of a part of a job.
    pub fn input_subject(&self, key: &str, index: u32) -> String {
        format!("pl.{}.input.{key}.{index}", self.run)
    }

    /// Subjects of all parts of jobs.
    pub fn input_subjects(&self) -> String {
        format!("pl.{}.input.*.*", self.run)
    }

    /// Subject of the verdicts for a process that sends jobs. Nothing is stored.
    pub fn verdict_subject(&self, requester: &str) -> String {
        format!("pl.{}.verdict.{requester}", self.run)
    }

    /// Subject on which sandbox machines answer with their status. Nothing is stored.
    pub fn sandboxes_subject(&self) -> String {
        format!("pl.{}.sandboxes", self.run)
    }

    /// Subject on which a worker is told that it was excluded, which is also kept under [`Names::aside_key`].
    pub fn aside_subject(&self, worker: &str) -> String {
        format!("pl.{}.aside.{worker}", self.run)
    }

    pub fn aside_key(worker: &str) -> String {
        format!("aside.{worker}")
    }

    pub fn learner(learner: u32) -> String {
        format!("learner.{learner}")
    }
}
