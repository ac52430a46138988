//! The worker processes of a sandbox.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::protocol::WorkerStart;
use super::worker_process::{ProcessError, WorkerProcess, WorkerProgram};
use crate::error::Error;
use crate::job::{Ending, Job, Verdict};
use crate::limits::SandboxLimits;
use crate::python::{WALL_CLOCK_FACTOR, run_cases};
use crate::sandbox::Sandbox;

/// Time that a worker process has beyond the wall-clock limit of a job, which it watches itself.
const GRACE: Duration = Duration::from_secs(5);

/// Time between two checks of the processes without a job.
const IDLE_CHECK: Duration = Duration::from_secs(1);

/// Bytes of a verdict in addition to its output: notes, numbers.
const VERDICT_SLACK: usize = 64 << 10;

/// Settings of worker processes.
#[derive(Debug, Clone)]
pub struct ProcessSettings {
    /// Command that starts one.
    pub program: WorkerProgram,
    /// Folder of compiled components. It should have the Python worker: a process compiles it otherwise.
    pub cache_dir: PathBuf,
    /// Limits of jobs. `workers` is the number of processes.
    pub limits: SandboxLimits,
    /// Number of jobs after which a process is replaced.
    pub jobs_per_worker: u32,
}

/// Python workers in processes of their own. A process starts when a job needs it, and serves further jobs.
#[derive(Clone)]
pub struct ProcessWorkers {
    inner: Arc<Inner>,
}

struct Inner {
    program: WorkerProgram,
    start: WorkerStart,
    jobs_per_worker: u32,
    free: Semaphore,
    idle: Mutex<Vec<WorkerProcess>>,
}

impl ProcessWorkers {
    /// Starts the first process, which shows that this machine can confine it.
    ///
    /// # Errors
    /// [`Error::Process`] with the reason for which the process takes no jobs.
    pub async fn start(settings: ProcessSettings) -> Result<Self, Error> {
        let ProcessSettings { program, cache_dir, limits, jobs_per_worker } = settings;
        let free = Semaphore::new(limits.workers.max(1) as usize);
        let start = WorkerStart { cache_dir, limits };
        let first = WorkerProcess::start(&program, &start)
            .await
            .map_err(|problem| Error::Process { program: program.path.display().to_string(), problem })?;
        let idle = Mutex::new(vec![first]);
        let inner = Arc::new(Inner { program, start, jobs_per_worker, free, idle });
        tokio::spawn(check_idle(Arc::downgrade(&inner)));
        Ok(Self { inner })
    }

    /// Runs one job as soon as a process is free, each of its cases on a fresh instance.
    pub async fn run(&self, job: Job) -> Verdict {
        run_cases(job, |job| self.inner.run(job)).await
    }
}

#[async_trait]
impl Sandbox for ProcessWorkers {
    async fn execute(&self, jobs: Vec<Job>) -> Vec<Verdict> {
        futures::future::join_all(jobs.into_iter().map(|job| self.run(job))).await
    }
}

/// Ends processes that compute without a job, as long as there are workers. The wall clock of jobs bounds only those that
/// have one, and a program that has broken out of its instance could go on after its verdict.
async fn check_idle(workers: Weak<Inner>) {
    loop {
        tokio::time::sleep(IDLE_CHECK).await;
        let Some(inner) = workers.upgrade() else { return };
        let ended: Vec<WorkerProcess> =
            inner.idle.lock().extract_if(.., |process| process.computes_without_job()).collect();
        if !ended.is_empty() {
            tracing::warn!(processes = ended.len(), "worker processes that computed without a job are ended");
        }
    }
}

impl Inner {
    /// Runs a job without cases. A job whose process is lost runs once more in another one.
    async fn run(&self, job: Job) -> Verdict {
        let Ok(_permit) = self.free.acquire().await else {
            return Verdict::from_sandbox(Ending::LostWorker, "sandbox: it has shut down\n", false);
        };
        let first = match self.try_run(&job).await {
            Ok(verdict) => return verdict,
            Err(ProcessError::Late(limit)) => {
                let note = format!("sandbox: it ran longer than {} s\n", limit.as_secs_f64());
                return Verdict::from_sandbox(Ending::Timeout, note, false);
            }
            Err(problem) => problem,
        };
        tracing::warn!(%first, "a worker process was lost");
        self.try_run(&job).await.unwrap_or_else(|problem| {
            let note = format!("sandbox: the worker process was lost: {problem}\n");
            Verdict::from_sandbox(Ending::LostWorker, note, false)
        })
    }

    async fn try_run(&self, job: &Job) -> Result<Verdict, ProcessError> {
        let idle = self.idle.lock().pop();
        let mut process = match idle {
            Some(process) => process,
            None => WorkerProcess::start(&self.program, &self.start).await?,
        };
        let limits = &self.start.limits;
        // Bytes that are not UTF-8 take three as text.
        let output = usize::try_from(limits.output).unwrap_or(usize::MAX).saturating_mul(6);
        let limit = limits.timeout * WALL_CLOCK_FACTOR + GRACE;
        let verdict = process.run(job, output.saturating_add(VERDICT_SLACK), limit).await?;
        if process.jobs < self.jobs_per_worker {
            self.idle.lock().push(process);
        }
        Ok(verdict)
    }
}
