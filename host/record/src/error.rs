//! Errors of a run folder.

use std::path::{Path, PathBuf};

use crate::lock_holder::LockHolder;

/// Errors of a run folder. Each names the file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    /// The folder of a new run has a run in it.
    #[error(
        "{path} already holds a run; choose another --out, or continue it with --resume {path}",
        path = path.display()
    )]
    Occupied { path: PathBuf },
    /// The folder of a new run has an entry that the run would overwrite.
    #[error(
        "{} is not a run folder, but has an entry `{entry}`, which a run would overwrite; choose another --out, or move \
         the entry away",
        path.display()
    )]
    InUse { path: PathBuf, entry: &'static str },
    /// The folder of a new run has what is left of one that was killed while its folder was created.
    #[error(
        "{path} has a run that ended before it could start, and no episode; delete the folder, or choose another --out",
        path = path.display()
    )]
    Unstarted { path: PathBuf },
    /// Another process writes into the run folder.
    #[error(
        "{} is in use by {}; wait until that run ends, or stop it with Ctrl-C, after which it saves a checkpoint, and \
         run the command again",
        path.display(), holder.as_ref().map_or("another process".to_owned(), LockHolder::to_string)
    )]
    Locked { path: PathBuf, holder: Option<LockHolder> },
    /// A folder to resume or replay is not a run folder.
    #[error(
        "{} is not a run folder: it has no {missing}; name a folder that `pl-host run` has written (runs/NAME, or that \
         of --out)",
        path.display()
    )]
    NoRun { path: PathBuf, missing: String },
    /// A file of a run folder is missing.
    #[error("{} is a run folder without {missing}; restore the file from a copy of the run", path.display())]
    Incomplete { path: PathBuf, missing: String },
    /// A line of a JSON file is invalid.
    #[error("{}:{line}: {message}", path.display())]
    Line { path: PathBuf, line: usize, message: String },
    /// A value can't be written as JSON.
    #[error("cannot write {}: {source}", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    /// A Parquet file can't be read or written.
    #[error("cannot {action} {}: {message}", path.display())]
    Table { action: &'static str, path: PathBuf, message: String },
    /// A trace file has another format than this program reads.
    #[error(
        "{} has format {found} of traces, but this pl-host reads format {supported}; replay the run with the \
         pl-host that wrote it (`version` in lock.json)",
        path.display()
    )]
    TraceFormat { path: PathBuf, found: u32, supported: u32 },
    /// An append-only file is shorter than when the checkpoint was made.
    #[error(
        "{} has {found} bytes, but had {expected} when the checkpoint was made: the file was truncated; to resume from \
         the checkpoint before it, move the newest one out of the folder `checkpoints`",
        path.display()
    )]
    Truncated { path: PathBuf, found: u64, expected: u64 },
    /// The curves can't be drawn.
    #[error("cannot draw {}: {source}", path.display())]
    Drawing { path: PathBuf, source: Box<dyn std::error::Error + Send + Sync> },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { action, path, source }
    }

    pub(crate) fn json(path: &Path) -> impl FnOnce(serde_json::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Json { path, source }
    }
}
