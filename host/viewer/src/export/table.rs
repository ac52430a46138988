//! Completions as a Parquet file, for pandas, polars, DuckDB and `datasets`: a row per completion, all candidates of trees
//! included.

use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;

use crate::episode::{Branch, EpisodeDetails, NodeVisit};

/// Columns in the order in which [`TableWriter::flush`] writes them.
const SCHEMA: &str = "message completions {
    required binary episode (STRING);
    required int64 step (INTEGER(64, false));
    required binary set (STRING);
    required binary task_id (STRING);
    required binary task (STRING);
    required binary agent (STRING);
    required int32 turn (INTEGER(32, false));
    required int32 node_visit (INTEGER(32, false));
    required int32 branch (INTEGER(32, false));
    required int32 call (INTEGER(32, false));
    required boolean taken;
    optional binary prompt (STRING);
    required binary completion (STRING);
    required binary finish (STRING);
    required int64 tokens (INTEGER(64, false));
    optional binary action (STRING);
    optional double reward;
    required boolean success;
    optional binary failure (STRING);
}";

/// Text after which a row group is written, in bytes: what is held in memory.
const GROUP_BYTES: usize = 16 << 20;

struct Completion {
    episode: String,
    step: u64,
    set: String,
    task_id: String,
    task: String,
    agent: String,
    turn: u32,
    node_visit: u32,
    branch: u32,
    /// Number of model calls before it in the turn.
    call: u32,
    /// True if the episode went on from this completion.
    taken: bool,
    prompt: Option<String>,
    completion: String,
    finish: String,
    tokens: u64,
    /// `None` for all but the last model call of the turn, from which it was parsed.
    action: Option<String>,
    reward: Option<f64>,
    success: bool,
    failure: Option<String>,
}

/// Writer of a Parquet file of completions.
pub(super) struct TableWriter<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    rows: Vec<Completion>,
    /// Bytes of the texts in `rows`.
    bytes: usize,
}

impl<W: Write + Send> TableWriter<W> {
    pub(super) fn new(out: W) -> Result<TableWriter<W>> {
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let properties =
            WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?)).build();
        let writer = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
        Ok(TableWriter { writer, rows: Vec::new(), bytes: 0 })
    }

    /// Adds the completions of an episode. Returns their number.
    pub(super) fn add(&mut self, episode: &EpisodeDetails) -> Result<u64> {
        let before = self.rows.len();
        for visit in &episode.visits {
            for branch in &visit.branches {
                add_branch(&mut self.rows, episode, visit, branch);
            }
        }
        let added = self.rows.get(before..).unwrap_or_default();
        self.bytes += added
            .iter()
            .map(|row| row.task.len() + row.completion.len() + row.prompt.as_ref().map_or(0, String::len))
            .sum::<usize>();
        let count = added.len() as u64;
        if self.bytes > GROUP_BYTES {
            self.flush()?;
        }
        Ok(count)
    }

    /// Writes what is left, and the end of the file.
    pub(super) fn finish(mut self) -> Result<()> {
        self.flush()?;
        self.writer.finish().map(|_| ())
    }

    /// Writes a row group.
    fn flush(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        if rows.is_empty() {
            return Ok(());
        }
        let rows = rows.as_slice();
        let mut columns = Columns(self.writer.next_row_group()?);
        columns.texts(rows, |row| &row.episode)?;
        columns.values::<Int64Type>(rows, |row| row.step as i64)?;
        columns.texts(rows, |row| &row.set)?;
        columns.texts(rows, |row| &row.task_id)?;
        columns.texts(rows, |row| &row.task)?;
        columns.texts(rows, |row| &row.agent)?;
        columns.values::<Int32Type>(rows, |row| row.turn as i32)?;
        columns.values::<Int32Type>(rows, |row| row.node_visit as i32)?;
        columns.values::<Int32Type>(rows, |row| row.branch as i32)?;
        columns.values::<Int32Type>(rows, |row| row.call as i32)?;
        columns.values::<BoolType>(rows, |row| row.taken)?;
        columns.optional_texts(rows, |row| row.prompt.as_deref())?;
        columns.texts(rows, |row| &row.completion)?;
        columns.texts(rows, |row| &row.finish)?;
        columns.values::<Int64Type>(rows, |row| row.tokens as i64)?;
        columns.optional_texts(rows, |row| row.action.as_deref())?;
        columns.optional::<DoubleType>(rows, |row| row.reward)?;
        columns.values::<BoolType>(rows, |row| row.success)?;
        columns.optional_texts(rows, |row| row.failure.as_deref())?;
        columns.0.close().map(|_| ())
    }
}

