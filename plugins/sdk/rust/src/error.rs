//! Refusals: what a guest answers instead of a result.

use std::fmt::Display;

pub use crate::bindings::pl_host::plugin::types::{Error, ErrorKind};

impl Error {
    /// The item's settings do not mean anything: the host points to the item's block in the workflow.
    pub fn settings(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Settings, message: message.into() }
    }

    /// The task's record is not of a form that the environment reads: the host points to its line.
    pub fn task(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Task, message: message.into() }
    }

    /// The item cannot go on, and neither the settings nor the task are to blame.
    pub fn internal(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Internal, message: message.into() }
    }

    /// JSON, or a snapshot, of the wrong form; `what` says whose it is.
    pub(crate) fn unreadable(kind: ErrorKind, what: &str, cause: &dyn Display) -> Self {
        Self { kind, message: format!("{what}: {cause}") }
    }
}

impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.message == other.message
    }
}

impl Eq for Error {}

/// What one call of a guest gives.
pub type Result<T> = std::result::Result<T, Error>;
