//! Python jobs in WebAssembly: one fresh interpreter per job, from a component whose memory already holds the
//! standard library and sympy.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use pl_wasm::{Captured, Clock, Engine, Exit, FUEL_PER_SECOND, Fault, Guest, Limits, Output, Seed, Stay};
use tokio::sync::Semaphore;
use wasmtime::component::HasSelf;

use crate::bindings::exports::pl_host::worker::interpreter::Ended;
use crate::bindings::pl_host::worker::host;
use crate::bindings::{Worker, WorkerPre};
use crate::job::printed;
use crate::{Ending, Error, Job, Sandbox, Usage, Verdict};

/// Limits of one job, and how many run at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxLimits {
    /// Time of one job as the job's own clock goes, which runs on fuel: the same job times out at the same
    /// instruction on every machine.
    pub timeout: Duration,
    /// Bytes of memory, the interpreter's own (some 100 MiB) included.
    pub memory: u64,
    /// Bytes kept of each of stdout and stderr; printing more ends the job.
    pub output: u64,
    /// Jobs at a time.
    pub workers: u32,
    /// Fuel of one job; none takes it from `timeout`.
    pub fuel: Option<u64>,
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(20),
            memory: 256 << 20,
            output: 64 << 10,
            workers: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            fuel: None,
        }
    }
}

impl SandboxLimits {
    fn fuel(&self) -> u64 {
        self.fuel.unwrap_or_else(|| {
            let fuel = self.timeout.as_secs_f64() * FUEL_PER_SECOND as f64;
            fuel as u64
        })
    }
}

/// How much slower than its own clock a job may run before the wall clock ends it: for machines that are slow
/// or have more to do than cores.
const BACKSTOP: u32 = 5;

/// Python workers.
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
    /// Loads the worker component, which compiles it for tens of seconds where the engine's cache does not
    /// have it: call it from a blocking thread. `engine` is best made with
    /// [`EngineConfig::workers`](pl_wasm::EngineConfig::workers).
    ///
    /// # Errors
    /// [`Error::Worker`] where the bytes are no component, [`Error::Contract`] where it is not this worker.
    pub fn new(engine: &Engine, component: &[u8], limits: SandboxLimits) -> Result<Self, Error> {
        const LANGUAGE: &str = "python";
        let worker = |source| Error::Worker { language: LANGUAGE, source };
        let contract =
            |error: wasmtime::Error| Error::Contract { language: LANGUAGE, reason: format!("{error:#}") };
        let component = engine.load("the Python worker", component).map_err(worker)?;
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

    /// Runs one job when a worker is free, each of its cases on a worker of its own.
    pub async fn run(&self, job: Job) -> Verdict {
        if let Some(reason) = out_of_reach(&job) {
            return Verdict::of_sandbox(Ending::LostWorker, format!("sandbox: {reason}\n"), true);
        }
        if job.cases.is_empty() {
            return self.run_once(job).await;
        }
        let mut verdicts = Vec::new();
        for stdin in &job.cases {
            let job = Job { stdin: stdin.clone(), cases: Vec::new(), ..job.clone() };
            verdicts.push(self.run_once(job).await);
        }
        Verdict::of_cases(verdicts)
    }

    async fn run_once(&self, job: Job) -> Verdict {
        let Ok(_permit) = self.inner.free.acquire().await else {
            return Verdict::of_sandbox(Ending::LostWorker, "sandbox: it has shut down\n", false);
        };
        // A job computes for milliseconds to seconds: its own task lets jobs use every thread there is.
        let inner = Arc::clone(&self.inner);
        match tokio::spawn(async move { inner.run(job).await }).await {
            Ok(verdict) => verdict,
            Err(error) => {
                let message = format!("sandbox: the worker was lost: {error}\n");
                Verdict::of_sandbox(Ending::LostWorker, message, false)
            }
        }
    }
}

impl host::Host for Guest<()> {
    fn leave(&mut self, code: i32) -> wasmtime::Result<()> {
        Err(Exit(code).into())
    }
}

/// Why these workers can't run a job, where they can't.
fn out_of_reach(job: &Job) -> Option<String> {
    let what = if job.language != "python" {
        format!("{:?}", job.language)
    } else if !job.compile.is_empty() || !job.run.is_empty() {
        "command lines".to_owned()
    } else if !job.keep.is_empty() {
        "files handed back".to_owned()
    } else {
        return None;
    };
    Some(format!("the wasm backend runs python and no {what}; the docker backend does"))
}

