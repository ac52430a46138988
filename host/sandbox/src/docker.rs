//! Jobs in containers: a pool of warm ones, on one Docker engine or several.
//!
//! A container runs one job at a time under its supervisor (the crate `pl-supervisor`), which is its PID 1 and leaves
//! nothing of a job behind. No container has a network, a writable image, a capability or root.

mod engine;
mod errand;
mod image;
mod leftovers;
mod pool;
mod queue;
mod verdict;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use crate::{Ending, Error, Job, Sandbox, SandboxLimits, Verdict};
use engine::Engine;
use errand::Errand;
use pool::Pool;

pub use engine::Inspection;

/// Where containers run and what they may take.
#[derive(Debug, Clone, PartialEq)]
pub struct DockerSettings {
    /// Of time, memory and output of a job, and how many containers there are.
    pub limits: SandboxLimits,
    /// The image of the containers: `name:tag`.
    pub image: String,
    /// Processes and threads of a job.
    pub pids: u32,
    /// Processors of a job; parts of one are fine.
    pub cpus: f64,
    /// Engines: `unix:///path`, `tcp://host:port`, or `https://host:port` with certificates.
    pub endpoints: Vec<String>,
    /// The folder of `ca.pem`, `cert.pem` and `key.pem` for `https` endpoints.
    pub certificates: Option<PathBuf>,
    /// A container is replaced after so many jobs.
    pub jobs_per_worker: u32,
    /// The command line of programs; empty: their language's.
    pub run: Vec<String>,
}

/// The image that is used where none is named, and that `pl-host sandbox image` makes.
pub const DEFAULT_IMAGE: &str = "pl-host-python";

impl Default for DockerSettings {
    fn default() -> Self {
        Self {
            limits: SandboxLimits::default(),
            image: DEFAULT_IMAGE.to_owned(),
            // Python with its threads takes a dozen; more than 64 are a mistake or a bomb.
            pids: 64,
            // As many as there are workers fill the cores.
            cpus: 1.0,
            endpoints: vec![default_endpoint()],
            certificates: None,
            // A fresh container takes half a second: under a millisecond for each of a thousand jobs.
            jobs_per_worker: 1000,
            run: Vec::new(),
        }
    }
}

/// The engine that the `docker` command would use.
pub fn default_endpoint() -> String {
    std::env::var("DOCKER_HOST")
        .ok()
        .filter(|host| !host.is_empty())
        .unwrap_or_else(|| "unix:///var/run/docker.sock".to_owned())
}

/// A pool of warm containers. They go when it does.
pub struct DockerWorkers {
    pool: Arc<Pool>,
}

impl DockerWorkers {
    /// What is there and what is missing on each endpoint.
    pub async fn inspect(settings: &DockerSettings) -> Vec<Inspection> {
        let engines = engine::all(settings);
        futures::future::join_all(engines.iter().map(Engine::inspect)).await
    }

    /// Whether at least one engine answers and has the image.
    ///
    /// # Errors
    /// [`Error::Docker`], with what to do.
    pub async fn check(settings: &DockerSettings) -> Result<(), Error> {
        let found = DockerWorkers::inspect(settings).await;
        if found.iter().any(|one| one.problem.is_none()) {
            return Ok(());
        }
        let problems = found.into_iter().filter_map(|one| one.problem);
        Err(Error::Docker { reason: problems.collect::<Vec<_>>().join("; ") })
    }

    /// Makes an engine have the image: fetched from a registry, or from the archive of a root file system. `progress`
    /// hears what goes on.
    ///
    /// # Errors
    /// [`Error::Docker`], with the engine's words.
    pub async fn make_image(
        settings: &DockerSettings,
        from: ImageSource,
        progress: &(dyn Fn(String) + Send + Sync),
    ) -> Result<(), Error> {
        for engine in engine::all(settings) {
            image::make(&engine, &settings.image, &from, progress).await?;
        }
        Ok(())
    }

    /// Starts the pool and waits until its containers are warm. `progress` hears how many are.
    ///
    /// # Errors
    /// [`Error::Docker`] where not a single one starts.
    pub async fn start(
        settings: DockerSettings,
        progress: impl Fn(u32) + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        Ok(Self { pool: Pool::start(settings, Box::new(progress)).await? })
    }

    /// Runs one job when a container is free.
    pub async fn run(&self, job: Job) -> Verdict {
        let (errand, verdict) = match Errand::new(&job, self.pool.settings()) {
            Ok(errand) => errand,
            Err(reason) => {
                return Verdict::of_sandbox(Ending::Error, format!("sandbox: {reason}\n"), true);
            }
        };
        self.pool.take(errand);
        verdict
            .await
            .unwrap_or_else(|_| Verdict::of_sandbox(Ending::LostWorker, "sandbox: it has shut down\n", false))
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

/// Where an image comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSource {
    /// A registry's `name:tag`.
    Registry(String),
    /// A tar archive of a root file system.
    Archive(PathBuf),
}
