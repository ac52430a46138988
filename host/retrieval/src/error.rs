//! Errors of corpora, each with the file and, if there is one, the line.

use std::path::{Path, PathBuf};

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file can't be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// A record can't be used.
    #[error("{}, {place}: {problem}", path.display())]
    Record {
        path: PathBuf,
        place: Place,
        /// The problem, and what to do.
        problem: String,
    },
    /// The corpus has no passage.
    #[error("{} has no passages", path.display())]
    Empty { path: PathBuf },
    /// The index can't be written or read.
    #[error("index of the corpus in {}: {source}; delete the folder to build it again", folder.display())]
    Index { folder: PathBuf, source: Box<tantivy::TantivyError> },
    /// There is no stemmer for a language.
    #[error("no stemmer for the language {word:?}; use `none`")]
    UnknownLanguage { word: String },
    /// The address of a retrieval server is not usable, or it can't be set up.
    #[error(transparent)]
    Server(Box<pl_servers::ServerError>),
}

/// Place of a record in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A line of a JSONL file, from 1.
    Line(u64),
    /// A key of a JSON object.
    Key(String),
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Line(line) => write!(f, "line {line}"),
            Place::Key(key) => write!(f, "passage {key:?}"),
        }
    }
}

impl Error {
    /// Returns a function that makes an error of a path's input.
    pub(crate) fn read(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Read { path, source }
    }

    /// Returns a function that makes an error of the index in a folder.
    pub(crate) fn index(folder: &Path) -> impl Fn(tantivy::TantivyError) -> Self {
        let folder = folder.to_path_buf();
        move |source| Self::Index { folder: folder.clone(), source: Box::new(source) }
    }
}
