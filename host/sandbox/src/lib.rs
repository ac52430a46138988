//! Untrusted code: jobs, verdicts, WASM workers, Docker workers.
//!
//! A job is a program with its input. Where it runs is behind [`Sandbox`]; what came of it is a [`Verdict`],
//! also when the program loops, grows, prints without end or breaks its interpreter. Nothing here returns an
//! error for what a program does: that is what verdicts are for.

mod bindings;
mod docker;
mod job;
mod python;
mod refuse;

use async_trait::async_trait;
use thiserror::Error;

pub use docker::{DEFAULT_IMAGE, DockerSettings, DockerWorkers, ImageSource, Inspection, default_endpoint};
pub use job::{Ending, File, Job, Usage, Verdict};
pub use python::{PythonWorkers, SandboxLimits};
pub use refuse::Refuse;

/// A place where jobs run.
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// Runs the jobs, each on a fresh worker, side by side as far as there are workers. Verdicts come in the
    /// order of the jobs.
    async fn execute(&self, jobs: Vec<Job>) -> Vec<Verdict>;
}

/// A sandbox that can't be had.
#[derive(Debug, Error)]
pub enum Error {
    /// The component of a language does not load.
    #[error("the {language} worker: {source}")]
    Worker {
        /// The language.
        language: &'static str,
        /// Why.
        source: pl_wasm::Error,
    },
    /// The component loads, but is no worker of this contract.
    #[error(
        "the {language} worker does not fit this program: {reason}; build it again with `cargo xtask setup`"
    )]
    Contract {
        /// The language.
        language: &'static str,
        /// The engine's words.
        reason: String,
    },
    /// No container can be had.
    #[error("{reason}")]
    Docker {
        /// What is missing and what to do.
        reason: String,
    },
}
