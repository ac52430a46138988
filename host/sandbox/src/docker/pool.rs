//! The pool: as many keepers as there are workers, each with one container at a time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::engine::{self, Engine};
use super::errand::Errand;
use super::queue::Queue;
use super::worker::Worker;
use super::{DockerSettings, leftovers, verdict};
use crate::{Ending, Error, Verdict};

/// How long jobs wait for an engine to come back, as one that is restarted does, before they are given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at engines that are all left out.
const PAUSE: Duration = Duration::from_millis(200);

/// A pool of containers.
pub struct Pool {
    settings: DockerSettings,
    engines: Arc<[Engine]>,
    queue: Queue,
    /// True: keepers end.
    closing: watch::Sender<bool>,
    keepers: Mutex<JoinSet<()>>,
    /// Containers made so far.
    made: AtomicU32,
    /// When the last container was started or served.
    well: Mutex<Instant>,
}

/// Hears how many containers are warm.
pub type Progress = Box<dyn Fn(u32) + Send + Sync>;

impl Pool {
    /// Starts all containers side by side.
    pub async fn start(settings: DockerSettings, progress: Progress) -> Result<Arc<Pool>, Error> {
        let engines: Arc<[Engine]> = engine::all(&settings).into();
        futures::future::join_all(engines.iter().map(leftovers::remove)).await;
        let workers = settings.limits.workers.max(1);
        let pool = Arc::new(Pool {
            settings,
            engines,
            queue: Queue::new(),
            closing: watch::Sender::new(false),
            keepers: Mutex::default(),
            made: AtomicU32::new(0),
            well: Mutex::new(Instant::now()),
        });
        let mut starting = JoinSet::new();
        for _ in 0..workers {
            let pool = Arc::clone(&pool);
            starting.spawn(async move { pool.container().await });
        }
        let (mut warm, mut reason) = (0, String::new());
        let mut keepers = JoinSet::new();
        while let Some(first) = starting.join_next().await {
            let first = match first {
                Ok(Ok(worker)) => Some(worker),
                Ok(Err(error)) => {
                    reason = error;
                    None
                }
                Err(_) => None,
            };
            if first.is_some() {
                warm += 1;
                progress(warm);
            }
            keepers.spawn(Arc::clone(&pool).keep(first));
        }
        *pool.keepers.lock().unwrap_or_else(PoisonError::into_inner) = keepers;
        if warm == 0 {
            pool.close();
            return Err(Error::Docker { reason });
        }
        Ok(pool)
    }

    pub fn settings(&self) -> &DockerSettings {
        &self.settings
    }

    /// Takes a job.
    pub fn take(&self, errand: Errand) {
        self.queue.push(errand);
    }

    /// Ends the keepers, and with them the containers.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Ends the keepers and waits for them.
    pub async fn shut_down(&self) {
        self.close();
        let mut keepers = std::mem::take(&mut *self.keepers.lock().unwrap_or_else(PoisonError::into_inner));
        while keepers.join_next().await.is_some() {}
        self.give_up("it has shut down");
    }

    /// One container after the other, until the pool closes.
    async fn keep(self: Arc<Self>, first: Option<(Worker, usize)>) {
        let mut closing = self.closing.subscribe();
        let mut removals = JoinSet::new();
        let mut next = first;
        while !*closing.borrow() {
            let (mut worker, at) = match next.take() {
                Some(worker) => worker,
                // To the end, though the pool may close meanwhile: a container that is half made would stay.
                None => match self.container().await {
                    Ok(worker) => worker,
                    Err(reason) => {
                        self.doubt(&reason);
                        continue;
                    }
                },
            };
            let place = Worker::place(&self.engines, at);
            let reason = tokio::select! {
                reason = self.serve(&mut worker) => reason,
                _ = closing.changed() => "the pool closes".to_owned(),
            };
            tracing::debug!(jobs = worker.served, reason, "replacing a container");
            drop(place);
            // The next one need not wait for the engine to tidy up.
            removals.spawn(worker.remove());
            while removals.try_join_next().is_some() {}
        }
        while removals.join_next().await.is_some() {}
    }

    /// Serves jobs until the container has to go, for the reason that is returned.
    async fn serve(&self, worker: &mut Worker) -> String {
        while worker.served < self.settings.jobs_per_worker {
            let errand = tokio::select! {
                biased;
                reason = worker.lost() => return reason,
                errand = self.queue.pop() => errand,
            };
            if errand.is_forgotten() {
                continue;
            }
            match worker.run(&errand.task).await {
                Ok(runs) => {
                    *self.well() = Instant::now();
                    let (cases, many) = (errand.task.cases.len(), errand.many);
                    errand.answer(verdict::of_job(runs, cases, many, &self.settings.limits));
                }
                Err(reason) => {
                    self.lost(errand, &reason);
                    return reason;
                }
            }
            if let Err(left) = worker.settle().await {
                return left;
            }
        }
        "it has served its jobs".to_owned()
    }

    /// A job lost its container: it goes to another one, once.
    fn lost(&self, mut errand: Errand, reason: &str) {
        match &errand.lost {
            None => {
                errand.lost = Some(reason.to_owned());
                self.queue.push_first(errand);
            }
            Some(before) => {
                let message = format!("sandbox: it lost its container twice: {before}; {reason}\n");
                errand.answer(Verdict::of_sandbox(Ending::LostWorker, message, false));
            }
        }
    }

    /// A started container and its engine: the least loaded one of those that answer.
    async fn container(&self) -> Result<(Worker, usize), String> {
        let mut reason = String::new();
        let mut tried = vec![false; self.engines.len()];
        loop {
            let free = self.engines.iter().enumerate().zip(&tried);
            let free = free.filter(|((_, engine), tried)| !**tried && !engine.is_left_out());
            let best = free.min_by_key(|((_, engine), _)| engine.load.load(Ordering::Relaxed));
            let Some(((at, engine), _)) = best else { break };
            let number = self.made.fetch_add(1, Ordering::Relaxed);
            let _place = Worker::place(&self.engines, at);
            match Worker::start(&self.engines, at, number, self.settings.longest_message()).await {
                Ok(worker) => {
                    engine.answered();
                    *self.well() = Instant::now();
                    return Ok((worker, at));
                }
                Err(error) => {
                    tracing::debug!(endpoint = engine.endpoint(), error, "no container");
                    engine.failed(&error);
                    reason = error;
                    if let Some(tried) = tried.get_mut(at) {
                        *tried = true;
                    }
                }
            }
        }
        if reason.is_empty() {
            tokio::time::sleep(PAUSE).await;
            let complaints: Vec<String> = self.engines.iter().filter_map(Engine::complaint).collect();
            reason = complaints.join("; ");
        }
        Err(reason)
    }

    /// No container could be started. Jobs are given up where that has been so for long.
    fn doubt(&self, reason: &str) {
        if self.well().elapsed() > PATIENCE {
            self.give_up(reason);
        }
    }

    fn give_up(&self, reason: &str) {
        for errand in self.queue.take_all() {
            let message = format!("sandbox: no worker: {reason}\n");
            errand.answer(Verdict::of_sandbox(Ending::LostWorker, message, false));
        }
    }

    fn well(&self) -> std::sync::MutexGuard<'_, Instant> {
        self.well.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