fn add_branch(rows: &mut Vec<Completion>, episode: &EpisodeDetails, visit: &NodeVisit, branch: &Branch) {
    for turn in &branch.turns {
        let prompt = visit.prompts.iter().find(|prompt| prompt.agent == turn.agent);
        let reward = branch.rewards.iter().find(|reward| reward.agent == turn.agent);
        rows.extend(turn.calls(prompt).iter().map(|call| {
            Completion {
                episode: episode.episode.clone(),
                step: episode.step,
                set: episode.set.clone(),
                task_id: episode.task_id.clone(),
                task: episode.task.clone(),
                agent: turn.agent.clone(),
                turn: prompt.map_or(0, |prompt| prompt.visit),
                node_visit: visit.node_visit,
                branch: branch.branch,
                call: call.index,
                taken: visit.is_taken(branch),
                prompt: call.prompt.map(str::to_owned),
                completion: call.text.to_owned(),
                finish: call.finish.to_owned(),
                tokens: call.tokens as u64,
                action: turn.action.clone().filter(|_| call.is_last),
                reward: reward.map(|reward| reward.reward),
                success: episode.success,
                failure: episode
                    .failure
                    .as_deref()
                    .or_else(|| branch.fault.as_ref().map(|fault| fault.cause.as_str()))
                    .or_else(|| episode.cause())
                    .map(str::to_owned),
            }
        }));
    }
}

/// Writes the columns of a row group one after the other.
struct Columns<'a, W: Write>(SerializedRowGroupWriter<'a, W>);

impl<W: Write + Send> Columns<'_, W> {
    fn write<T: DataType>(&mut self, values: &[T::T], definitions: Option<&[i16]>) -> Result<()> {
        let missing = || ParquetError::General("the schema has fewer columns".to_owned());
        let mut column = self.0.next_column()?.ok_or_else(missing)?;
        column.typed::<T>().write_batch(values, definitions, None)?;
        column.close()
    }

    fn values<T: DataType>(&mut self, rows: &[Completion], value: fn(&Completion) -> T::T) -> Result<()> {
        self.write::<T>(&rows.iter().map(value).collect::<Vec<_>>(), None)
    }

    fn texts(&mut self, rows: &[Completion], text: fn(&Completion) -> &str) -> Result<()> {
        self.write::<ByteArrayType>(
            &rows.iter().map(|row| text(row).into()).collect::<Vec<ByteArray>>(),
            None,
        )
    }

    fn optional<T: DataType>(
        &mut self,
        rows: &[Completion],
        value: fn(&Completion) -> Option<T::T>,
    ) -> Result<()> {
        let values: Vec<T::T> = rows.iter().filter_map(value).collect();
        let definitions: Vec<i16> = rows.iter().map(|row| i16::from(value(row).is_some())).collect();
        self.write::<T>(&values, Some(&definitions))
    }

    fn optional_texts(&mut self, rows: &[Completion], text: fn(&Completion) -> Option<&str>) -> Result<()> {
        let values: Vec<ByteArray> = rows.iter().filter_map(text).map(ByteArray::from).collect();
        let definitions: Vec<i16> = rows.iter().map(|row| i16::from(text(row).is_some())).collect();
        self.write::<ByteArrayType>(&values, Some(&definitions))
    }
}
