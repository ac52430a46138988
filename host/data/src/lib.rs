//! Data sets by name: `gsm8k:test` in place of the path of a task file.
//!
//! The `catalogue` says for each split which files hold it, where it is published, and which fields of its records an
//! environment needs. [`read_file`] reads JSONL, JSON, Parquet and Boxoban's level files; [`Split::read`] makes task records of
//! them. Nothing is fetched here: the caller has the network.

mod catalogue;
mod error;
mod files;
mod records;
mod split;

pub use catalogue::{CATALOGUE, find, find_splits};
pub use error::Error;
pub use files::{count_records, is_readable, read_file};
pub use records::{hash_files, write_jsonl};
pub use split::{DataSet, Field, HubFiles, Split};
