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
    Record { path: PathBuf, place: Place, problem: RecordProblem },
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

/// Reason for which a record is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordProblem {
    #[error("it is longer than {} MiB", limit >> 20)]
    LongLine { limit: u64 },
    #[error(
        "{error}; each line is one JSON object, such as {{\"id\": \"1\", \"title\": \"…\", \"text\": \"…\"}}"
    )]
    NotALine { error: String },
    #[error(
        "{error}; a file `*.json` is one object {{\"TITLE\": [\"SENTENCE\", …], …}}, and JSONL needs another name"
    )]
    NotAnObject { error: String },
    #[error("`{field}` is empty")]
    EmptyId { field: String },
    #[error("`{field}` is neither a text nor a whole number")]
    InvalidId { field: String },
    #[error("`{field}` is not a text")]
    NotText { field: String },
    #[error(
        "it has no `{}`; name the field with `text = \"…\"` in the corpus block ({})",
        names.join("` or `"),
        if others.is_empty() { "there are no others".to_owned() } else { format!("the others are: {}", others.join(", ")) }
    )]
    NoText { names: Vec<String>, others: Vec<String> },
    #[error("it has neither a title nor a text")]
    Empty,
    #[error("it is longer than {} KiB; split it into passages", limit >> 10)]
    LongPassage { limit: usize },
    #[error("the id {id:?} is that of {unit} {position} already")]
    RepeatedId { id: String, unit: &'static str, position: u64 },
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
