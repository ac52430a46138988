//! Reading parts of Parquet files: a column in all rows, or the columns of one row.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::file::reader::{FileReader, SerializedFileReader};
use pl_parquet::guarded;
use pl_types::Key;

use crate::error::Error;
use crate::table_file::{LARGEST_TABLE, open_table, unreadable};

/// Number of values that are read at a time.
const BATCH: usize = 8192;

/// An open Parquet file whose rows begin with the columns of a [`Key`].
pub(crate) struct KeyedColumns {
    path: PathBuf,
    reader: SerializedFileReader<File>,
}

/// Values of one column in one row, with their levels in Parquet's (Dremel's) encoding.
pub(crate) struct Cell<T> {
    pub(crate) values: Vec<T>,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
}

/// Position of a row: its row group, and the row within it.
#[derive(Clone, Copy)]
pub(crate) struct RowPosition {
    group: usize,
    row: usize,
}

impl KeyedColumns {
    /// Opens the file and reads its schema.
    pub(crate) fn open(path: &Path) -> Result<KeyedColumns, Error> {
        Ok(KeyedColumns { path: path.to_path_buf(), reader: open_table(path, LARGEST_TABLE)? })
    }

    /// Reads the keys of all rows, in order. No other column is read.
    pub(crate) fn keys(&self) -> Result<Vec<Key>, Error> {
        let steps = self.column::<Int64Type>("step")?;
        let [tasks, samples, visits, agents, branches] =
            ["task", "sample", "node_visit", "agent_index", "branch"]
                .map(|name| self.column::<Int32Type>(name));
        let (tasks, samples, visits, agents, branches) = (tasks?, samples?, visits?, agents?, branches?);
        let calls = match self.has("call") {
            true => self.column::<Int32Type>("call")?,
            // Written before a turn could have several completions.
            false => vec![0; steps.len()],
        };
        let rows = steps.into_iter().zip(tasks).zip(samples).zip(visits).zip(agents).zip(branches).zip(calls);
        Ok(rows
            .map(|((((((step, task), sample), visit), agent), branch), call)| Key {
                step: step.cast_unsigned(),
                task: task.cast_unsigned(),
                sample: sample.cast_unsigned(),
                node_visit: visit.cast_unsigned(),
                agent: agent.cast_unsigned(),
                branch: branch.cast_unsigned(),
                call: call.cast_unsigned(),
            })
            .collect())
    }

    /// Reads the key of a row.
    pub(crate) fn key(&self, at: RowPosition) -> Result<Key, Error> {
        Ok(Key {
            step: self.u64(at, "step")?,
            task: self.u32(at, "task")?,
            sample: self.u32(at, "sample")?,
            node_visit: self.u32(at, "node_visit")?,
            agent: self.u32(at, "agent_index")?,
            branch: self.u32(at, "branch")?,
            call: if self.has("call") { self.u32(at, "call")? } else { 0 },
        })
    }

    /// Returns the position of a row, counted from 0 over the whole file. Returns `None` if there are fewer rows.
    pub(crate) fn position(&self, mut row: usize) -> Option<RowPosition> {
        for (group, metadata) in self.reader.metadata().row_groups().iter().enumerate() {
            let rows = usize::try_from(metadata.num_rows()).ok()?;
            if row < rows {
                return Some(RowPosition { group, row });
            }
            row -= rows;
        }
        None
    }

    fn index(&self, name: &str) -> Option<usize> {
        let columns = self.reader.metadata().file_metadata().schema_descr().columns();
        columns.iter().position(|column| column.path().parts().first().is_some_and(|root| root == name))
    }

