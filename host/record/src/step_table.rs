//! Reading parts of a step's Parquet file: the keys of all rows, and single rows, so that a file of any size can
//! be paged through.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, FloatType, Int32Type, Int64Type,
};
use parquet::file::reader::{FileReader, SerializedFileReader};
use pl_types::{Group, Key, Transition};

use crate::error::Error;

/// Number of values that are read at a time.
const BATCH: usize = 8192;

/// An open file of a step.
pub struct StepTable {
    path: PathBuf,
    reader: SerializedFileReader<File>,
}

/// Values of one column in one row, with their levels in Parquet's (Dremel's) encoding.
struct Cell<T> {
    values: Vec<T>,
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
}

/// Position of a row: its row group, and the row within it.
#[derive(Clone, Copy)]
struct RowPosition {
    group: usize,
    row: usize,
}

impl StepTable {
    /// Opens the file and reads its schema.
    ///
    /// # Errors
    /// [`Error::Io`] if it is missing, [`Error::Table`] if it is not a Parquet file.
    pub fn open(path: &Path) -> Result<StepTable, Error> {
        let file = File::open(path).map_err(Error::io("read", path))?;
        let reader = SerializedFileReader::new(file).map_err(|e| unreadable(path, e))?;
        Ok(StepTable { path: path.to_path_buf(), reader })
    }

    /// Reads the keys of all rows, in order. No other column is read.
    ///
    /// # Errors
    /// [`Error::Table`] if a column is missing, has another type or is damaged.
    pub fn keys(&self) -> Result<Vec<Key>, Error> {
        let steps = self.column::<Int64Type>("step")?;
        let [tasks, samples, visits, agents, branches] =
            ["task", "sample", "node_visit", "agent_index", "branch"]
                .map(|name| self.column::<Int32Type>(name));
        let (tasks, samples, visits, agents, branches) = (tasks?, samples?, visits?, agents?, branches?);
        let rows = steps.into_iter().zip(tasks).zip(samples).zip(visits).zip(agents).zip(branches);
        Ok(rows
            .map(|(((((step, task), sample), visit), agent), branch)| Key {
                step: step.cast_unsigned(),
                task: task.cast_unsigned(),
                sample: sample.cast_unsigned(),
                node_visit: visit.cast_unsigned(),
                agent: agent.cast_unsigned(),
                branch: branch.cast_unsigned(),
            })
            .collect())
    }

    /// Reads one row, counted from 0 over the whole file. Returns `None` if there are fewer rows.
    ///
    /// # Errors
    /// [`Error::Table`] if a column is missing, has another type or is damaged.
    pub fn transition(&self, row: usize) -> Result<Option<Transition>, Error> {
        let Some(at) = self.position(row) else { return Ok(None) };
        let key = Key {
            step: self.u64(at, "step")?,
            task: self.u32(at, "task")?,
            sample: self.u32(at, "sample")?,
            node_visit: self.u32(at, "node_visit")?,
            agent: self.u32(at, "agent_index")?,
            branch: self.u32(at, "branch")?,
        };
        let turn = self.u32(at, "turn")?;
        let node_visit = self.cell::<Int32Type>(at, "group_node_visit")?;
        let node_visit = node_visit.values.first().map(|value| value.cast_unsigned());
        let group = Group { step: key.step, task: key.task, agent: key.agent, turn, node_visit };
        Ok(Some(Transition {
            key,
            group,
            task_id: self.text(at, "task_id")?,
            agent: self.text(at, "agent")?,
            policy: self.u32(at, "policy")?,
            turn,
            prompt: ids(self.cell::<Int32Type>(at, "prompt")?.values),
            completion: ids(self.cell::<Int32Type>(at, "completion")?.values),
            logprobs: self.cell::<FloatType>(at, "logprobs")?.values,
            support: nested(self.cell::<Int32Type>(at, "support")?),
            temperature: self.f64(at, "temperature")?,
            versions: self
                .cell::<Int64Type>(at, "versions")?
                .values
                .into_iter()
                .map(i64::cast_unsigned)
                .collect(),
            version: self.u64(at, "version")?,
            team_reward: self.f64(at, "team_reward")?,
            local_reward: self.f64(at, "local_reward")?,
            reward: self.f64(at, "reward")?,
            success: self.value::<BoolType>(at, "success")?,
            chosen: self.value::<BoolType>(at, "chosen")?,
            action: self.text(at, "action")?,
            state: self.text(at, "state")?,
            // Not in files written before completions could be masked or penalised by their length.
            max_tokens: if self.has("max_tokens") { self.u32(at, "max_tokens")? } else { 0 },
            cut_off: self.has("cut_off") && self.value::<BoolType>(at, "cut_off")?,
            // Not in files written before there were critics.
            next_prompt: match self.has("next_prompt") {
                true => optional(self.cell::<Int32Type>(at, "next_prompt")?).map(ids),
                false => None,
            },
            // Not in files written before values were recorded.
            values: match self.has("values") {
                true => optional(self.cell::<FloatType>(at, "values")?),
                false => None,
            },
        }))
    }

