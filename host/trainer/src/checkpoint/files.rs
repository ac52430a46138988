//! File operations with errors that name the path.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Entries of a folder, sorted. Empty if the folder does not exist.
pub(super) fn list_folder(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error(folder, "list the folder")(error)),
    };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
    let mut paths = paths.map_err(io_error(folder, "list the folder"))?;
    paths.sort();
    Ok(paths)
}

/// Checks that a checkpoint has only files and folders, and links to such within it.
pub(super) fn check_content(checkpoint: &Path) -> Result<(), Error> {
    let root = checkpoint.canonicalize().map_err(io_error(checkpoint, "open the folder"))?;
    check_below(&root, checkpoint)
}

/// Checks the entries below a folder of a checkpoint. `root` is the checkpoint's path without links.
fn check_below(root: &Path, folder: &Path) -> Result<(), Error> {
    for path in list_folder(folder)? {
        let kind = path.symlink_metadata().map_err(io_error(&path, "read the file"))?.file_type();
        if kind.is_symlink() {
            let target = path.canonicalize().map_err(io_error(&path, "follow the link"))?;
            if !target.starts_with(root) {
                return Err(damaged(&path, "is a link to something outside of the checkpoint"));
            }
        } else if kind.is_dir() {
            check_below(root, &path)?;
        } else if !kind.is_file() {
            return Err(damaged(&path, "is not a regular file"));
        }
    }
    Ok(())
}

/// Returns the size in bytes of a file, or of the files in a folder together. Files in folders below it and files that are
/// missing count as 0.
pub(super) fn file_bytes(path: &Path) -> Result<u64, Error> {
    let files = if path.is_dir() { list_folder(path)? } else { vec![path.to_path_buf()] };
    let metadata = files.iter().filter_map(|file| file.metadata().ok());
    Ok(metadata.filter(|file| file.is_file()).map(|file| file.len()).fold(0, u64::saturating_add))
}

/// Flushes a file, or the entries of a folder, to the disk.
pub(super) fn sync(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|file| file.sync_all()).map_err(io_error(path, "sync to the disk"))
}

pub(super) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

pub(super) fn io_error(path: &Path, doing: &'static str) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_path_buf();
    move |source| Error::Io { path, doing, source }
}

/// An error for a damaged file; `problem` completes "this file …".
pub(super) fn damaged(path: &Path, problem: &str) -> Error {
    let problem = format!(
        "the checkpoint is damaged: this file {problem}; delete its folder and resume from an older checkpoint"
    );
    Error::Checkpoint { path: path.to_path_buf(), problem }
}
