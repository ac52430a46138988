//! Data sets by name: `gsm8k:test` in place of the path of a task file.
//!
//! The `catalogue` says for each split which files hold it, where it is published, and which fields of its records an
//! environment needs. [`read_file`] reads JSONL, JSON, Parquet, Boxoban's level files and collections of Sudokus;
//! [`Split::read`] makes task records of them. [`FolderSplit`] finds the files of a split in a folder of the hub's layout.
//! Nothing is fetched here: the caller has the network.

mod card;
mod catalogue;
mod error;
mod exact_json;
mod files;
#[cfg(test)]
mod fixtures;
mod folder;
mod form;
mod glob;
mod nanoseconds;
mod records;
mod shards;
mod split;
mod sudoku;

pub use catalogue::{CATALOGUE, find, find_splits};
pub use error::Error;
pub use exact_json::exact_json;
pub use files::{Line, count_records, read_file, read_files, read_lines};
pub use folder::FolderSplit;
pub use form::is_readable;
pub use records::{hash_files, write_jsonl};
pub use split::{DataSet, Field, HubFiles, Split};
