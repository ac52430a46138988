//! The workers behind a workflow's sandbox: which ones, found to be there before the run, started with the first job.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use pl_dsl::workflow::{Docker, Sandbox as Settings};
use pl_sandbox::{
    DEFAULT_IMAGE, DockerSettings, DockerWorkers, Ending, Job, PythonWorkers, Sandbox, SandboxLimits,
    Verdict, default_endpoint,
};
use pl_wasm::{Engine, EngineConfig};
use tokio::sync::OnceCell;

use crate::exit::Stop;
use crate::{places, progress};

/// CPython with the standard library and sympy.
const PYTHON: &[u8] = include_bytes!(concat!(env!("PL_HOST_PLUGINS"), "/python.wasm"));

fn engine() -> Result<Engine, String> {
    let cache = places::cache().map_err(|_| "there is no cache folder".to_owned())?.join("compiled");
    Engine::new(EngineConfig::workers().cache_dir(cache)).map_err(|e| e.to_string())
}

/// Whether the Python worker is in the compile cache.
pub fn python_is_cached() -> bool {
    engine().is_ok_and(|engine| engine.is_cached(PYTHON))
}

/// Workers that are started when the first job comes: a workflow that runs no code never waits for them.
pub struct LazyWorkers {
    kind: Kind,
    workers: OnceCell<Result<Box<dyn Sandbox>, String>>,
}

enum Kind {
    Python(SandboxLimits),
    Docker(Box<DockerSettings>),
}

impl LazyWorkers {
    /// The workers that a workflow asks for. Where it asks for containers and there is no engine or no image, the
    /// error says what to do, or other workers take their place where the workflow allows it. Paths are relative to
    /// `folder`.
    pub fn find(settings: &Settings, folder: &Path) -> Result<Arc<dyn Sandbox>, Stop> {
        let Some(docker) = &settings.docker else {
            return Ok(Arc::new(LazyWorkers::new(Kind::Python(limits(settings)))));
        };
        let containers = docker_settings(settings, docker, folder);
        let kind = match check(&containers) {
            Ok(()) => Kind::Docker(Box::new(containers)),
            Err(reason) if docker.fallback => {
                eprintln!("warning: programs run in the wasm backend: {reason}");
                Kind::Python(limits(settings))
            }
            Err(reason) => {
                return Err(Stop::input(format!(
                    "sandbox: {reason}\nhint: `fallback = wasm` in the sandbox block runs Python without an engine"
                )));
            }
        };
        Ok(Arc::new(LazyWorkers::new(kind)))
    }

    /// The embedded Python, under the usual limits.
    pub fn embedded() -> Arc<dyn Sandbox> {
        Arc::new(LazyWorkers::new(Kind::Python(SandboxLimits::default())))
    }

    fn new(kind: Kind) -> LazyWorkers {
        LazyWorkers { kind, workers: OnceCell::new() }
    }

    async fn start(&self) -> Result<Box<dyn Sandbox>, String> {
        match &self.kind {
            Kind::Python(limits) => start_python(limits.clone()).await,
            Kind::Docker(settings) => start_docker(DockerSettings::clone(settings)).await,
        }
    }
}

/// What the containers of a workflow are.
pub fn docker_settings(settings: &Settings, docker: &Docker, folder: &Path) -> DockerSettings {
    let endpoints =
        if docker.endpoints.is_empty() { vec![default_endpoint()] } else { docker.endpoints.clone() };
    DockerSettings {
        limits: limits(settings),
        image: docker.image.clone().unwrap_or_else(|| DEFAULT_IMAGE.to_owned()),
        pids: docker.pids,
        cpus: docker.cpus,
        endpoints,
        certificates: docker.certificates.as_ref().map(|path| folder.join(path)),
        jobs_per_worker: docker.jobs_per_worker,
        run: docker.run.clone(),
    }
}

fn limits(settings: &Settings) -> SandboxLimits {
    SandboxLimits {
        timeout: settings.timeout,
        memory: settings.memory,
        output: settings.output,
        workers: settings.workers,
        ..SandboxLimits::default()
    }
}

/// Asks the engines, on a thread of its own: the caller may be within a runtime or not.
fn check(settings: &DockerSettings) -> Result<(), String> {
    let ask = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|e| e.to_string())?;
        runtime.block_on(DockerWorkers::check(settings)).map_err(|e| e.to_string())
    };
    let asked = std::thread::scope(|scope| scope.spawn(ask).join());
    asked.unwrap_or_else(|_| Err("asking the Docker engines failed".to_owned()))
}

async fn start_python(limits: SandboxLimits) -> Result<Box<dyn Sandbox>, String> {
    let load = move || -> Result<Box<dyn Sandbox>, String> {
        let engine = engine()?;
        let spinner = progress::spinner("loading the Python worker (compiled once, then cached)");
        let workers = PythonWorkers::new(&engine, PYTHON, limits).map_err(|e| e.to_string());
        spinner.finish_and_clear();
        Ok(Box::new(workers?))
    };
    tokio::task::spawn_blocking(load).await.map_err(|e| e.to_string())?
}

async fn start_docker(settings: DockerSettings) -> Result<Box<dyn Sandbox>, String> {
    let bar = progress::containers(settings.limits.workers);
    let progress = {
        let bar = bar.clone();
        move |warm: u32| bar.set_position(u64::from(warm))
    };
    let workers = DockerWorkers::start(settings, progress).await.map_err(|e| e.to_string());
    bar.finish_and_clear();
    Ok(Box::new(workers?))
}

#[async_trait]
impl Sandbox for LazyWorkers {
    async fn execute(&self, jobs: Vec<Job>) -> Vec<Verdict> {
        match self.workers.get_or_init(|| self.start()).await {
            Ok(workers) => workers.execute(jobs).await,
            Err(reason) => {
                let lost = || Verdict::of_sandbox(Ending::LostWorker, format!("sandbox: {reason}\n"), true);
                jobs.iter().map(|_| lost()).collect()
            }
        }
    }
}
