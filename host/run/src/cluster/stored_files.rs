//! Files of a folder as bytes of a message.

use std::fs;
use std::path::{Component, Path};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use walkdir::WalkDir;

use crate::error::cluster::ClusterError;

/// A file of a folder.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredFile {
    /// Path in the folder, with `/`.
    path: String,
    bytes: Vec<u8>,
}

/// Returns the files that `save` writes into a folder, sorted by path.
///
/// # Errors
/// Those of `save`, as text; if a temporary file can't be written or read.
pub(super) fn files_of<E: std::error::Error>(
    save: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<Vec<StoredFile>, ClusterError> {
    let folder = temporary()?;
    save(folder.path()).map_err(|error| ClusterError::unreadable("the weights", error))?;
    let mut files = Vec::new();
    for entry in WalkDir::new(folder.path()).sort_by_file_name() {
        let entry = entry.map_err(|error| ClusterError::file(folder.path())(error.into()))?;
        let Ok(inner) = entry.path().strip_prefix(folder.path()) else { continue };
        if entry.file_type().is_file() {
            let bytes = fs::read(entry.path()).map_err(ClusterError::file(entry.path()))?;
            let parts = inner.components().map(|part| part.as_os_str().to_string_lossy());
            files.push(StoredFile { path: parts.collect::<Vec<_>>().join("/"), bytes });
        }
    }
    Ok(files)
}

/// Writes files into a temporary folder, from which `load` reads.
///
/// # Errors
/// Those of `load`, as text; if a path leads out of the folder, or a file can't be written.
pub(super) fn load_files<T, E: std::error::Error>(
    files: Vec<StoredFile>,
    load: impl FnOnce(&Path) -> Result<T, E>,
) -> Result<T, ClusterError> {
    let folder = temporary()?;
    for StoredFile { path, bytes } in files {
        let inner = Path::new(&path);
        if !inner.components().all(|part| matches!(part, Component::Normal(_))) {
            let reason = format!("the path {path} leads out of its folder");
            return Err(ClusterError::unreadable("the weights", reason));
        }
        let path = folder.path().join(inner);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(ClusterError::file(parent))?;
        }
        fs::write(&path, bytes).map_err(ClusterError::file(&path))?;
    }
    load(folder.path()).map_err(|error| ClusterError::unreadable("the weights", error))
}

fn temporary() -> Result<TempDir, ClusterError> {
    let folder = tempfile::Builder::new().prefix("pl-host-weights-").tempdir();
    folder.map_err(ClusterError::file(&std::env::temp_dir()))
}
