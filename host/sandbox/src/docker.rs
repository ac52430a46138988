//! Jobs in containers: a pool of running ones on one or several Docker engines.
//!
//! A container runs one job at a time under its supervisor (the crate `pl-supervisor`), which is its PID 1
//! and removes everything that a job leaves. No container has a network, a writable image, a capability or
//! root.

mod container;
mod engine;
pub mod error;
mod image;
mod inspection;
mod owner;
mod pool;
mod queue;
mod queued_job;
mod settings;
mod stale_containers;
mod verdict;
mod worker;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::Error;
use crate::job::{Ending, Job, Verdict};
use crate::sandbox::Sandbox;
use pool::ContainerPool;
use queued_job::QueuedJob;

pub use error::{DockerError, WorkerError};
pub use image::ImageSource;
pub use inspection::Inspection;
pub use settings::{DEFAULT_IMAGE, DockerSettings, default_endpoint};

/// A pool of running containers. They are removed when it is dropped.
pub struct DockerWorkers {
    pool: Arc<ContainerPool>,
}

impl DockerWorkers {
    /// Returns the state of each endpoint.
    pub async fn inspect(settings: &DockerSettings) -> Vec<Inspection> {
        let engines = engine::all(settings);
        futures::future::join_all(engines.iter().map(|engine| inspection::inspect(engine))).await
    }

    /// Checks that at least one engine answers and has the image.
    ///
    /// # Errors
    /// [`Error::Docker`] with the problem of each endpoint and advice.
    pub async fn check(settings: &DockerSettings) -> Result<(), Error> {
        let found = DockerWorkers::inspect(settings).await;
        if found.iter().any(|one| one.problem.is_none()) {
            return Ok(());
        }
        let problems = found.into_iter().filter_map(|one| one.problem);
        Err(DockerError::NoEndpoint(problems.collect::<Vec<_>>().join("; ")).into())
    }

    /// Returns the ids of the image on the engines that answer and have it, each once: usually one.
    pub async fn image_ids(settings: &DockerSettings) -> BTreeSet<String> {
        let engines = engine::all(settings);
        let ids = engines.iter().map(|engine| async move {
            let docker = engine.docker().await.ok()?;
            image::id(engine, docker, &settings.image).await.ok().flatten()
        });
        futures::future::join_all(ids).await.into_iter().flatten().collect()
    }

    /// Makes the image on all engines, from a registry or from the archive of a root file system. `progress`
    /// receives a description of each step.
    ///
    /// # Errors
    /// [`Error::Docker`] with the engine's message.
    pub async fn make_image(
        settings: &DockerSettings,
        source: ImageSource,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), Error> {
        for engine in engine::all(settings) {
            image::make(&engine, &settings.image, &source, progress).await?;
        }
        Ok(())
    }

    /// Starts the pool and waits until its containers run. `progress` receives their number.
    ///
    /// # Errors
    /// [`Error::Docker`] if no container starts.
    pub async fn start(
        settings: DockerSettings,
        progress: impl Fn(u32) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        Ok(Self { pool: ContainerPool::start(settings, Box::new(progress)).await? })
    }

    /// Runs one job as soon as a container is free.
    pub async fn run(&self, job: Job) -> Verdict {
        let (job, verdict) = match QueuedJob::new(&job, self.pool.settings()) {
            Ok(queued) => queued,
            Err(reason) => {
                return Verdict::from_sandbox(Ending::Error, format!("sandbox: {reason}\n"), true);
            }
        };
        self.pool.submit(job);
        verdict.await.unwrap_or_else(|_| {
            Verdict::from_sandbox(Ending::LostWorker, "sandbox: it has shut down\n", false)
        })
    }

    /// Removes the containers and waits until they are gone.
    pub async fn shut_down(self) {
        self.pool.shut_down().await;
    }
}

#[async_trait]
impl Sandbox for DockerWorkers {
    async fn execute(&self, jobs: Vec<Job>) -> Vec<Verdict> {
        futures::future::join_all(jobs.into_iter().map(|job| self.run(job))).await
    }
}

impl Drop for DockerWorkers {
    fn drop(&mut self) {
        self.pool.close();
    }
}
