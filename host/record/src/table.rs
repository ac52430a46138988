//! Transitions as Parquet: one file a step, one row a transition, columns named as the fields of
//! [`Transition`] (keys and groups flattened, token ids and log-probs as lists).

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, PrimitiveBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Float32Type, Float64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, BooleanArray, ListArray, PrimitiveArray, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use crate::{Error, Group, Key, Transition, write_atomically};

/// Writes the file whole or not at all. Equal transitions give equal bytes.
pub fn write_transitions(path: &Path, transitions: &[Transition]) -> Result<(), Error> {
    let bytes = encode(transitions).map_err(|e| Error::Table {
        action: "write",
        path: path.to_path_buf(),
        message: e.to_string(),
    })?;
    write_atomically(path, &bytes)
}

fn encode(transitions: &[Transition]) -> Result<Vec<u8>, parquet::errors::ParquetError> {
    let batch = RecordBatch::try_from_iter(columns(transitions))?;
    let properties =
        WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?)).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties))?;
    writer.write(&batch)?;
    writer.into_inner()
}

fn columns(rows: &[Transition]) -> Vec<(&'static str, ArrayRef)> {
    let u32s = |f: fn(&Transition) -> u32| number::<UInt32Type>(rows.iter().map(f));
    let f64s = |f: fn(&Transition) -> f64| number::<Float64Type>(rows.iter().map(f));
    let texts = |f: fn(&Transition) -> &str| -> ArrayRef {
        Arc::new(StringArray::from_iter_values(rows.iter().map(f)))
    };
    let flags = |f: fn(&Transition) -> bool| -> ArrayRef {
        Arc::new(BooleanArray::from(rows.iter().map(f).collect::<Vec<_>>()))
    };
    vec![
        ("step", number::<UInt64Type>(rows.iter().map(|t| t.key.step))),
        ("task", u32s(|t| t.key.task)),
        ("sample", u32s(|t| t.key.sample)),
        ("node_visit", u32s(|t| t.key.node_visit)),
        ("agent_index", u32s(|t| t.key.agent)),
        ("branch", u32s(|t| t.key.branch)),
        (
            "group_node_visit",
            Arc::new(PrimitiveArray::<UInt32Type>::from_iter(rows.iter().map(|t| t.group.node_visit))),
        ),
        ("task_id", texts(|t| &t.task_id)),
        ("agent", texts(|t| &t.agent)),
        ("policy", u32s(|t| t.policy)),
        ("turn", u32s(|t| t.turn)),
        ("prompt", lists::<UInt32Type>(rows.iter().map(|t| t.prompt.as_slice()))),
        ("completion", lists::<UInt32Type>(rows.iter().map(|t| t.completion.as_slice()))),
        ("logprobs", lists::<Float32Type>(rows.iter().map(|t| t.logprobs.as_slice()))),
        ("kept", nested(rows.iter().map(|t| t.kept.as_deref()))),
        ("temperature", f64s(|t| t.temperature)),
        ("versions", lists::<UInt64Type>(rows.iter().map(|t| t.versions.as_slice()))),
        ("version", number::<UInt64Type>(rows.iter().map(|t| t.version))),
        ("team_reward", f64s(|t| t.team_reward)),
        ("local_reward", f64s(|t| t.local_reward)),
        ("reward", f64s(|t| t.reward)),
        ("success", flags(|t| t.success)),
        ("chosen", flags(|t| t.chosen)),
        ("action", texts(|t| &t.action)),
        ("state", texts(|t| &t.state)),
    ]
}

fn number<T: ArrowPrimitiveType>(values: impl Iterator<Item = T::Native>) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::from_iter_values(values))
}

fn lists<'a, T: ArrowPrimitiveType>(rows: impl Iterator<Item = &'a [T::Native]>) -> ArrayRef {
    let mut builder = ListBuilder::new(PrimitiveBuilder::<T>::new());
    for row in rows {
        builder.values().append_slice(row);
        builder.append(true);
    }
    Arc::new(builder.finish())
}

/// Lists of lists; a row without is null.
fn nested<'a>(rows: impl Iterator<Item = Option<&'a [Vec<u32>]>>) -> ArrayRef {
    let mut builder = ListBuilder::new(ListBuilder::new(PrimitiveBuilder::<UInt32Type>::new()));
    for row in rows {
        for list in row.into_iter().flatten() {
            builder.values().values().append_slice(list);
            builder.values().append(true);
        }
        builder.append(row.is_some());
    }
    Arc::new(builder.finish())
}

/// Reads a step's file back.
pub fn read_transitions(path: &Path) -> Result<Vec<Transition>, Error> {
    let bad = |message: String| Error::Table { action: "read", path: path.to_path_buf(), message };
    let file = File::open(path).map_err(Error::io("read", path))?;
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .and_then(|b| b.build())
        .map_err(|e| bad(e.to_string()))?;
    let mut rows = Vec::new();
    for batch in reader {
        let batch = batch.map_err(|e| bad(e.to_string()))?;
        decode(&batch, &mut rows).ok_or_else(|| bad("a column is missing or of another type".into()))?;
    }
    Ok(rows)
}

