//! Untrusted code: jobs, verdicts, WASM workers in this process or in others, Docker workers.
//!
//! A job is a program with its input. A [`Sandbox`] runs it and returns a [`Verdict`], even if the program
//! loops, grows, prints without end or breaks its interpreter. No function here returns an error because of a
//! program's behaviour: verdicts express that.

mod bindings;
mod denied;
mod docker;
mod error;
mod job;
mod limits;
mod proc_stat;
mod process;
mod python;
mod sandbox;

pub use denied::DeniedSandbox;
pub use docker::{
    DEFAULT_IMAGE, DockerError, DockerSettings, DockerWorkers, ImageSource, Inspection, WorkerError,
    default_endpoint,
};
pub use error::Error;
pub use job::{Ending, File, Job, Usage, Verdict};
pub use limits::SandboxLimits;
pub use process::{
    ConfineError, PROCESS_OVERHEAD, ProcessError, ProcessSettings, ProcessWorkers, WorkerProgram, confine,
    serve_jobs,
};
pub use python::{EMBEDDED_OVERHEAD, PythonWorkers};
pub use sandbox::Sandbox;
