//! The pool of containers: one loop per worker, each with one container at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::engine::{self, DockerEngine};
use super::error::{DockerError, WorkerError};
use super::queue::JobQueue;
use super::queued_job::QueuedJob;
use super::settings::DockerSettings;
use super::worker::Worker;
use super::{stale_containers, verdict};
use crate::error::Error;
use crate::job::{Ending, Verdict};

/// Time without any container after which queued jobs fail. An engine that restarts is back earlier.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Interval between two attempts while all engines back off.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// A pool of containers.
pub struct ContainerPool {
    settings: DockerSettings,
    engines: Vec<Arc<DockerEngine>>,
    queue: JobQueue,
    /// True when the worker loops must end.
    closing: watch::Sender<bool>,
    worker_loops: Mutex<JoinSet<()>>,
    /// Number of containers created so far.
    created: AtomicU32,
    /// Time at which a container was last started or ran a job.
    last_success: Mutex<Instant>,
}

/// Callback that receives the number of started containers.
pub type StartProgress = Box<dyn Fn(u32) + Send + Sync>;

impl ContainerPool {
    /// Starts all containers in parallel.
    pub async fn start(
        settings: DockerSettings,
        progress: StartProgress,
    ) -> Result<Arc<ContainerPool>, Error> {
        let engines = engine::all(&settings);
        futures::future::join_all(engines.iter().map(|engine| stale_containers::remove(engine))).await;
        let workers = settings.limits.workers.max(1);
        let pool = Arc::new(ContainerPool {
            settings,
            engines,
            queue: JobQueue::new(),
            closing: watch::Sender::new(false),
            worker_loops: Mutex::default(),
            created: AtomicU32::new(0),
            last_success: Mutex::new(Instant::now()),
        });
        let mut starting = JoinSet::new();
        for _ in 0..workers {
            let pool = Arc::clone(&pool);
            starting.spawn(async move { pool.start_worker().await });
        }
        let (mut started, mut failure) = (0, None);
        let mut worker_loops = JoinSet::new();
        while let Some(first) = starting.join_next().await {
            let first = match first {
                Ok(Ok(worker)) => Some(worker),
                Ok(Err(error)) => {
                    failure = Some(error);
                    None
                }
                Err(_) => None,
            };
            if first.is_some() {
                started += 1;
                progress(started);
            }
            worker_loops.spawn(Arc::clone(&pool).run_worker_loop(first));
        }
        *pool.worker_loops.lock() = worker_loops;
        if started == 0 {
            // A loop may be at its next attempt: its container must not outlive the error.
            pool.shut_down().await;
            return Err(failure.unwrap_or_else(|| DockerError::NoEndpoint(String::new())).into());
        }
        Ok(pool)
    }

    pub fn settings(&self) -> &DockerSettings {
        &self.settings
    }

    pub fn submit(&self, job: QueuedJob) {
        self.queue.push(job);
    }

    /// Makes the worker loops end, and with them the containers.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Closes the pool and waits for the worker loops.
    pub async fn shut_down(&self) {
        self.close();
        let mut loops = std::mem::take(&mut *self.worker_loops.lock());
        while loops.join_next().await.is_some() {}
        self.fail_queued_jobs("it has shut down");
    }

    /// Serves jobs in one container after the other until the pool closes.
    async fn run_worker_loop(self: Arc<Self>, first: Option<Worker>) {
        let mut closing = self.closing.subscribe();
        let mut removals = JoinSet::new();
        let mut next = first;
        while !*closing.borrow() {
            let mut worker = match next.take() {
                Some(worker) => worker,
                // Not cancelled if the pool closes: a container whose creation was interrupted would remain.
                None => match self.start_worker().await {
                    Ok(worker) => worker,
                    Err(error) => {
                        self.fail_if_stalled(&error);
                        continue;
                    }
                },
            };
            let reason = tokio::select! {
                result = self.serve(&mut worker) => result.err(),
                _ = closing.changed() => None,
            };
            tracing::debug!(jobs = worker.served, ?reason, "replacing a container");
            // Removed in the background: the next container does not wait for it.
            removals.spawn(worker.remove());
            while removals.try_join_next().is_some() {}
        }
        while removals.join_next().await.is_some() {}
    }

    /// Serves jobs until the container has run its share of them or is lost.
    async fn serve(&self, worker: &mut Worker) -> Result<(), WorkerError> {
        while worker.served < self.settings.jobs_per_worker {
            let job = tokio::select! {
                biased;
                reason = worker.wait_until_lost() => return Err(reason),
                job = self.queue.pop() => job,
            };
            if job.is_cancelled() {
                continue;
            }
            match worker.run(&job.task).await {
                Ok(reports) => {
                    *self.last_success.lock() = Instant::now();
                    let (cases, has_cases) = (job.task.cases.len(), job.has_cases);
                    job.finish(verdict::from_reports(reports, cases, has_cases, &self.settings.limits));
                }
                Err(reason) => {
                    self.retry_or_fail(job, &reason);
                    return Err(reason);
                }
            }
            worker.wait_until_clean().await?;
        }
        Ok(())
    }

    /// Handles a job that lost its container: it runs in another one, but only once.
    fn retry_or_fail(&self, mut job: QueuedJob, reason: &WorkerError) {
        match &job.lost {
            None => {
                job.lost = Some(reason.to_string());
                self.queue.push_first(job);
            }
            Some(first) => {
                let message = format!("sandbox: it lost its container twice: {first}; {reason}\n");
                job.finish(Verdict::from_sandbox(Ending::LostWorker, message, false));
            }
        }
    }

    /// Starts a container on the engine with the lowest load, or on another one if that fails.
    async fn start_worker(&self) -> Result<Worker, DockerError> {
        let mut failure = None;
        let mut untried: Vec<&Arc<DockerEngine>> = self.engines.iter().collect();
        loop {
            let candidates = untried.iter().enumerate().filter(|(_, engine)| !engine.is_backing_off());
            let best = candidates.min_by_key(|(_, engine)| engine.load()).map(|(index, _)| index);
            let Some(best) = best else { break };
            let engine = untried.remove(best);
            let number = self.created.fetch_add(1, Ordering::Relaxed);
            match Worker::start(engine, number, self.settings.max_message()).await {
                Ok(worker) => {
                    engine.record_success();
                    *self.last_success.lock() = Instant::now();
                    return Ok(worker);
                }
                Err(error) => {
                    tracing::debug!(endpoint = engine.endpoint(), %error, "no container");
                    engine.record_failure(error.to_string());
                    failure = Some(error);
                }
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
        let failures: Vec<String> = self.engines.iter().filter_map(|engine| engine.last_failure()).collect();
        Err(DockerError::NoEndpoint(failures.join("; ")))
    }

    /// Fails all queued jobs if no container has worked for [`STALL_TIMEOUT`].
    fn fail_if_stalled(&self, reason: &DockerError) {
        if self.last_success.lock().elapsed() > STALL_TIMEOUT {
            self.fail_queued_jobs(&reason.to_string());
        }
    }

    fn fail_queued_jobs(&self, reason: &str) {
        for job in self.queue.take_all() {
            let message = format!("sandbox: no worker: {reason}\n");
            job.finish(Verdict::from_sandbox(Ending::LostWorker, message, false));
        }
    }
}
