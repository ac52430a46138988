//! `pl-host sandbox run`: what an agent's code would get, from the command line.

use std::io::{IsTerminal, Read, Write};
use std::time::Duration;

use async_trait::async_trait;
use mas_dsl::workflow::{Sandbox as Settings, SandboxBackend};
use pl_sandbox::{Ending, Job, PythonWorkers, Sandbox, SandboxLimits, Verdict};
use pl_wasm::{Engine, EngineConfig};
use tokio::sync::OnceCell;

use crate::arguments::{Sandbox as Command, SandboxRun};
use crate::exit::{Outcome, Stop};
use crate::{places, progress};

/// CPython with the standard library and sympy.
const PYTHON: &[u8] = include_bytes!(concat!(env!("PL_HOST_PLUGINS"), "/python.wasm"));

/// The Python workers, started when the first job comes: a workflow that runs no code never waits for them.
pub struct LazyPython {
    limits: SandboxLimits,
    workers: OnceCell<Result<PythonWorkers, String>>,
}

impl LazyPython {
    pub fn new(settings: &Settings) -> LazyPython {
        let limits = SandboxLimits {
            timeout: settings.timeout,
            memory: settings.memory,
            output: settings.output,
            workers: settings.workers,
            ..SandboxLimits::default()
        };
        LazyPython { limits, workers: OnceCell::new() }
    }

    async fn workers(&self) -> &Result<PythonWorkers, String> {
        self.workers.get_or_init(|| async { start(self.limits.clone()).await }).await
    }
}

fn engine() -> Result<Engine, String> {
    let cache = places::cache().map_err(|_| "there is no cache folder".to_owned())?.join("compiled");
    Engine::new(EngineConfig::workers().cache_dir(cache)).map_err(|e| e.to_string())
}

/// Whether the Python worker is in the compile cache.
pub fn python_is_cached() -> bool {
    engine().is_ok_and(|engine| engine.is_cached(PYTHON))
}

async fn start(limits: SandboxLimits) -> Result<PythonWorkers, String> {
    let load = move || {
        let engine = engine()?;
        let spinner = progress::spinner("loading the Python worker (compiled once, then cached)");
        let workers = PythonWorkers::new(&engine, PYTHON, limits).map_err(|e| e.to_string());
        spinner.finish_and_clear();
        workers
    };
    tokio::task::spawn_blocking(load).await.map_err(|e| e.to_string())?
}

#[async_trait]
impl Sandbox for LazyPython {
    async fn execute(&self, jobs: Vec<Job>) -> Vec<Verdict> {
        match self.workers().await {
            Ok(workers) => workers.execute(jobs).await,
            Err(reason) => jobs
                .iter()
                .map(|_| Verdict {
                    ending: Ending::LostWorker,
                    exit: None,
                    stdout: String::new(),
                    stderr: reason.clone(),
                    reproducible: true,
                })
                .collect(),
        }
    }
}

pub fn run(command: &Command) -> Outcome {
    let Command::Run(options) = command;
    let job = job(options)?;
    let settings = Settings {
        backend: SandboxBackend::Wasm,
        timeout: Duration::from_secs(options.timeout),
        memory: options.memory << 20,
        output: 1 << 20,
        workers: 1,
    };
    let runtime = tokio::runtime::Runtime::new().map_err(Stop::failed)?;
    let verdicts = runtime.block_on(async { LazyPython::new(&settings).execute(vec![job]).await });
    let Some(verdict) = verdicts.into_iter().next() else {
        return Err(Stop::failed("the sandbox gave no verdict"));
    };
    std::io::stdout().write_all(verdict.stdout.as_bytes())?;
    eprint!("{}", verdict.stderr);
    match verdict.ending {
        Ending::Ok => Ok(()),
        ending => {
            let name = serde_json::to_value(ending).ok().and_then(|v| v.as_str().map(str::to_owned));
            let exit = verdict.exit.map(|code| format!(", exit code {code}")).unwrap_or_default();
            Err(Stop::failed(format!(
                "{}: {}{exit}",
                options.file.display(),
                name.unwrap_or_default().replace('_', " ")
            )))
        }
    }
}

fn job(options: &SandboxRun) -> Result<Job, Stop> {
    let source = std::fs::read_to_string(&options.file)
        .map_err(|e| Stop::input(format!("cannot read {}: {e}", options.file.display())))?;
    let mut stdin = String::new();
    if !std::io::stdin().is_terminal() {
        std::io::stdin().read_to_string(&mut stdin).map_err(Stop::input)?;
    }
    Ok(Job { language: "python".to_owned(), source, stdin, files: Vec::new() })
}
