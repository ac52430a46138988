//! Python jobs in WebAssembly: one fresh interpreter per job, from a component whose memory already contains
//! the standard library and sympy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pl_types::PartHasher;
use pl_wasm::{Captured, Clock, Engine, Exit, Guest, GuestFault, Lifetime, Limits, Output, Seed};
use tokio::sync::Semaphore;
use wasmtime::component::HasSelf;

use crate::bindings::exports::pl_host::worker::interpreter::Ended;
use crate::bindings::pl_host::worker::host;
use crate::bindings::{Worker, WorkerPre};
use crate::error::Error;
use crate::job::{Ending, Job, Usage, Verdict, to_text};
use crate::limits::SandboxLimits;
use crate::sandbox::Sandbox;

/// Factor between a job's wall-clock limit and `timeout`, for machines that are slow or overloaded.
pub(crate) const WALL_CLOCK_FACTOR: u32 = 5;

/// Memory that this process may hold for a job in addition to the job's own, in bytes: buffers of one call, and what the
/// allocator has not returned.
pub const EMBEDDED_OVERHEAD: u64 = 64 << 20;

/// Python workers in WebAssembly.
#[derive(Clone)]
pub struct PythonWorkers {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Engine,
    worker: WorkerPre<Guest<()>>,
    limits: SandboxLimits,
    free: Semaphore,
}

