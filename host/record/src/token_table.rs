//! Values that an update computed for each token, as Parquet: one file per step, one row per pass over a completion.

use std::path::Path;

use parquet::data_type::{BoolType, DoubleType, FloatType, Int32Type};
use parquet::errors::Result as ParquetResult;
use pl_types::{Clipping, Credit, Key, TrainedCompletion};

use crate::column_reader::{KeyedColumns, optional};
use crate::column_writer::{Columns, write_file};
use crate::error::Error;

/// Columns in the order in which [`write_columns`] writes them. `advantage` is the mean of `advantages`; `clipped` is 1
/// for the range of ratios and 2 for the bound of negative advantages.
const SCHEMA: &str = "message tokens {
    required int64 step (INTEGER(64, false));
    required int32 task (INTEGER(32, false));
    required int32 sample (INTEGER(32, false));
    required int32 node_visit (INTEGER(32, false));
    required int32 agent_index (INTEGER(32, false));
    required int32 branch (INTEGER(32, false));
    required int32 epoch (INTEGER(32, false));
    required int32 optimizer_steps (INTEGER(32, false));
    required float loss_weight;
    required double kl_coefficient;
    required boolean masked;
    optional double return;
    required int32 group_size (INTEGER(32, false));
    required double group_mean;
    required double group_deviation;
    required double advantage;
    required group advantages (LIST) { repeated group list { required float element; } }
    optional group logprobs (LIST) { repeated group list { required float element; } }
    optional group entropies (LIST) { repeated group list { required float element; } }
    optional group clipped (LIST) { repeated group list { required int32 element (INTEGER(32, false)); } }
    optional group old_logprobs (LIST) { repeated group list { required float element; } }
    optional group reference_logprobs (LIST) { repeated group list { required float element; } }
    optional group importance_weights (LIST) { repeated group list { required float element; } }
    required int32 call (INTEGER(32, false));
}";

/// Writes the file whole or not at all. Equal records give equal bytes.
pub(crate) fn write_trained(path: &Path, records: &[TrainedCompletion]) -> Result<(), Error> {
    write_file(path, SCHEMA, |columns| write_columns(columns, records))
}

fn write_columns(mut columns: Columns<'_>, rows: &[TrainedCompletion]) -> ParquetResult<()> {
    columns.u64s(rows, |r| r.key.step)?;
    columns.u32s(rows, |r| r.key.task)?;
    columns.u32s(rows, |r| r.key.sample)?;
    columns.u32s(rows, |r| r.key.node_visit)?;
    columns.u32s(rows, |r| r.key.agent)?;
    columns.u32s(rows, |r| r.key.branch)?;
    columns.u32s(rows, |r| r.epoch)?;
    columns.u32s(rows, |r| r.optimizer_steps)?;
    columns.values::<FloatType, _>(rows, |r| r.loss_weight)?;
    columns.values::<DoubleType, _>(rows, |r| r.kl_coefficient)?;
    columns.values::<BoolType, _>(rows, |r| r.masked)?;
    columns.optional_f64s(rows, |r| r.credit.map(|credit| credit.value))?;
    columns.u32s(rows, |r| r.credit.map_or(0, |credit| credit.group_size))?;
    columns.values::<DoubleType, _>(rows, |r| r.credit.map_or(0.0, |credit| credit.group_mean))?;
    columns.values::<DoubleType, _>(rows, |r| r.credit.map_or(0.0, |credit| credit.group_deviation))?;
    columns.values::<DoubleType, _>(rows, mean_advantage)?;
    columns.lists::<FloatType, _, _>(rows, |r| r.advantages.iter().copied())?;
    columns.optional_lists::<FloatType, _, _>(rows, |r| r.logprobs.as_deref(), |value| *value)?;
    columns.optional_lists::<FloatType, _, _>(rows, |r| r.entropies.as_deref(), |value| *value)?;
    columns.optional_lists::<Int32Type, _, _>(rows, |r| r.clipped.as_deref(), clipping_number)?;
    columns.optional_lists::<FloatType, _, _>(rows, |r| r.old_logprobs.as_deref(), |value| *value)?;
    columns.optional_lists::<FloatType, _, _>(rows, |r| r.reference_logprobs.as_deref(), |value| *value)?;
    columns.optional_lists::<FloatType, _, _>(rows, |r| r.importance_weights.as_deref(), |value| *value)?;
    columns.u32s(rows, |r| r.key.call)?;
    columns.close()
}

fn mean_advantage(record: &TrainedCompletion) -> f64 {
    let sum: f64 = record.advantages.iter().map(|&advantage| f64::from(advantage)).sum();
    sum / record.advantages.len().max(1) as f64
}

fn clipping_number(clipping: &Clipping) -> i32 {
    match clipping {
        Clipping::None => 0,
        Clipping::Range => 1,
        Clipping::Dual => 2,
    }
}

fn clipping(number: i32) -> Clipping {
    match number {
        1 => Clipping::Range,
        2 => Clipping::Dual,
        _ => Clipping::None,
    }
}

/// A row without its tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainedRow {
    pub key: Key,
    pub epoch: u32,
    /// Mean advantage of the completion's tokens.
    pub advantage: f64,
    /// True if none of the tokens is trained on.
    pub masked: bool,
}

/// An open file of a step's tokens.
pub struct TokenTable(KeyedColumns);

