//! Opening the Parquet files of a run folder, which may be somebody else's.

use std::fs::File;
use std::path::Path;

use parquet::file::reader::SerializedFileReader;
use pl_parquet::Limit;
use pl_types::open_file;

use crate::error::Error;

/// Largest content of a file of a step. Both numbers are counted while it is read, too: a text that the file has once, in its
/// dictionary, may stand in every row.
pub(crate) const LARGEST_TABLE: Limit = Limit { rows: 1 << 24, bytes: 16 << 30 };

/// Opens a file whose content is within the limit as far as the file says. Reads no values.
///
/// # Errors
/// [`Error::Io`] if it is missing or not a regular file, [`Error::Table`] if it is not Parquet or has more content.
pub(crate) fn open_table(path: &Path, limit: Limit) -> Result<SerializedFileReader<File>, Error> {
    let file = open_file(path).map_err(Error::io("read", path))?;
    limit.open(file).map_err(|e| unreadable(path, e))
}

/// An error for a file that can't be read.
pub(crate) fn unreadable(path: &Path, error: impl ToString) -> Error {
    Error::Table { action: "read", path: path.to_path_buf(), message: error.to_string() }
}
