//! Errors of data sets.

use std::path::PathBuf;

/// Reason for which a data set can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The catalogue has no such data set.
    #[error("there is no data set {name}; `pl-host data list` shows them: {}", known.join(", "))]
    UnknownData { name: String, known: Vec<&'static str> },
    /// The data set has no such split.
    #[error("{data} has no split {split}; it has {}", splits.join(", "))]
    UnknownSplit { data: &'static str, split: String, splits: Vec<&'static str> },
    /// A file or folder can't be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// A packed file has too long a text.
    #[error("{} unpacks to more than {} GiB", path.display(), largest >> 30)]
    TooLarge { path: PathBuf, largest: u64 },
    /// A file can't be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// The file is not valid Parquet.
    #[error("{} can't be read as Parquet: {source}", path.display())]
    Parquet { path: PathBuf, source: parquet::errors::ParquetError },
    /// The file is not valid JSON.
    #[error("{}, record {record}: {source}", path.display())]
    Json { path: PathBuf, record: usize, source: serde_json::Error },
    /// The file has no form that can be read.
    #[error("{} has none of the forms that can be read: .jsonl, .jsonl.gz, .json, .parquet, .txt (Boxoban)", path.display())]
    Form { path: PathBuf },
    /// A record is not an object.
    #[error("{}, record {record} is not an object", path.display())]
    NotAnObject { path: PathBuf, record: usize },
    /// A record lacks a field of the catalogue's row.
    #[error("{}, record {record} has no {}; it has {}", path.display(), wanted.join(" or "), fields.join(", "))]
    MissingField { path: PathBuf, record: usize, wanted: Vec<&'static str>, fields: Vec<String> },
    /// The files have no record of the split.
    #[error("{} has no record of {name}", path.display())]
    Empty { path: PathBuf, name: String },
}
