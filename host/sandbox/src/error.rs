//! Errors of sandboxes.

use crate::docker::error::DockerError;
use crate::process::ProcessError;

/// Reason why a sandbox is not available.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The component of a language can't be loaded.
    #[error("the {language} worker: {source}")]
    Worker {
        /// The language.
        language: &'static str,
        /// Reason.
        source: pl_wasm::Error,
    },
    /// The component was loaded, but does not implement this program's contract.
    #[error(
        "the {language} worker does not fit this program: {reason}; build it again with `cargo xtask setup`"
    )]
    Contract {
        /// The language.
        language: &'static str,
        /// Message of the WASM engine.
        reason: String,
    },
    /// Worker processes can't be started.
    #[error("the worker process {program}: {problem}")]
    Process {
        /// The program.
        program: String,
        /// Reason.
        problem: ProcessError,
    },
    /// Containers are not available.
    #[error(transparent)]
    Docker(#[from] DockerError),
}