impl TokenTable {
    /// Opens the file and reads its schema.
    ///
    /// # Errors
    /// [`Error::Io`] if it is missing, [`Error::Table`] if it is not a Parquet file.
    pub fn open(path: &Path) -> Result<TokenTable, Error> {
        KeyedColumns::open(path).map(TokenTable)
    }

    /// Reads all rows without their tokens, in order: by key, then by epoch.
    ///
    /// # Errors
    /// [`Error::Table`] if a column is missing, has another type or is damaged.
    pub fn rows(&self) -> Result<Vec<TrainedRow>, Error> {
        let epochs = self.0.column::<Int32Type>("epoch")?;
        let advantages = self.0.column::<DoubleType>("advantage")?;
        let masked = self.0.column::<BoolType>("masked")?;
        let rows = self.0.keys()?.into_iter().zip(epochs).zip(advantages).zip(masked);
        Ok(rows
            .map(|(((key, epoch), advantage), masked)| TrainedRow {
                key,
                epoch: epoch.cast_unsigned(),
                advantage,
                masked,
            })
            .collect())
    }

    /// Reads all completions, in order.
    ///
    /// # Errors
    /// [`Error::Table`] if a column is missing, has another type or is damaged.
    pub(crate) fn completions(&self) -> Result<Vec<TrainedCompletion>, Error> {
        (0..self.rows()?.len()).filter_map(|row| self.completion(row).transpose()).collect()
    }

    /// Reads one row, counted from 0 over the whole file. Returns `None` if there are fewer rows.
    ///
    /// # Errors
    /// [`Error::Table`] if a column is missing, has another type or is damaged.
    pub fn completion(&self, row: usize) -> Result<Option<TrainedCompletion>, Error> {
        let columns = &self.0;
        let Some(at) = columns.position(row) else { return Ok(None) };
        let floats = |name: &str| Ok::<_, Error>(optional(columns.cell::<FloatType>(at, name)?));
        let credit = match columns.cell::<DoubleType>(at, "return")?.values.first() {
            Some(&value) => Some(Credit {
                value,
                group_size: columns.u32(at, "group_size")?,
                group_mean: columns.f64(at, "group_mean")?,
                group_deviation: columns.f64(at, "group_deviation")?,
            }),
            None => None,
        };
        let clipped = optional(columns.cell::<Int32Type>(at, "clipped")?);
        Ok(Some(TrainedCompletion {
            key: columns.key(at)?,
            epoch: columns.u32(at, "epoch")?,
            optimizer_steps: columns.u32(at, "optimizer_steps")?,
            loss_weight: columns.value::<FloatType>(at, "loss_weight")?,
            kl_coefficient: columns.f64(at, "kl_coefficient")?,
            masked: columns.value::<BoolType>(at, "masked")?,
            credit,
            advantages: columns.cell::<FloatType>(at, "advantages")?.values,
            logprobs: floats("logprobs")?,
            entropies: floats("entropies")?,
            clipped: clipped.map(|numbers| numbers.into_iter().map(clipping).collect()),
            old_logprobs: floats("old_logprobs")?,
            reference_logprobs: floats("reference_logprobs")?,
            importance_weights: floats("importance_weights")?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(task: u32, epoch: u32) -> TrainedCompletion {
        let tokens = task as usize % 4;
        let computed = task != 3;
        let list = |value: f32| computed.then(|| vec![value; tokens]);
        TrainedCompletion {
            key: Key { step: 3, task, sample: 1, node_visit: 2, agent: 1, branch: 4, call: 0 },
            epoch,
            optimizer_steps: epoch * 2,
            loss_weight: 0.125,
            kl_coefficient: 0.5,
            masked: task == 3,
            credit: (task != 1).then_some(Credit {
                value: f64::from(task),
                group_size: 4,
                group_mean: 1.5,
                group_deviation: 0.5,
            }),
            advantages: (0..tokens).map(|token| token as f32 - 1.0).collect(),
            logprobs: list(-0.25),
            entropies: list(1.0).filter(|_| epoch == 0),
            clipped: computed.then(|| {
                [Clipping::None, Clipping::Range, Clipping::Dual].into_iter().cycle().take(tokens).collect()
            }),
            old_logprobs: list(-0.5).filter(|_| task == 2),
            reference_logprobs: list(-0.75).filter(|_| task == 2),
            importance_weights: list(2.0).filter(|_| task == 1),
        }
    }

    #[test]
    fn records_survive_a_round_trip_and_equal_records_give_equal_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let records = [record(0, 0), record(1, 0), record(1, 1), record(2, 0), record(3, 0)];
        let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
        write_trained(&a, &records).unwrap();
        write_trained(&b, &records).unwrap();
        assert_eq!(std::fs::read(&a).unwrap(), std::fs::read(&b).unwrap());
        let table = TokenTable::open(&a).unwrap();
        let read: Vec<_> = (0..records.len()).map(|row| table.completion(row).unwrap().unwrap()).collect();
        assert_eq!(read, records);
        assert_eq!(table.completion(records.len()).unwrap(), None);
        let rows = table.rows().unwrap();
        assert_eq!((rows[2].epoch, rows[3].advantage, rows[4].masked), (1, -0.5, true));
        assert!(rows.iter().zip(&records).all(|(row, record)| row.key == record.key));
    }
}
