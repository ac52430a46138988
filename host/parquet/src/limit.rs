//! Largest content of a file.

use std::fs::File;

use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::{Error, footer, guarded, pages};

/// Largest content of a Parquet file.
#[derive(Debug, Clone, Copy)]
pub struct Limit {
    /// Rows of all row groups.
    pub rows: u64,
    /// Bytes of all values once they are decoded.
    pub bytes: u64,
}

impl Limit {
    /// Opens a file whose content is within the limit as far as its footer and the headers of its pages say, and of which no row has
    /// more. Reads no values but texts in lists that may have too many.
    ///
    /// # Errors
    /// [`Error::Io`] if it can't be read, [`Error::Library`] or [`Error::Damaged`] if it is damaged, [`Error::Refused`] if its
    /// schema or its encodings are such that they can't be checked, and those of [`Limit::check`].
    pub fn open(self, file: File) -> Result<SerializedFileReader<File>, Error> {
        let pages = file.try_clone()?;
        footer::check(&pages)?;
        let reader = guarded(|| SerializedFileReader::new(file))??;
        let (rows, bytes) = stated(reader.metadata());
        self.check(rows, bytes)?;
        let content = pages::content(&pages, reader.metadata())?;
        self.check(rows, content.unpacked)?;
        self.check(rows, content.memory)?;
        let largest = content.texts.iter().map(|(_, largest)| *largest).fold(0, u64::saturating_add);
        if largest > self.bytes {
            let mut bytes = 0u64;
            for (column, _) in &content.texts {
                bytes = bytes.saturating_add(column.bytes(&reader, self.bytes - bytes)?);
                self.check(rows, bytes)?;
            }
        }
        Ok(reader)
    }

    /// Checks what was read of a file.
    ///
    /// # Errors
    /// [`Error::TooManyRows`] or [`Error::TooLarge`] if it is more than the limit.
    pub fn check(self, rows: u64, bytes: u64) -> Result<(), Error> {
        if rows > self.rows {
            return Err(Error::TooManyRows(self.rows));
        }
        if bytes > self.bytes {
            return Err(Error::TooLarge(self.bytes));
        }
        Ok(())
    }
}

/// Returns the rows and bytes that the footer states.
fn stated(metadata: &ParquetMetaData) -> (u64, u64) {
    let number = |stated: i64| u64::try_from(stated).unwrap_or(u64::MAX);
    let groups = metadata.row_groups().iter();
    let bytes = groups.map(|group| number(group.total_byte_size())).fold(0, u64::saturating_add);
    (number(metadata.file_metadata().num_rows()), bytes)
}
