//! The workers behind a workflow's sandbox: checked before the run, started by the first job.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use pl_dsl::workflow::{Docker, Sandbox as SandboxBlock};
use pl_sandbox::{
    DEFAULT_IMAGE, DockerSettings, DockerWorkers, EMBEDDED_OVERHEAD, Ending, Job, PROCESS_OVERHEAD,
    ProcessSettings, ProcessWorkers, PythonWorkers, Sandbox, SandboxLimits, Verdict, WorkerProgram,
    default_endpoint,
};
use pl_types::is_loopback_host;
use pl_wasm::{Engine, EngineConfig};
use tokio::sync::OnceCell;

use crate::error::Error;
use crate::host::{Host, compile_cache};
use crate::progress::{Activity, Notice, Progress};

fn worker_engine() -> Result<Engine, Error> {
    Engine::new(EngineConfig::workers().cache_dir(compile_cache()?)).map_err(Error::WasmEngine)
}

/// Returns true if the compile cache has the Python worker.
pub fn is_python_cached(host: &Host) -> bool {
    worker_engine().is_ok_and(|engine| engine.is_cached(host.embedded().python_worker))
}

/// Workers that the first job starts: a workflow that runs no code never waits for them.
pub struct LazyWorkers {
    backend: Backend,
    progress: Arc<dyn Progress>,
    workers: OnceCell<Result<Box<dyn Sandbox>, Error>>,
}

