//! Python jobs in worker processes: the WebAssembly workers behind a second wall. A worker process has no files, no
//! network and hardly any system calls, so that a hole in the WebAssembly engine is not a hole in this program.

mod confine;
mod pool;
mod protocol;
mod worker;
mod worker_process;

pub use confine::{ConfineError, PROCESS_OVERHEAD, confine};
pub use pool::{ProcessSettings, ProcessWorkers};
pub use worker::serve_jobs;
pub use worker_process::{ProcessError, WorkerProgram};
