//! Limits of Parquet files of tasks, which anyone may have made. `pl-record` checks the tables of a run folder in the same way: no
//! crate below both reads Parquet.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use pl_types::SourcePath;

use crate::error::Error;

/// Bytes that a value takes at least while it is read: a number, or its levels in Parquet's (Dremel's) encoding.
const SMALLEST_VALUE: u64 = 8;

/// Largest content of a Parquet file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParquetLimit {
    pub(crate) rows: u64,
    /// Bytes of all values once they are decoded.
    pub(crate) bytes: u64,
}

impl ParquetLimit {
    /// Opens a file whose content is within the limit as far as the file says. Reads no values.
    ///
    /// # Errors
    /// [`Error::Read`] if it can't be opened, [`Error::Parquet`] if it is damaged or has another form, and those of
    /// [`ParquetLimit::check`].
    pub(crate) fn open(self, source: &SourcePath) -> Result<SerializedFileReader<File>, Error> {
        let path = source.path();
        let file = source.open().map_err(|source| Error::Read { path: path.to_path_buf(), source })?;
        let invalid = |source| Error::Parquet { path: path.to_path_buf(), source };
        let reader = SerializedFileReader::new(file).map_err(invalid)?;
        let stated = |count: i64| u64::try_from(count).unwrap_or(u64::MAX);
        let rows = stated(reader.metadata().file_metadata().num_rows());
        let groups = reader.metadata().row_groups().iter();
        let bytes = groups.map(|group| stated(group.total_byte_size())).fold(0, u64::saturating_add);
        self.check(path, rows, bytes)?;
        // A page of a few bytes may have billions of equal values, all in one row, which is read at once.
        let values = guarded(path, || count_values(&reader).map_err(invalid))?;
        self.check(path, rows, values.saturating_mul(SMALLEST_VALUE))?;
        Ok(reader)
    }

    /// Checks what was read of a file.
    ///
    /// # Errors
    /// [`Error::TooManyRecords`] or [`Error::TooLarge`] if it is more than the limit.
    pub(crate) fn check(self, path: &Path, rows: u64, bytes: u64) -> Result<(), Error> {
        if rows > self.rows {
            return Err(Error::TooManyRecords { path: path.to_path_buf(), most: self.rows });
        }
        if bytes > self.bytes {
            return Err(Error::TooLarge { path: path.to_path_buf(), largest: self.bytes });
        }
        Ok(())
    }
}

/// Reads with the library, which panics at some damaged pages.
pub(crate) fn guarded<T>(path: &Path, read: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let damaged = || ParquetError::General("a page is damaged".to_owned());
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(Error::Parquet { path: path.to_path_buf(), source: damaged() }))
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