    /// Returns true if the file has a column.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.index(name).is_some()
    }

    fn damaged(&self, name: &str) -> Error {
        unreadable(&self.path, format!("the column `{name}` is missing, has another type or is damaged"))
    }

    fn column_reader<T: DataType>(
        &self,
        group: usize,
        name: &str,
    ) -> Result<parquet::column::reader::ColumnReaderImpl<T>, Error> {
        let index = self.index(name).ok_or_else(|| self.damaged(name))?;
        let group = self.reader.get_row_group(group).map_err(|e| unreadable(&self.path, e))?;
        let reader = group.get_column_reader(index).map_err(|e| unreadable(&self.path, e))?;
        T::get_column_reader(reader).ok_or_else(|| self.damaged(name))
    }

    /// Reads a column without levels in all rows.
    pub(crate) fn column<T: DataType>(&self, name: &str) -> Result<Vec<T::T>, Error> {
        guarded(|| self.read_column::<T>(name)).map_err(|e| unreadable(&self.path, e))?
    }

    fn read_column<T: DataType>(&self, name: &str) -> Result<Vec<T::T>, Error> {
        let mut values = Vec::new();
        for group in 0..self.reader.num_row_groups() {
            let mut reader = self.column_reader::<T>(group, name)?;
            let mut read = usize::MAX;
            while read > 0 {
                (read, ..) = reader
                    .read_records(BATCH, None, None, &mut values)
                    .map_err(|e| unreadable(&self.path, e))?;
                // The pages of a column may have more rows than the file says.
                LARGEST_TABLE.check(values.len() as u64, 0).map_err(|e| unreadable(&self.path, e))?;
            }
        }
        Ok(values)
    }

    /// Reads one row of a column.
    pub(crate) fn cell<T: DataType>(&self, at: RowPosition, name: &str) -> Result<Cell<T::T>, Error> {
        guarded(|| self.read_cell::<T>(at, name)).map_err(|e| unreadable(&self.path, e))?
    }

    fn read_cell<T: DataType>(&self, at: RowPosition, name: &str) -> Result<Cell<T::T>, Error> {
        let mut reader = self.column_reader::<T>(at.group, name)?;
        let mut cell = Cell { values: Vec::new(), definitions: Vec::new(), repetitions: Vec::new() };
        let skipped = reader.skip_records(at.row).map_err(|e| unreadable(&self.path, e))?;
        let Cell { values, definitions, repetitions } = &mut cell;
        let (read, ..) = reader
            .read_records(1, Some(definitions), Some(repetitions), values)
            .map_err(|e| unreadable(&self.path, e))?;
        if skipped == at.row && read == 1 { Ok(cell) } else { Err(self.damaged(name)) }
    }

    pub(crate) fn value<T: DataType>(&self, at: RowPosition, name: &str) -> Result<T::T, Error> {
        self.cell::<T>(at, name)?.values.pop().ok_or_else(|| self.damaged(name))
    }

    pub(crate) fn u32(&self, at: RowPosition, name: &str) -> Result<u32, Error> {
        Ok(self.value::<Int32Type>(at, name)?.cast_unsigned())
    }

    pub(crate) fn u64(&self, at: RowPosition, name: &str) -> Result<u64, Error> {
        Ok(self.value::<Int64Type>(at, name)?.cast_unsigned())
    }

    pub(crate) fn f64(&self, at: RowPosition, name: &str) -> Result<f64, Error> {
        self.value::<DoubleType>(at, name)
    }

    pub(crate) fn text(&self, at: RowPosition, name: &str) -> Result<String, Error> {
        let bytes: ByteArray = self.value::<ByteArrayType>(at, name)?;
        String::from_utf8(bytes.data().to_vec()).map_err(|_| self.damaged(name))
    }
}

pub(crate) fn ids(values: Vec<i32>) -> Vec<u32> {
    values.into_iter().map(i32::cast_unsigned).collect()
}

/// Returns an optional list. Levels: 0 no list, 1 an empty list, 2 a value.
pub(crate) fn optional<T>(cell: Cell<T>) -> Option<Vec<T>> {
    (cell.definitions.first() != Some(&0)).then_some(cell.values)
}

/// Returns an optional list of lists. Levels: 0 no list, 1 an empty list, 2 an empty inner list, 3 a value.
pub(crate) fn nested(cell: Cell<i32>) -> Option<Vec<Vec<u32>>> {
    let Cell { values, definitions, repetitions } = cell;
    if definitions.first() == Some(&0) {
        return None;
    }
    let mut values = values.into_iter().map(i32::cast_unsigned);
    let mut lists: Vec<Vec<u32>> = Vec::new();
    for (definition, repetition) in definitions.into_iter().zip(repetitions) {
        if definition >= 2 && repetition < 2 {
            lists.push(Vec::new());
        }
        if definition == 3
            && let (Some(list), Some(value)) = (lists.last_mut(), values.next())
        {
            list.push(value);
        }
    }
    Some(lists)
}
