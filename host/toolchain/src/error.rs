//! Errors of plugin projects, worded for their authors.

use std::path::{Path, PathBuf};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Reason why a project could not be created or built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },

    /// A file of the project is invalid.
    #[error("{}: {message}", path.display())]
    Project { path: PathBuf, message: String },

    /// An argument is invalid.
    #[error("{0}")]
    Input(String),

    /// The tools of a language are missing.
    #[error("{missing}\nhint: {}", ways.join("\n      "))]
    NoTool {
        /// The missing tool, its purpose, and the places where it was looked up.
        missing: String,
        /// Commands that help, with the conditions under which they do.
        ways: Vec<String>,
    },

    /// A tool failed.
    #[error("{message}{}", if log.is_empty() { String::new() } else { format!(":\n{}", log.trim_end()) })]
    Failed {
        /// The step that failed, with advice.
        message: String,
        /// Output of the tool. Empty if it was shown while the tool ran.
        log: String,
    },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { action, path, source }
    }

    pub(crate) fn failed(message: impl Into<String>) -> Error {
        Error::Failed { message: message.into(), log: String::new() }
    }
}
