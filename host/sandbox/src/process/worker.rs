//! Main function of a worker process.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use pl_supervisor::{read_frame, write_frame};
use pl_wasm::{Engine, EngineConfig};
use tokio::runtime::{Builder, Runtime};

use super::confine::{ConfineError, confine};
use super::protocol::{WorkerReady, WorkerStart};
use crate::error::Error;
use crate::job::Job;
use crate::limits::SandboxLimits;
use crate::python::PythonWorkers;

/// Reason for which a worker process can't take jobs.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error(transparent)]
    Engine(#[from] pl_wasm::Error),
    #[error(transparent)]
    Workers(#[from] Error),
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error(transparent)]
    Confine(#[from] ConfineError),
}

/// Serves jobs on the standard input, which is a socket, until its other end is closed. `component` is the Python
/// worker, compressed with zstd.
///
/// # Errors
/// Errors of the socket. A worker that can't start says so to the other end and returns.
pub fn serve_jobs(component: &[u8]) -> io::Result<()> {
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let start: WorkerStart = read_frame(&mut socket, usize::MAX)?;
    let (runtime, workers) = match prepare(component, start) {
        Ok(prepared) => prepared,
        Err(error) => {
            return write_frame(&mut socket, &WorkerReady::Failed(error.to_string()));
        }
    };
    write_frame(&mut socket, &WorkerReady::Ready)?;
    loop {
        let job: Job = match read_frame(&mut socket, usize::MAX) {
            Ok(job) => job,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let verdict = runtime.block_on(workers.run(job));
        write_frame(&mut socket, &verdict)?;
    }
}

fn prepare(component: &[u8], start: WorkerStart) -> Result<(Runtime, PythonWorkers), StartError> {
    let memory = start.limits.memory;
    let engine = Engine::new(EngineConfig::workers().cache_dir(start.cache_dir))?;
    let workers = PythonWorkers::new(&engine, component, SandboxLimits { workers: 1, ..start.limits })?;
    // Another thread than this one could only be started before the confinement.
    let runtime = Builder::new_current_thread().enable_time().build().map_err(StartError::Runtime)?;
    // The first job starts the engine's clock and opens what it reads while it runs.
    runtime.block_on(workers.run(Job { language: "python".to_owned(), ..Job::default() }));
    confine(memory)?;
    Ok((runtime, workers))
}
