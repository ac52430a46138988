//! Errors of this crate. Messages name the file and the remedy.

use std::path::{Path, PathBuf};

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file could not be read or written.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A file is invalid.
    #[error("{path}: {reason}", path = .path.display())]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// The problem and the remedy.
        reason: String,
    },
    /// A tensor is missing.
    #[error("{path}: the tensor `{tensor}` is missing; the model is incomplete or not of the kind that its configuration names", path = .path.display())]
    MissingTensor {
        /// Path of the file or folder.
        path: PathBuf,
        /// Name of the tensor.
        tensor: String,
    },
    /// A tensor's shape does not follow from the model's configuration.
    #[error("{path}: the tensor `{tensor}` has shape {got:?}, but the model's configuration makes it {expected:?}", path = .path.display())]
    Shape {
        /// Path of the file or folder.
        path: PathBuf,
        /// Name of the tensor.
        tensor: String,
        /// Shape according to the configuration.
        expected: Vec<i64>,
        /// Shape in the file.
        got: Vec<i64>,
    },
    /// A delta begins at other weights than those that it is applied to.
    #[error("{path}: the delta begins at the weights {expected}, not at {got}", path = .path.display())]
    OtherVersion {
        /// Path of the delta.
        path: PathBuf,
        /// Checksum of the weights that it begins at.
        expected: String,
        /// Checksum of the present weights.
        got: String,
    },
    /// The tokenizer is invalid or failed.
    #[error("tokenizer of {model}: {reason}")]
    Tokenizer {
        /// Source of the model.
        model: String,
        /// The tokenizer's message.
        reason: String,
    },
    /// The chat template is missing or invalid, or it rejected the messages.
    #[error("chat template of {model}: {reason}")]
    Template {
        /// Source of the model.
        model: String,
        /// The template's message.
        reason: String,
    },
    /// A model could not be downloaded from a hub.
    #[error("{model}: {reason}")]
    Hub {
        /// The model, as written in the workflow.
        model: String,
        /// The problem and the remedy.
        reason: String,
    },
    /// An adapter's settings are invalid.
    #[error("adapter: {0}")]
    Adapter(String),
    /// Packed sequences are invalid.
    #[error("packed sequences: {0}")]
    Packed(String),
    /// libtorch failed.
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