    fn position(&self, mut row: usize) -> Option<RowPosition> {
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

    fn has(&self, name: &str) -> bool {
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
    fn column<T: DataType>(&self, name: &str) -> Result<Vec<T::T>, Error> {
        let mut values = Vec::new();
        for group in 0..self.reader.num_row_groups() {
            let mut reader = self.column_reader::<T>(group, name)?;
            let mut read = usize::MAX;
            while read > 0 {
                (read, ..) = reader
                    .read_records(BATCH, None, None, &mut values)
                    .map_err(|e| unreadable(&self.path, e))?;
            }
        }
        Ok(values)
    }

    fn cell<T: DataType>(&self, at: RowPosition, name: &str) -> Result<Cell<T::T>, Error> {
        let mut reader = self.column_reader::<T>(at.group, name)?;
        let mut cell = Cell { values: Vec::new(), definitions: Vec::new(), repetitions: Vec::new() };
        let skipped = reader.skip_records(at.row).map_err(|e| unreadable(&self.path, e))?;
        let Cell { values, definitions, repetitions } = &mut cell;
        let (read, ..) = reader
            .read_records(1, Some(definitions), Some(repetitions), values)
            .map_err(|e| unreadable(&self.path, e))?;
        if skipped == at.row && read == 1 { Ok(cell) } else { Err(self.damaged(name)) }
    }

    fn value<T: DataType>(&self, at: RowPosition, name: &str) -> Result<T::T, Error> {
        self.cell::<T>(at, name)?.values.pop().ok_or_else(|| self.damaged(name))
    }

    fn u32(&self, at: RowPosition, name: &str) -> Result<u32, Error> {
        Ok(self.value::<Int32Type>(at, name)?.cast_unsigned())
    }

    fn u64(&self, at: RowPosition, name: &str) -> Result<u64, Error> {
        Ok(self.value::<Int64Type>(at, name)?.cast_unsigned())
    }

    fn f64(&self, at: RowPosition, name: &str) -> Result<f64, Error> {
        self.value::<DoubleType>(at, name)
    }

    fn text(&self, at: RowPosition, name: &str) -> Result<String, Error> {
        let bytes: ByteArray = self.value::<ByteArrayType>(at, name)?;
        String::from_utf8(bytes.data().to_vec()).map_err(|_| self.damaged(name))
    }
}

fn unreadable(path: &Path, error: impl ToString) -> Error {
    Error::Table { action: "read", path: path.to_path_buf(), message: error.to_string() }
}

fn ids(values: Vec<i32>) -> Vec<u32> {
    values.into_iter().map(i32::cast_unsigned).collect()
}

/// Returns an optional list. Levels: 0 no list, 1 an empty list, 2 a value.
fn optional<T>(cell: Cell<T>) -> Option<Vec<T>> {
    (cell.definitions.first() != Some(&0)).then_some(cell.values)
}

/// Returns an optional list of lists. Levels: 0 no list, 1 an empty list, 2 an empty inner list, 3 a value.
fn nested(cell: Cell<i32>) -> Option<Vec<Vec<u32>>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{read_transitions, write_transitions};

    fn transition(task: u32) -> Transition {
        let key = Key { step: 3, task, sample: 1, node_visit: 2, agent: 1, branch: 4 };
        Transition {
            group: Group {
                step: 3,
                task,
                agent: 1,
                turn: 1,
                node_visit: task.is_multiple_of(2).then_some(2),
            },
            key,
            task_id: format!("train-{task}"),
            agent: "tool".into(),
            policy: 0,
            turn: 1,
            prompt: (0..task % 7).collect(),
            completion: vec![u32::MAX; task as usize % 5],
            logprobs: vec![-0.5; task as usize % 5],
            support: match task % 3 {
                0 => None,
                1 => Some(Vec::new()),
                _ => Some(vec![Vec::new(), vec![4, task], Vec::new(), vec![u32::MAX]]),
            },
            temperature: 1.0,
            versions: vec![7, u64::MAX],
            version: 7,
            team_reward: 1.0,
            local_reward: 0.5,
            reward: f64::from(task),
            success: task.is_multiple_of(2),
            chosen: false,
            action: r#"{"answer":"4"}"#.into(),
            state: "ab".into(),
            max_tokens: 256,
            cut_off: task == 1,
            next_prompt: [None, Some(Vec::new()), Some(vec![5, task])][task as usize % 3].clone(),
            values: [Some(Vec::new()), None, Some(vec![0.25, -1.0])][task as usize % 3].clone(),
        }
    }

    #[test]
    fn single_rows_and_keys_are_those_of_the_whole_table() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("000003.parquet");
        let rows: Vec<Transition> = (0..20_000).map(transition).collect();
        write_transitions(&path, &rows).unwrap();
        let table = StepTable::open(&path).unwrap();
        let keys: Vec<Key> = rows.iter().map(|row| row.key.clone()).collect();
        assert_eq!(table.keys().unwrap(), keys);
        for row in [0, 1, 2, 3, 4, 5, 12_345, 19_999] {
            assert_eq!(table.transition(row).unwrap().as_ref(), rows.get(row), "row {row}");
        }
        assert_eq!(table.transition(20_000).unwrap(), None);
        assert_eq!(read_transitions(&path).unwrap().len(), 20_000);
    }
}
