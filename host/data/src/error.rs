//! Errors of data sets.

use std::path::{Path, PathBuf};

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
    /// A file has too many records.
    #[error("{} has more than {most} records", path.display())]
    TooManyRecords { path: PathBuf, most: u64 },
    /// A folder has too many files to look through.
    #[error("{} has more than {most} files and folders: name one of its folders", path.display())]
    TooManyFiles { path: PathBuf, most: usize },
    /// The files of a split of a folder are too large together.
    #[error("the files of the split {split} in {} have more than {} GiB", path.display(), largest >> 30)]
    LargeSplit { path: PathBuf, split: String, largest: u64 },
    /// A folder has no splits that can be read.
    #[error(
        "{} has no split: no file in it has train, validation or test in its name, or in that of its folder, and ends in \
         .jsonl, .jsonl.gz, .json, .parquet or .txt; name one of its files",
        path.display()
    )]
    NoSplit { path: PathBuf },
    /// A folder has several configurations, and none is the default.
    #[error(
        "{} has several configurations, name one as in `./FOLDER:CONFIG:SPLIT`; it has {}",
        path.display(),
        configs.join(", ")
    )]
    SeveralConfigs { path: PathBuf, configs: Vec<String> },
    /// A folder has no such configuration.
    #[error("{} has no configuration {config}; it has {}", path.display(), configs.join(", "))]
    UnknownConfig { path: PathBuf, config: String, configs: Vec<String> },
    /// A folder has several splits, and none is named.
    #[error(
        "{} has several splits, name one as in `./FOLDER:SPLIT`; it has {}",
        path.display(),
        splits.join(", ")
    )]
    SeveralSplits { path: PathBuf, splits: Vec<String> },
    /// A folder has no such split.
    #[error("{} has no split {split}; it has {}", path.display(), splits.join(", "))]
    UnknownFolderSplit { path: PathBuf, split: String, splits: Vec<String> },
    /// The files of a split that a data card names are missing.
    #[error("{} lacks the files of the split {split} that its README.md names", path.display())]
    MissingFiles { path: PathBuf, split: String },
    /// The files of a split have several forms, and may be the same records twice.
    #[error(
        "{} has files of one split in several forms: {}; keep those of one form, or name one file as `tasks`",
        path.display(),
        files.join(", ")
    )]
    SeveralForms { path: PathBuf, files: Vec<String> },
    /// Some of the numbered files of a split are missing.
    #[error(
        "{} lacks {}{}: fetch the data set again, or rename the files that are there",
        path.display(),
        missing.join(", "),
        if *more == 0 { String::new() } else { format!(" and {more} more") }
    )]
    MissingShards { path: PathBuf, missing: Vec<String>, more: usize },
    /// A file of a folder is a link out of it, or no regular file.
    #[error(
        "{} is no file of its folder: a link out of a folder of tasks is not followed; copy the file, or name it",
        path.display()
    )]
    NotInside { path: PathBuf },
    /// The front matter of a data card has another form.
    #[error("the front matter of {} can't be read: {reason}", path.display())]
    Card { path: PathBuf, reason: String },
    /// A data card names a path that leads out of its folder.
    #[error("{} names {named}, which leads out of the folder", path.display())]
    CardPath { path: PathBuf, named: String },
    /// A file can't be written.
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    /// The file is not valid Parquet.
    #[error("{} can't be read as Parquet: {source}", path.display())]
    Parquet { path: PathBuf, source: pl_parquet::Error },
    /// The file is not valid JSON. `place` is the line, and the column if it is known, each after a colon.
    #[error("{}{place}: {reason}", path.display())]
    Json { path: PathBuf, place: String, reason: String },
    /// The file is not valid UTF-8.
    #[error("{}:{line}: the text is not UTF-8", path.display())]
    NotUtf8 { path: PathBuf, line: usize },
    /// The file has no form that can be read.
    #[error("{} has none of the forms that can be read: .jsonl, .jsonl.gz, .json, .parquet, .txt (Boxoban, Sudokus)", path.display())]
    Form { path: PathBuf },
    /// A line of a text file has no Sudoku.
    #[error(
        "{}, line {line}: a text file of tasks has a Sudoku on each line (16, 36 or 81 digits, with `0` or `.` for an empty cell; \
         comments begin with `#`), or Boxoban's levels, which begin with `;`",
        path.display()
    )]
    NoSudoku { path: PathBuf, line: usize },
    /// A file of JSON has several lists.
    #[error("{} has the lists {}: keep only that of the records", path.display(), names.join(", "))]
    SeveralLists { path: PathBuf, names: Vec<String> },
    /// A file of JSON has no list.
    #[error(
        "{} is neither a list of records nor an object with one list of them; a single record is written as `[{{…}}]`",
        path.display()
    )]
    NoList { path: PathBuf },
    /// A record is not an object.
    #[error("{}, record {record} is not an object", path.display())]
    NotAnObject { path: PathBuf, record: usize },
    /// A record lacks a field of the catalogue's row.
    #[error("{}, record {record} has no {}; it has {}", path.display(), wanted.join(" or "), fields.join(", "))]
    MissingField { path: PathBuf, record: usize, wanted: Vec<&'static str>, fields: Vec<String> },
    /// The files have no record.
    #[error("{} has no tasks", path.display())]
    NoTasks { path: PathBuf },
    /// The files have no record of the split.
    #[error("{} has no record of {name}", path.display())]
    Empty { path: PathBuf, name: String },
}

impl Error {
    /// Returns the error of a value of JSON: that of a line of a file, or a whole file.
    pub(crate) fn json(path: &Path, line: Option<usize>, error: &serde_json::Error) -> Error {
        // Its own text ends with a line that is counted from the beginning of the value.
        let text = error.to_string();
        let position = format!(" at line {} column {}", error.line(), error.column());
        let reason = text.strip_suffix(&position).unwrap_or(&text).to_owned();
        let has_position = error.line() > 0;
        let line = line.or(has_position.then_some(error.line()));
        let column = has_position.then_some(error.column());
        let place = line.into_iter().chain(column).map(|number| format!(":{number}")).collect();
        Error::Json { path: path.to_path_buf(), place, reason }
    }
}