impl PythonWorkers {
    /// Loads the worker component, compressed with zstd. Call it from a blocking thread: it compiles for tens of seconds if
    /// the component is not in the engine's cache. Configure `engine` with
    /// [`EngineConfig::workers`](pl_wasm::EngineConfig::workers).
    ///
    /// # Errors
    /// [`Error::Worker`] if the bytes are not a component, [`Error::Contract`] if it is another component.
    pub fn new(engine: &Engine, component: &[u8], limits: SandboxLimits) -> Result<Self, Error> {
        const LANGUAGE: &str = "python";
        let worker = |source| Error::Worker { language: LANGUAGE, source };
        let contract =
            |error: wasmtime::Error| Error::Contract { language: LANGUAGE, reason: format!("{error:#}") };
        let component = engine.load_compressed("the Python worker", component).map_err(worker)?;
        let mut linker = engine.linker::<()>().map_err(worker)?;
        Worker::add_to_linker::<_, HasSelf<Guest<()>>>(&mut linker, |guest| guest).map_err(contract)?;
        let ready = linker.instantiate_pre(component.inner()).map_err(contract)?;
        let inner = Inner {
            engine: engine.clone(),
            worker: WorkerPre::new(ready).map_err(contract)?,
            free: Semaphore::new(limits.workers.max(1) as usize),
            limits,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Runs one job as soon as a worker is free, each of its cases on a separate worker.
    pub async fn run(&self, job: Job) -> Verdict {
        run_cases(job, |job| self.run_once(job)).await
    }

    async fn run_once(&self, job: Job) -> Verdict {
        let Ok(_permit) = self.inner.free.acquire().await else {
            return Verdict::from_sandbox(Ending::LostWorker, "sandbox: it has shut down\n", false);
        };
        // A job computes for milliseconds to seconds. In a task of its own it can use every thread.
        let inner = Arc::clone(&self.inner);
        match tokio::spawn(async move { inner.run(job).await }).await {
            Ok(verdict) => verdict,
            Err(error) => {
                let message = format!("sandbox: the worker was lost: {error}\n");
                Verdict::from_sandbox(Ending::LostWorker, message, false)
            }
        }
    }
}

impl host::Host for Guest<()> {
    fn leave(&mut self, code: i32) -> wasmtime::Result<()> {
        Err(Exit(code).into())
    }
}

/// Runs a job by `run`, which takes jobs without cases. A job that needs a feature that Python workers lack is not run.
pub(crate) async fn run_cases<F: Future<Output = Verdict>>(job: Job, run: impl Fn(Job) -> F) -> Verdict {
    if let Some(reason) = unsupported_feature(&job) {
        return Verdict::from_sandbox(Ending::LostWorker, format!("sandbox: {reason}\n"), true);
    }
    if job.cases.is_empty() {
        return run(job).await;
    }
    let mut verdicts = Vec::new();
    for stdin in &job.cases {
        verdicts.push(run(Job { stdin: stdin.clone(), cases: Vec::new(), ..job.clone() }).await);
    }
    Verdict::from_cases(verdicts)
}

/// Returns an explanation if a job needs a feature that these workers lack.
fn unsupported_feature(job: &Job) -> Option<String> {
    let problem = if job.language != "python" {
        format!("runs Python, not {:?}", job.language)
    } else if !job.compile.is_empty() || !job.run.is_empty() {
        "takes no command lines".to_owned()
    } else if !job.output_files.is_empty() {
        "returns no files".to_owned()
    } else {
        return None;
    };
    Some(format!("the wasm backend {problem}; the docker backend does"))
}

#[async_trait]
impl Sandbox for PythonWorkers {
    async fn execute(&self, jobs: Vec<Job>) -> Vec<Verdict> {
        futures::future::join_all(jobs.into_iter().map(|job| self.run(job))).await
    }
}

impl Inner {
    async fn run(&self, job: Job) -> Verdict {
        let _permit = self.engine.permit(Lifetime::Episode).await;
        let limits = Limits {
            memory: self.limits.memory,
            table: 100_000,
            fuel: self.limits.fuel(),
            timeout: self.limits.timeout * WALL_CLOCK_FACTOR,
            returned: 1 << 20,
            ..Limits::default()
        };
        let (stdout, stderr) = (Output::new(self.limits.output), Output::new(self.limits.output));
        let mut store = self.engine.store((), &limits);
        let guest = store.data_mut();
        guest.rewind(Clock::Fuel(Duration::ZERO), Seed::Number(seed(&job)));
        let files = job.files.iter().map(|file| (file.path.as_str(), file.bytes.as_slice()));
        if let Err(reason) = guest.set_files(files) {
            return Verdict::from_sandbox(Ending::Error, format!("sandbox: {reason}\n"), true);
        }
        guest.set_streams(job.stdin, stdout.clone(), stderr.clone());
        let started = Instant::now();
        let ended = pl_wasm::call(&mut store, async |store| {
            let worker = self.worker.instantiate_async(&mut *store).await?;
            // Python skips a byte order mark in files alone, and a program is one.
            let source = job.source.strip_prefix('\u{feff}').unwrap_or(&job.source);
            worker.pl_host_worker_interpreter().call_run(&mut *store, source).await
        })
        .await;
        let refused = store.data().memory_refused();
        let usage = Usage { time: started.elapsed(), memory: Some(store.data().memory_held()) };
        drop(store);
        tracing::debug!(took = ?usage.time, "python job");
        Verdict { usage, ..verdict(ended, refused, stdout.take(), stderr.take(), &self.limits) }
    }
}

/// Returns the verdict of a call from its result and its output.
fn verdict(
    ended: Result<Ended, GuestFault>,
    memory_refused: bool,
    stdout: Captured,
    stderr: Captured,
    limits: &SandboxLimits,
) -> Verdict {
    let overflowed = stdout.overflowed || stderr.overflowed;
    let reproducible = ended.as_ref().map_or_else(GuestFault::reproducible, |_| true);
    let (ending, exit, note) = match ended {
        _ if overflowed => {
            let note = format!("it printed more than the {} bytes that are kept", limits.output);
            (Ending::OutputLimit, None, Some(note))
        }
        Ok(Ended { exit: 0, .. }) => (Ending::Ok, Some(0), None),
        Ok(Ended { out_of_memory: true, exit }) if memory_refused => (Ending::Memory, Some(exit), None),
        Ok(Ended { exit, .. }) => (Ending::Error, Some(exit), None),
        // `os._exit`, or an exit through WASI.
        Err(GuestFault::Exit(0)) => (Ending::Ok, Some(0), None),
        Err(GuestFault::Exit(code)) => (Ending::Error, Some(code), None),
        Err(fault @ GuestFault::OutOfFuel { .. }) => {
            let note = match limits.fuel {
                Some(_) => fault.to_string(),
                None => format!("it ran longer than {} s", limits.timeout.as_secs_f64()),
            };
            (Ending::Timeout, None, Some(note))
        }
        Err(fault @ (GuestFault::Timeout { .. } | GuestFault::WaitTooLong { .. })) => {
            (Ending::Timeout, None, Some(fault.to_string()))
        }
        Err(fault @ (GuestFault::Memory { .. } | GuestFault::Table { .. })) => {
            (Ending::Memory, None, Some(fault.to_string()))
        }
        Err(
            fault @ (GuestFault::Stack
            | GuestFault::Rules(_)
            | GuestFault::Trap(_)
            | GuestFault::Returned { .. }
            | GuestFault::Host(_)),
        ) => (Ending::Error, None, Some(fault.to_string())),
        Err(fault @ (GuestFault::Call(_) | GuestFault::Machine(_) | GuestFault::MachineMemory(_))) => {
            (Ending::LostWorker, None, Some(fault.to_string()))
        }
    };
    let (stdout, stderr) =
        (to_text(stdout.bytes, stdout.overflowed), to_text(stderr.bytes, stderr.overflowed));
    let mut verdict = Verdict { ending, exit, stdout, stderr, reproducible, ..Verdict::default() };
    if let Some(note) = note {
        verdict.note(&note);
    }
    verdict
}

/// Returns the seed of a job's random numbers: equal jobs draw equal numbers.
fn seed(job: &Job) -> u64 {
    let hasher = PartHasher::content().text(&job.source).text(&job.stdin);
    job.files.iter().fold(hasher, |hasher, file| hasher.text(&file.path).bytes(&file.bytes)).seed_u64()
}
