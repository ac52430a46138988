//! Limits of the Parquet files of a run folder, which may be somebody else's.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use parquet::file::reader::{FileReader, SerializedFileReader};
use pl_types::open_file;

use crate::error::Error;

/// Largest content of a file of a step. Both numbers are counted while it is read, too: a text that the file has once, in its
/// dictionary, may stand in every row.
pub(crate) const LARGEST_TABLE: TableLimit = TableLimit { rows: 1 << 24, bytes: 16 << 30 };

/// Bytes that a number in a list takes while it is read: itself, and its levels in Parquet's (Dremel's) encoding.
const NUMBER: u64 = 8;

/// Largest content of a Parquet file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableLimit {
    pub(crate) rows: u64,
    /// Bytes of all values once they are decoded.
    pub(crate) bytes: u64,
}

impl TableLimit {
    /// Opens a file whose content is within the limit as far as the file says. Reads no values.
    ///
    /// # Errors
    /// [`Error::Io`] if it is missing or not a regular file, [`Error::Table`] if it is not Parquet or has more content.
    pub(crate) fn open(self, path: &Path) -> Result<SerializedFileReader<File>, Error> {
        let file = open_file(path).map_err(Error::io("read", path))?;
        let reader = SerializedFileReader::new(file).map_err(|e| unreadable(path, e))?;
        let stated = |count: i64| u64::try_from(count).unwrap_or(u64::MAX);
        let rows = stated(reader.metadata().file_metadata().num_rows());
        let groups = reader.metadata().row_groups().iter();
        let bytes = groups.map(|group| stated(group.total_byte_size())).fold(0, u64::saturating_add);
        self.check(path, rows, bytes)?;
        // A page of a few bytes may have billions of equal values, all in one row, which is read at once.
        let values = guarded(path, || count_values(&reader).map_err(|e| unreadable(path, e)))?;
        self.check(path, rows, values.saturating_mul(NUMBER))?;
        Ok(reader)
    }

    /// Checks what was read of a file.
    ///
    /// # Errors
    /// [`Error::Table`] if it is more than the limit.
    pub(crate) fn check(self, path: &Path, rows: u64, bytes: u64) -> Result<(), Error> {
        if rows > self.rows {
            return Err(unreadable(path, format!("it has more than {} rows", self.rows)));
        }
        if bytes > self.bytes {
            return Err(unreadable(path, format!("its values take more than {} bytes", self.bytes)));
        }
        Ok(())
    }
}

/// Reads with the library, which panics at some damaged pages.
pub(crate) fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(read)).unwrap_or_else(|_| Err(unreadable(path, "a page is damaged")))
}

/// Returns the number of values in all pages of a file, by the headers of the pages.
fn count_values(reader: &SerializedFileReader<File>) -> parquet::errors::Result<u64> {
    let mut values = 0u64;
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group)?;
        for column in 0..group.num_columns() {
            let mut pages = group.get_column_page_reader(column)?;
            while let Some(page) = pages.peek_next_page()? {
                values = values.saturating_add(page.num_levels.unwrap_or(0) as u64);
                pages.skip_next_page()?;
            }
        }
    }
    Ok(values)
}

/// An error for a file that can't be read.
pub(crate) fn unreadable(path: &Path, error: impl ToString) -> Error {
    Error::Table { action: "read", path: path.to_path_buf(), message: error.to_string() }
}
