//! What can go wrong with a run folder, in words for its owner.

use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
    #[error("{} already holds a run; give another --out, or go on with --resume {}", path.display(), path.display())]
    Occupied { path: PathBuf },
    #[error("{} is no run folder: it has no workflow.json", path.display())]
    NoRun { path: PathBuf },
    #[error("{}:{line}: {message}", path.display())]
    Line { path: PathBuf, line: usize, message: String },
    #[error("cannot {action} {}: {message}", path.display())]
    Table { action: &'static str, path: PathBuf, message: String },
    #[error(
        "{} has {found} bytes, but the checkpoint was made when it had {expected}: the file was cut; resume from an older checkpoint",
        path.display()
    )]
    Cut { path: PathBuf, found: u64, expected: u64 },
    #[error("cannot draw {}: {message}", path.display())]
    Drawing { path: PathBuf, message: String },
}

impl Error {
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.to_path_buf();
        move |source| Error::Io { action, path, source }
    }
}
