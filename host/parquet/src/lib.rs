//! Parquet files that somebody else made.
//!
//! The `parquet` crate trusts what a file says of itself: a schema of a million levels overflows its stack, a header of a few
//! bytes keeps it busy for hours, memory is taken for as many values as a page claims, columns that share their pages are read
//! again for each, and some damaged pages are a panic.
//! [`Limit::open`] checks a file as far as it can be checked without its values, [`Limit::check`] is for what was read of them,
//! and [`guarded`] for the reading.

mod footer;
mod layout;
mod limit;
mod pages;
mod texts;

use std::panic::{AssertUnwindSafe, catch_unwind};

use parquet::errors::ParquetError;

pub use crate::limit::Limit;

/// Reason why a file is not read. It names no file: the caller knows the path.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file has more rows than the limit.
    #[error("it has more than {0} rows")]
    TooManyRows(u64),
    /// The values take more bytes, once they are decoded, than the limit.
    #[error("its values take more than {0} bytes")]
    TooLarge(u64),
    /// The file may follow the format, but is not read.
    #[error("{0}")]
    Refused(String),
    /// The file differs from the format.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The library can't read the file.
    #[error(transparent)]
    Library(#[from] ParquetError),
    /// The file can't be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Calls the library, which panics at some damaged files.
///
/// # Errors
/// [`Error::Damaged`] if it does.
pub fn guarded<T>(read: impl FnOnce() -> T) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(read)).map_err(|_| Error::Damaged("the library can't decode it".to_owned()))
}