#[async_trait]
impl Sandbox for PythonWorkers {
    async fn execute(&self, jobs: Vec<Job>) -> Vec<Verdict> {
        futures::future::join_all(jobs.into_iter().map(|job| self.run(job))).await
    }
}

impl Inner {
    async fn run(&self, job: Job) -> Verdict {
        let _seat = self.engine.seat(Stay::Long).await;
        let limits = Limits {
            memory: self.limits.memory,
            table: 100_000,
            fuel: self.limits.fuel(),
            timeout: self.limits.timeout * BACKSTOP,
            returned: 1 << 20,
        };
        let (stdout, stderr) = (Output::new(self.limits.output), Output::new(self.limits.output));
        let mut store = self.engine.store((), &limits);
        let guest = store.data_mut();
        guest.rewind(Clock::Works(Duration::ZERO), Seed::Number(seed(&job)));
        let files = job.files.iter().map(|file| (file.path.as_str(), file.bytes.as_slice()));
        if let Err(reason) = guest.set_files(self.limits.memory, files) {
            return Verdict::of_sandbox(Ending::Error, format!("sandbox: {reason}\n"), true);
        }
        guest.set_streams(job.stdin, stdout.clone(), stderr.clone());
        let started = Instant::now();
        let ended = pl_wasm::call(&mut store, async |store| {
            let worker = self.worker.instantiate_async(&mut *store).await?;
            worker.pl_host_worker_interpreter().call_run(&mut *store, &job.source).await
        })
        .await;
        let refused = store.data().memory_refused();
        let usage = Usage { time: started.elapsed(), memory: Some(store.data().memory_held()) };
        drop(store);
        tracing::debug!(took = ?usage.time, "python job");
        Verdict { usage, ..verdict(ended, refused, stdout.take(), stderr.take(), &self.limits) }
    }
}

/// Reads how the call ended, and what was printed, as a verdict.
fn verdict(
    ended: Result<Ended, Fault>,
    memory_refused: bool,
    stdout: Captured,
    stderr: Captured,
    limits: &SandboxLimits,
) -> Verdict {
    let overflowed = stdout.overflowed || stderr.overflowed;
    let reproducible = ended.as_ref().map_or_else(Fault::reproducible, |_| true);
    let (ending, exit, note) = match ended {
        _ if overflowed => {
            let note = format!("it printed more than the {} bytes that are kept", limits.output);
            (Ending::OutputLimit, None, Some(note))
        }
        Ok(Ended { exit: 0, .. }) => (Ending::Ok, Some(0), None),
        Ok(Ended { out_of_memory: true, exit }) if memory_refused => (Ending::Memory, Some(exit), None),
        Ok(Ended { exit, .. }) => (Ending::Error, Some(exit), None),
        // `os._exit`, or an exit through WASI.
        Err(Fault::Exit(0)) => (Ending::Ok, Some(0), None),
        Err(Fault::Exit(code)) => (Ending::Error, Some(code), None),
        Err(fault @ Fault::OutOfFuel { .. }) => {
            let note = match limits.fuel {
                Some(_) => fault.to_string(),
                None => format!("it ran longer than {} s", limits.timeout.as_secs_f64()),
            };
            (Ending::Timeout, None, Some(note))
        }
        Err(fault @ Fault::Timeout { .. }) => (Ending::Timeout, None, Some(fault.to_string())),
        Err(fault @ (Fault::Memory { .. } | Fault::Table { .. })) => {
            (Ending::Memory, None, Some(fault.to_string()))
        }
        Err(
            fault @ (Fault::Stack
            | Fault::Rules(_)
            | Fault::Trap(_)
            | Fault::Returned { .. }
            | Fault::Host(_)),
        ) => (Ending::Error, None, Some(fault.to_string())),
        Err(fault @ (Fault::Call(_) | Fault::Short(_))) => {
            (Ending::LostWorker, None, Some(fault.to_string()))
        }
    };
    let (stdout, stderr) =
        (printed(stdout.bytes, stdout.overflowed), printed(stderr.bytes, stderr.overflowed));
    let mut verdict = Verdict { ending, exit, stdout, stderr, reproducible, ..Verdict::default() };
    if let Some(note) = note {
        verdict.note(&note);
    }
    verdict
}

/// Equal jobs draw equal random numbers, others differ.
fn seed(job: &Job) -> u64 {
    let mut hasher = blake3::Hasher::new();
    for part in [job.source.as_bytes(), job.stdin.as_bytes()]
        .into_iter()
        .chain(job.files.iter().flat_map(|file| [file.path.as_bytes(), &file.bytes]))
    {
        // Lengths keep the parts apart.
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(first)
}
