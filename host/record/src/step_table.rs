//! Reading parts of a step's Parquet file: the keys of all rows, and single rows, so that a file of any size can
//! be paged through.

use std::path::Path;

use parquet::data_type::{BoolType, FloatType, Int32Type, Int64Type};
use pl_types::{Group, Key, Transition, VersionChange};

use crate::column_reader::{KeyedColumns, ids, nested, optional};
use crate::error::Error;

/// An open file of a step.
pub struct StepTable(KeyedColumns);

impl StepTable {
    /// Opens the file and reads its schema.
    ///
    /// # Errors
    /// [`Error::Io`] if it is missing, [`Error::Table`] if it is not a Parquet file.
    pub fn open(path: &Path) -> Result<StepTable, Error> {
        KeyedColumns::open(path).map(StepTable)
    }

    /// Reads the keys of all rows, in order. No other column is read.
    ///
    /// # Errors
    /// [`Error::Table`] if a column is missing, has another type or is damaged.
    pub fn keys(&self) -> Result<Vec<Key>, Error> {
        self.0.keys()
    }

    /// Reads one row, counted from 0 over the whole file. Returns `None` if there are fewer rows.
    ///
    /// # Errors
    /// [`Error::Table`] if a column is missing, has another type or is damaged.
    pub fn transition(&self, row: usize) -> Result<Option<Transition>, Error> {
        let columns = &self.0;
        let Some(at) = columns.position(row) else { return Ok(None) };
        let key = columns.key(at)?;
        let turn = columns.u32(at, "turn")?;
        let node_visit = columns.cell::<Int32Type>(at, "group_node_visit")?;
        let node_visit = node_visit.values.first().map(|value| value.cast_unsigned());
        let group = Group { step: key.step, task: key.task, agent: key.agent, turn, node_visit };
        Ok(Some(Transition {
            key,
            group,
            task_id: columns.text(at, "task_id")?,
            agent: columns.text(at, "agent")?,
            policy: columns.u32(at, "policy")?,
            turn,
            prompt: ids(columns.cell::<Int32Type>(at, "prompt")?.values),
            completion: ids(columns.cell::<Int32Type>(at, "completion")?.values),
            logprobs: columns.cell::<FloatType>(at, "logprobs")?.values,
            support: nested(columns.cell::<Int32Type>(at, "support")?),
            temperature: columns.f64(at, "temperature")?,
            versions: numbers(columns.cell::<Int64Type>(at, "versions")?.values),
            version: columns.u64(at, "version")?,
            // Not in files written before new weights could take over within a completion.
            version_changes: match columns.has("change_tokens") && columns.has("change_versions") {
                true => version_changes(
                    ids(columns.cell::<Int32Type>(at, "change_tokens")?.values),
                    numbers(columns.cell::<Int64Type>(at, "change_versions")?.values),
                ),
                false => Vec::new(),
            },
            team_reward: columns.f64(at, "team_reward")?,
            local_reward: columns.f64(at, "local_reward")?,
            reward: columns.f64(at, "reward")?,
            success: columns.value::<BoolType>(at, "success")?,
            chosen: columns.value::<BoolType>(at, "chosen")?,
            action: columns.text(at, "action")?,
            state: columns.text(at, "state")?,
            // Not in files written before completions could be masked or penalised by their length.
            max_tokens: if columns.has("max_tokens") { columns.u32(at, "max_tokens")? } else { 0 },
            cut_off: columns.has("cut_off") && columns.value::<BoolType>(at, "cut_off")?,
            final_call: !columns.has("final_call") || columns.value::<BoolType>(at, "final_call")?,
            // Not in files written before there were critics.
            next_prompt: match columns.has("next_prompt") {
                true => optional(columns.cell::<Int32Type>(at, "next_prompt")?).map(ids),
                false => None,
            },
            // Not in files written before values were recorded.
            values: match columns.has("values") {
                true => optional(columns.cell::<FloatType>(at, "values")?),
                false => None,
            },
        }))
    }
}

fn numbers(values: Vec<i64>) -> Vec<u64> {
    values.into_iter().map(i64::cast_unsigned).collect()
}

/// Joins the columns of the changes of versions within a completion.
pub(crate) fn version_changes(tokens: Vec<u32>, versions: Vec<u64>) -> Vec<VersionChange> {
    let pairs = tokens.into_iter().zip(versions);
    pairs.map(|(token, version)| VersionChange { token, version }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fixtures, read_transitions, write_transitions};

    fn transition(task: u32) -> Transition {
        let of_task = fixtures::transition(task % 3, task.is_multiple_of(2).then_some(2));
        Transition {
            group: Group { task, ..of_task.group },
            key: Key { task, ..of_task.key },
            task_id: format!("train-{task}"),
            prompt: (0..task % 7).collect(),
            completion: vec![u32::MAX; task as usize % 5],
            logprobs: vec![-0.5; task as usize % 5],
            support: match task % 3 {
                0 => None,
                1 => Some(Vec::new()),
                _ => Some(vec![Vec::new(), vec![4, task], Vec::new(), vec![u32::MAX]]),
            },
            version_changes: (0..task % 3).map(|n| VersionChange { token: n, version: u64::MAX }).collect(),
            reward: f64::from(task),
            success: task.is_multiple_of(2),
            next_prompt: [None, Some(Vec::new()), Some(vec![5, task])][task as usize % 3].clone(),
            cut_off: task == 1,
            final_call: task != 1,
            ..of_task
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
