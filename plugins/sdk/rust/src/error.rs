//! Errors that a plugin returns instead of a result.

use std::fmt::Display;

pub use crate::bindings::pl_host::plugin::types::{Error, ErrorKind};

impl Error {
    /// The item's settings are invalid: the host points to the item's block in the workflow.
    pub fn settings(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Settings, message: message.into() }
    }

    /// The environment can't read the task's record: the host points to its line.
    pub fn task(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Task, message: message.into() }
    }

    /// The item cannot continue for a reason other than its settings or the task.
    pub fn internal(message: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Internal, message: message.into() }
    }

    /// JSON or a snapshot that can't be read; `what` names it.
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

/// Result of a call of a plugin.
pub type Result<T> = std::result::Result<T, Error>;
