//! Texts in lists.
//!
//! All of a row is read at once, and each element of a list becomes a text of its own, also where the file has the text once, in a
//! dictionary: a page of a few kilobytes may be a row of terabytes. Here they are counted while they share their memory.

use std::fs::File;

use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::ByteArrayType;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::{Error, guarded};

/// Rows whose texts are in memory at a time.
const ROWS: usize = 1024;

/// Place of a column of texts in lists.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextColumn {
    pub(crate) group: usize,
    pub(crate) column: usize,
}

impl TextColumn {
    /// Returns the bytes of all texts of the column, or of as many as exceed `most`.
    ///
    /// # Errors
    /// If it can't be read.
    pub(crate) fn bytes(self, file: &SerializedFileReader<File>, most: u64) -> Result<u64, Error> {
        guarded(|| {
            let column = file.get_row_group(self.group)?.get_column_reader(self.column)?;
            let mut column = get_typed_column_reader::<ByteArrayType>(column);
            let mut bytes = 0u64;
            while bytes <= most {
                let (mut definitions, mut repetitions, mut texts) = (Vec::new(), Vec::new(), Vec::new());
                let (rows, _, levels) =
                    column.read_records(ROWS, Some(&mut definitions), Some(&mut repetitions), &mut texts)?;
                bytes = texts.iter().map(|text| text.len() as u64).fold(bytes, u64::saturating_add);
                // Of the last row, the library may return the values without counting the row.
                if rows == 0 && levels == 0 {
                    break;
                }
            }
            Ok(bytes)
        })?
    }
}
