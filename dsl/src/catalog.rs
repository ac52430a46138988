//! Access of the check to plugins and files.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use pl_types::Item;
use thiserror::Error;

use crate::workflow::Plugin;

/// Largest workflow, and largest file that one may name, in bytes. People write prompts and parts of workflows; a larger file
/// is something else.
const LARGEST_FILE: u64 = 16 << 20;

/// Gives the check access to the items of plugins and to files, without a dependency of the language on WebAssembly.
pub trait Catalog {
    /// Returns the items of a plugin.
    ///
    /// # Errors
    /// [`CatalogError`], to be shown after `plugin "x" can't be loaded: `.
    fn items(&self, plugin: &Plugin) -> Result<Vec<Item>, CatalogError>;

    /// Returns the text of a file named by `include`, `use` or `file(…)`. The path is relative to the folder of the
    /// workflow file.
    ///
    /// # Errors
    /// [`CatalogError`], to be shown after `x.mas can't be read: `.
    fn text(&self, path: &Path) -> Result<String, CatalogError>;
}

/// Reason why a plugin or a file is not available.
#[derive(Debug, Clone, Error)]
pub enum CatalogError {
    /// The plugin can't be loaded.
    #[error("{0}")]
    Plugin(Arc<dyn std::error::Error + Send + Sync>),
    /// The file can't be read.
    #[error("{0}")]
    Io(Arc<std::io::Error>),
    /// A folder, or a special file such as a pipe.
    #[error("it is not a file")]
    NotAFile,
    /// The file exceeds the limit.
    #[error("it is larger than {} MiB", LARGEST_FILE >> 20)]
    TooLarge,
    /// A line is not UTF-8.
    #[error("line {0} is not UTF-8: save the file as UTF-8")]
    NotUtf8(usize),
    /// The file is outside of the folder of the workflow, and reading it was not allowed.
    #[error("it is outside of the workflow's folder; `{flag}` allows it")]
    NotAllowed {
        /// Flag that allows it.
        flag: String,
    },
    /// The catalog has no plugins or files, with the reason.
    #[error("{0}")]
    Unavailable(&'static str),
}

impl CatalogError {
    /// Creates the error of a plugin that can't be loaded.
    pub fn plugin(reason: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Plugin(Arc::new(reason))
    }
}

impl From<std::io::Error> for CatalogError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(Arc::new(error))
    }
}

impl From<CatalogError> for std::io::Error {
    fn from(error: CatalogError) -> Self {
        match error {
            CatalogError::Io(error) => std::io::Error::new(error.kind(), error),
            error @ CatalogError::NotUtf8(_) => std::io::Error::new(std::io::ErrorKind::InvalidData, error),
            error => std::io::Error::other(error),
        }
    }
}

/// Reads a workflow file, or a file for [`Catalog::text`].
///
/// # Errors
/// [`CatalogError`] if it is not a plain file, too large, not UTF-8 or can't be read.
pub fn read_text(path: &Path) -> Result<String, CatalogError> {
    read_text_of(pl_types::open_file(path)?)
}

/// Reads an open file for [`Catalog::text`].
///
/// # Errors
/// Those of [`read_text`].
pub fn read_text_of(file: std::fs::File) -> Result<String, CatalogError> {
    if !file.metadata()?.is_file() {
        return Err(CatalogError::NotAFile);
    }
    let mut bytes = Vec::new();
    let read = file.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
    if read as u64 > LARGEST_FILE {
        return Err(CatalogError::TooLarge);
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        CatalogError::NotUtf8(1 + before.filter(|byte| **byte == b'\n').count())
    })
}