enum Backend {
    Python { component: &'static [u8], limits: SandboxLimits },
    Processes { component: &'static [u8], settings: Box<ProcessSettings> },
    Docker(Box<DockerSettings>),
}

impl LazyWorkers {
    /// Returns the workers that a workflow configures. Paths are relative to `folder`.
    ///
    /// # Errors
    /// [`Error::Docker`] if the workflow demands containers and there is no Docker engine or no image,
    /// [`Error::NoWorkerProcesses`] if it demands worker processes and this program offers none.
    pub fn for_workflow(host: &Host, block: &SandboxBlock, folder: &Path) -> Result<Arc<dyn Sandbox>, Error> {
        Ok(Arc::new(LazyWorkers::new(host, block, folder)?))
    }

    /// Starts the workers that a workflow configures, before their first job.
    ///
    /// # Errors
    /// Those of [`LazyWorkers::for_workflow`], and the reason for which the workers can't start.
    pub(crate) fn started(
        host: &Host,
        block: &SandboxBlock,
        folder: &Path,
    ) -> Result<Arc<dyn Sandbox>, Error> {
        let workers = LazyWorkers::new(host, block, folder)?;
        Ok(Arc::from(host.block_on(workers.start())?))
    }

    fn new(host: &Host, block: &SandboxBlock, folder: &Path) -> Result<LazyWorkers, Error> {
        let Some(docker) = &block.docker else {
            return Ok(LazyWorkers::with_backend(host, python_backend(host, block)?));
        };
        let settings = docker_settings(block, docker, folder);
        match check_docker(&settings) {
            Ok(()) => Ok(LazyWorkers::with_backend(host, Backend::Docker(Box::new(settings)))),
            Err(error) if docker.fallback => {
                host.notify(Notice::SandboxFallback { reason: error.to_string() });
                Ok(LazyWorkers::with_backend(host, python_backend(host, block)?))
            }
            Err(error) => Err(Error::Docker { reason: error.to_string() }),
        }
    }

    /// Returns the embedded Python with default limits.
    pub fn embedded(host: &Host) -> Arc<dyn Sandbox> {
        let component = host.embedded().python_worker;
        let backend = Backend::Python { component, limits: SandboxLimits::default() };
        Arc::new(LazyWorkers::with_backend(host, backend))
    }

    fn with_backend(host: &Host, backend: Backend) -> LazyWorkers {
        let progress = Arc::clone(host.progress());
        LazyWorkers { backend, progress, workers: OnceCell::new() }
    }

    async fn start(&self) -> Result<Box<dyn Sandbox>, Error> {
        match &self.backend {
            Backend::Python { component, limits } => {
                let (component, limits) = (*component, limits.clone());
                let tracker = self.progress.start(Activity::LoadingPythonWorker);
                let load = move || -> Result<Box<dyn Sandbox>, Error> {
                    Ok(Box::new(PythonWorkers::new(&worker_engine()?, component, limits)?))
                };
                let workers = tokio::task::spawn_blocking(load).await?;
                drop(tracker);
                workers
            }
            Backend::Processes { component, settings } => {
                let (component, settings) = (*component, ProcessSettings::clone(settings));
                let tracker = self.progress.start(Activity::LoadingPythonWorker);
                // The processes find it in the cache.
                let compile = move || {
                    worker_engine()?
                        .load_compressed("the Python worker", component)
                        .map_err(Error::WasmEngine)
                };
                tokio::task::spawn_blocking(compile).await??;
                let workers = ProcessWorkers::start(settings).await?;
                drop(tracker);
                Ok(Box::new(workers))
            }
            Backend::Docker(settings) => {
                let total = u64::from(settings.limits.workers);
                let tracker = Mutex::new(self.progress.start(Activity::StartingContainers));
                let started = move |warm: u32| tracker.lock().update(u64::from(warm), total);
                Ok(Box::new(DockerWorkers::start(DockerSettings::clone(settings), started).await?))
            }
        }
    }
}

fn python_backend(host: &Host, block: &SandboxBlock) -> Result<Backend, Error> {
    let (component, limits) = (host.embedded().python_worker, limits(block));
    let Some(processes) = block.processes else { return Ok(Backend::Python { component, limits }) };
    let arguments = host.embedded().worker_arguments.ok_or(Error::NoWorkerProcesses)?;
    // The file that runs, also if another one has taken its name.
    let path = PathBuf::from("/proc/self/exe");
    let program =
        WorkerProgram { path, arguments: arguments.iter().map(|part| (*part).to_owned()).collect() };
    let jobs_per_worker = processes.jobs_per_worker;
    let settings = ProcessSettings { program, cache_dir: compile_cache()?, limits, jobs_per_worker };
    Ok(Backend::Processes { component, settings: Box::new(settings) })
}

/// Returns the container settings of a workflow.
pub fn docker_settings(block: &SandboxBlock, docker: &Docker, folder: &Path) -> DockerSettings {
    let endpoints =
        if docker.endpoints.is_empty() { vec![default_endpoint()] } else { docker.endpoints.clone() };
    DockerSettings {
        limits: limits(block),
        image: docker.image.clone().unwrap_or_else(|| DEFAULT_IMAGE.to_owned()),
        runtime: docker.runtime.clone(),
        pids: docker.pids,
        cpus: docker.cpus,
        endpoints,
        certificates: docker.certificates.as_ref().map(|path| folder.join(path)),
        jobs_per_worker: docker.jobs_per_worker,
        run: docker.run.clone(),
    }
}

/// Returns the memory in bytes that the workers of a workflow take on this machine if all have a job that takes what it
/// may, besides what a worker process has before its first job.
pub(crate) fn most_memory(block: &SandboxBlock, folder: &Path) -> u64 {
    let of_worker = match (&block.docker, block.processes) {
        (Some(docker), _) => {
            let settings = docker_settings(block, docker, folder);
            // Other endpoints may be on other machines.
            let is_here = settings.endpoints.iter().any(|endpoint| is_on_this_machine(endpoint));
            if is_here { settings.container_memory() } else { 0 }
        }
        (None, Some(_)) => block.memory.saturating_add(PROCESS_OVERHEAD),
        (None, None) => block.memory.saturating_add(EMBEDDED_OVERHEAD),
    };
    of_worker.saturating_mul(u64::from(block.workers))
}

/// Returns true if an endpoint is a socket of this machine: a file, or a port of its loopback interface.
fn is_on_this_machine(endpoint: &str) -> bool {
    let Some((scheme, rest)) = endpoint.split_once("://") else { return false };
    let authority = rest.split('/').next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    scheme == "unix" || is_loopback_host(host)
}

fn limits(block: &SandboxBlock) -> SandboxLimits {
    SandboxLimits {
        timeout: block.timeout,
        memory: block.memory,
        output: block.output,
        workers: block.workers,
        ..SandboxLimits::default()
    }
}

/// Checks that the Docker engines answer, on a thread of its own because the caller may be within a runtime.
fn check_docker(settings: &DockerSettings) -> Result<(), Error> {
    let check = || -> Result<(), Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| Error::Runtime { source })?;
        Ok(runtime.block_on(DockerWorkers::check(settings))?)
    };
    match std::thread::scope(|scope| scope.spawn(check).join()) {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

#[async_trait]
impl Sandbox for LazyWorkers {
    async fn execute(&self, jobs: Vec<Job>) -> Vec<Verdict> {
        match self.workers.get_or_init(|| self.start()).await {
            Ok(workers) => workers.execute(jobs).await,
            Err(reason) => {
                // The machine's fault, which no program may be blamed for.
                let lost =
                    || Verdict::from_sandbox(Ending::LostWorker, format!("sandbox: {reason}\n"), false);
                jobs.iter().map(|_| lost()).collect()
            }
        }
    }
}