fn decode(batch: &RecordBatch, rows: &mut Vec<Transition>) -> Option<()> {
    let u32s = |name| batch.column_by_name(name)?.as_primitive_opt::<UInt32Type>();
    let u64s = |name| batch.column_by_name(name)?.as_primitive_opt::<UInt64Type>();
    let f64s = |name| batch.column_by_name(name)?.as_primitive_opt::<Float64Type>();
    let texts = |name| batch.column_by_name(name)?.as_string_opt::<i32>();
    let flags = |name| batch.column_by_name(name)?.as_boolean_opt();
    let lists = |name| batch.column_by_name(name)?.as_list_opt::<i32>();
    for i in 0..batch.num_rows() {
        let key = Key {
            step: u64s("step")?.value(i),
            task: u32s("task")?.value(i),
            sample: u32s("sample")?.value(i),
            node_visit: u32s("node_visit")?.value(i),
            agent: u32s("agent_index")?.value(i),
            branch: u32s("branch")?.value(i),
        };
        let turn = u32s("turn")?.value(i);
        let node = u32s("group_node_visit")?;
        let group = Group {
            step: key.step,
            task: key.task,
            agent: key.agent,
            turn,
            node_visit: node.is_valid(i).then(|| node.value(i)),
        };
        rows.push(Transition {
            key,
            group,
            task_id: texts("task_id")?.value(i).to_owned(),
            agent: texts("agent")?.value(i).to_owned(),
            policy: u32s("policy")?.value(i),
            turn,
            prompt: row::<UInt32Type>(lists("prompt")?, i)?,
            completion: row::<UInt32Type>(lists("completion")?, i)?,
            logprobs: row::<Float32Type>(lists("logprobs")?, i)?,
            kept: nested_row(lists("kept")?, i)?,
            temperature: f64s("temperature")?.value(i),
            versions: row::<UInt64Type>(lists("versions")?, i)?,
            version: u64s("version")?.value(i),
            team_reward: f64s("team_reward")?.value(i),
            local_reward: f64s("local_reward")?.value(i),
            reward: f64s("reward")?.value(i),
            success: flags("success")?.value(i),
            chosen: flags("chosen")?.value(i),
            action: texts("action")?.value(i).to_owned(),
            state: texts("state")?.value(i).to_owned(),
        });
    }
    Some(())
}

fn row<T: ArrowPrimitiveType>(lists: &ListArray, index: usize) -> Option<Vec<T::Native>> {
    Some(lists.value(index).as_primitive_opt::<T>()?.values().to_vec())
}

/// The outer option: whether the column is what it should be.
fn nested_row(lists: &ListArray, index: usize) -> Option<Option<Vec<Vec<u32>>>> {
    if lists.is_null(index) {
        return Some(None);
    }
    let values = lists.value(index);
    let values = values.as_list_opt::<i32>()?;
    (0..values.len()).map(|i| row::<UInt32Type>(values, i)).collect::<Option<_>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transition(task: u32, node_visit: Option<u32>) -> Transition {
        let key = Key { step: 3, task, sample: 1, node_visit: 2, agent: 1, branch: 4 };
        Transition {
            group: Group { step: 3, task, agent: 1, turn: 1, node_visit },
            key,
            task_id: format!("train-{task}"),
            agent: "tool".into(),
            policy: 0,
            turn: 1,
            prompt: vec![1, 2, 3],
            completion: vec![4; task as usize],
            logprobs: vec![-0.5; task as usize],
            kept: node_visit.map(|_| vec![vec![4, 9], Vec::new()]),
            temperature: 1.0,
            versions: vec![7, 8],
            version: 7,
            team_reward: 1.0,
            local_reward: 0.5,
            reward: 1.5,
            success: true,
            chosen: false,
            action: r#"{"answer":"4"}"#.into(),
            state: "ab".into(),
        }
    }

    #[test]
    fn what_was_written_is_read_and_equal_rows_give_equal_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let rows = vec![transition(0, None), transition(2, Some(2))];
        let (a, b) = (folder.path().join("a.parquet"), folder.path().join("b.parquet"));
        write_transitions(&a, &rows).unwrap();
        write_transitions(&b, &rows).unwrap();
        assert_eq!(read_transitions(&a).unwrap(), rows);
        assert_eq!(std::fs::read(a).unwrap(), std::fs::read(b).unwrap());
    }

    #[test]
    fn a_file_cut_in_half_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("000001.parquet");
        write_transitions(&path, &[transition(2, Some(2))]).unwrap();
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        let message = read_transitions(&path).unwrap_err().to_string();
        assert!(message.contains("000001.parquet"), "{message}");
    }
}
