//! What can go wrong with a plugin project, in words for its author.

use std::path::{Path, PathBuf};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a project could not be made or built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },

    /// A file of the project says what can't be.
    #[error("{}: {message}", path.display())]
    Project { path: PathBuf, message: String },

    /// What was asked for can't be had.
    #[error("{0}")]
    Input(String),

    /// A language's tools are not there.
    #[error("{missing}\nhint: {}", ways.join("\n      "))]
    NoTool {
        /// A sentence: what is missing for what, and where it was looked for.
        missing: String,
        /// Commands that help, each with when it does.
        ways: Vec<String>,
    },

    /// A tool said no.
    #[error("{what}{}", if log.is_empty() { String::new() } else { format!(":\n{}", log.trim_end()) })]
    Failed {
        /// A sentence: which step failed and what to do.
        what: String,
        /// All that the tool said; empty where it was shown while it ran.
        log: String,
    },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { action, path, source }
    }

    pub(crate) fn project(path: &Path, message: impl Into<String>) -> Error {
        Error::Project { path: path.to_path_buf(), message: message.into() }
    }

    pub(crate) fn failed(what: impl Into<String>) -> Error {
        Error::Failed { what: what.into(), log: String::new() }
    }
}

impl From<Error> for String {
    fn from(error: Error) -> String {
        error.to_string()
    }
}
