//! What can go wrong with a model's files. Messages name the file and say what to do next.

use std::path::{Path, PathBuf};

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not what its name or place says that it is.
    #[error("{path}: {reason}", path = .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// A tensor is missing.
    #[error("{path}: the tensor `{tensor}` is missing; no whole model of the kind that its settings name is there", path = .path.display())]
    MissingTensor {
        /// The file or folder.
        path: PathBuf,
        /// The name looked for.
        tensor: String,
    },
    /// A tensor's shape does not follow from the model's configuration.
    #[error("{path}: the tensor `{tensor}` has shape {got:?}, but the model's configuration makes it {expected:?}", path = .path.display())]
    Shape {
        /// The file or folder.
        path: PathBuf,
        /// The tensor's name.
        tensor: String,
        /// From the configuration.
        expected: Vec<i64>,
        /// From the file.
        got: Vec<i64>,
    },
    /// The tokenizer refused.
    #[error("tokenizer of {model}: {reason}")]
    Tokenizer {
        /// Where the model came from.
        model: String,
        /// What the tokenizer said.
        reason: String,
    },
    /// The chat template is missing, does not parse or refused the messages.
    #[error("chat template of {model}: {reason}")]
    Template {
        /// Where the model came from.
        model: String,
        /// What the template said.
        reason: String,
    },
    /// A model could not be fetched from a hub.
    #[error("{model}: {reason}")]
    Hub {
        /// As the workflow writes it.
        model: String,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// An adapter's settings make no sense.
    #[error("adapter: {0}")]
    Adapter(String),
    /// A packed row is not one.
    #[error("packed row: {0}")]
    Packed(String),
    /// libtorch refused.
    #[error("libtorch: {0}")]
    Torch(#[from] tch::TchError),
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { path, source }
    }

    pub(crate) fn format(path: &Path, reason: impl Into<String>) -> Self {
        Self::Format { path: path.to_path_buf(), reason: reason.into() }
    }
}
