//! Writing Parquet files by column. Equal rows give equal bytes.

use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::atomic::write_atomically;
use crate::error::Error;

/// Writes a file of one row group, whole or not at all. `write` writes the columns in the order of `schema`.
pub(crate) fn write_file(
    path: &Path,
    schema: &str,
    write: impl FnOnce(Columns<'_>) -> Result<()>,
) -> std::result::Result<(), Error> {
    let bytes = encode(schema, write).map_err(|e| Error::Table {
        action: "write",
        path: path.to_path_buf(),
        message: e.to_string(),
    })?;
    write_atomically(path, &bytes)
}

/// Returns the bytes of a file of one row group. `write` writes the columns in the order of `schema`.
fn encode(schema: &str, write: impl FnOnce(Columns<'_>) -> Result<()>) -> Result<Vec<u8>> {
    let schema = Arc::new(parse_message_type(schema)?);
    let properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?)).build();
    let mut writer = SerializedFileWriter::new(Vec::new(), schema, Arc::new(properties))?;
    write(Columns(writer.next_row_group()?))?;
    writer.into_inner()
}

/// Writes the columns of a row group one after the other. Unsigned numbers are stored as the signed numbers of the
/// same bits; the schema says that they are unsigned.
pub(crate) struct Columns<'a>(SerializedRowGroupWriter<'a, Vec<u8>>);

impl Columns<'_> {
    /// Closes the row group.
    pub(crate) fn close(self) -> Result<()> {
        self.0.close().map(|_| ())
    }

    /// Writes the next column. `definitions` and `repetitions` are the levels of Parquet's (Dremel's) encoding.
    fn write<T: DataType>(
        &mut self,
        values: &[T::T],
        definitions: Option<&[i16]>,
        repetitions: Option<&[i16]>,
    ) -> Result<()> {
        let missing = || ParquetError::General("the schema has fewer columns".to_owned());
        let mut column = self.0.next_column()?.ok_or_else(missing)?;
        column.typed::<T>().write_batch(values, definitions, repetitions)?;
        column.close()
    }

    pub(crate) fn values<T: DataType, R>(&mut self, rows: &[R], value: fn(&R) -> T::T) -> Result<()> {
        self.write::<T>(&rows.iter().map(value).collect::<Vec<_>>(), None, None)
    }

    pub(crate) fn u32s<R>(&mut self, rows: &[R], value: fn(&R) -> u32) -> Result<()> {
        let values: Vec<i32> = rows.iter().map(|row| value(row) as i32).collect();
        self.write::<Int32Type>(&values, None, None)
    }

    pub(crate) fn u64s<R>(&mut self, rows: &[R], value: fn(&R) -> u64) -> Result<()> {
        let values: Vec<i64> = rows.iter().map(|row| value(row) as i64).collect();
        self.write::<Int64Type>(&values, None, None)
    }

    pub(crate) fn texts<R>(&mut self, rows: &[R], text: fn(&R) -> &str) -> Result<()> {
        let values: Vec<ByteArray> = rows.iter().map(|row| text(row).into()).collect();
        self.write::<ByteArrayType>(&values, None, None)
    }

    pub(crate) fn optional_u32s<R>(&mut self, rows: &[R], value: fn(&R) -> Option<u32>) -> Result<()> {
        let values: Vec<i32> = rows.iter().filter_map(value).map(|value| value as i32).collect();
        let definitions: Vec<i16> = rows.iter().map(|row| i16::from(value(row).is_some())).collect();
        self.write::<Int32Type>(&values, Some(&definitions), None)
    }

    pub(crate) fn optional_f64s<R>(&mut self, rows: &[R], value: fn(&R) -> Option<f64>) -> Result<()> {
        let values: Vec<f64> = rows.iter().filter_map(value).collect();
        let definitions: Vec<i16> = rows.iter().map(|row| i16::from(value(row).is_some())).collect();
        self.write::<DoubleType>(&values, Some(&definitions), None)
    }

    pub(crate) fn lists<'t, T: DataType, R, I: Iterator<Item = T::T>>(
        &mut self,
        rows: &'t [R],
        list: impl Fn(&'t R) -> I,
    ) -> Result<()> {
        let (mut values, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            let before = values.len();
            values.extend(list(row));
            let count = values.len() - before;
            // An empty list is one entry without a value.
            definitions.extend(std::iter::repeat_n(i16::from(count > 0), count.max(1)));
            repetitions.extend((0..count.max(1)).map(|index| i16::from(index > 0)));
        }
        self.write::<T>(&values, Some(&definitions), Some(&repetitions))
    }

    /// Levels: 0 no list, 1 an empty list, 2 a value.
    pub(crate) fn optional_lists<T: DataType, R, E>(
        &mut self,
        rows: &[R],
        list: fn(&R) -> Option<&[E]>,
        stored: fn(&E) -> T::T,
    ) -> Result<()> {
        let (mut values, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            match list(row) {
                Some(own) if !own.is_empty() => {
                    values.extend(own.iter().map(stored));
                    definitions.extend(std::iter::repeat_n(2, own.len()));
                    repetitions.extend((0..own.len()).map(|index| i16::from(index > 0)));
                }
                other => {
                    definitions.push(i16::from(other.is_some()));
                    repetitions.push(0);
                }
            }
        }
        self.write::<T>(&values, Some(&definitions), Some(&repetitions))
    }

    /// Levels: 0 no list, 1 an empty list, 2 an empty inner list, 3 a value.
    pub(crate) fn optional_nested_lists<R>(
        &mut self,
        rows: &[R],
        lists: fn(&R) -> Option<&[Vec<u32>]>,
    ) -> Result<()> {
        let (mut values, mut definitions, mut repetitions) = (Vec::new(), Vec::new(), Vec::new());
        for row in rows {
            let Some(outer) = lists(row).filter(|outer| !outer.is_empty()) else {
                definitions.push(i16::from(lists(row).is_some()));
                repetitions.push(0);
                continue;
            };
            for (position, inner) in outer.iter().enumerate() {
                let first = i16::from(position > 0);
                if inner.is_empty() {
                    definitions.push(2);
                    repetitions.push(first);
                }
                for (index, id) in inner.iter().enumerate() {
                    values.push(*id as i32);
                    definitions.push(3);
                    repetitions.push(if index == 0 { first } else { 2 });
                }
            }
        }
        self.write::<Int32Type>(&values, Some(&definitions), Some(&repetitions))
    }
}
