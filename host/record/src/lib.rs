//! The run folder: the files that a run writes, and that it is resumed and replayed from.
//!
//! ```text
//! runs/math/
//!   run.lock                   locked by the process that writes into the folder
//!   workflow.mas               as written
//!   workflow.json              as resolved
//!   lock.json                  hashes of plugins, models and data; seed; versions
//!   plan.json                  what the run was expected to use
//!   metrics.jsonl              a line per step and per evaluation: equal for equal seeds
//!   timings.jsonl              seconds and rates: different in every run
//!   failures.jsonl             episodes that failed, with their cause
//!   designs.jsonl              designs of a run with a designer, with what became of them
//!   versions.jsonl             versions of each completion, if weights change while episodes play
//!   schedule.jsonl             tasks of each step's update, if those that end first are trained on first
//!   events.out.tfevents.…      the numbers of metrics and timings, for TensorBoard
//!   steps/000001.parquet       every transition of the step
//!   tokens/000001.parquet       what the update computed of each of their tokens
//!   traces/000001.jsonl.zst    every attempt at an episode, for `pl-host replay`
//!   checkpoints/step-00000010/ everything needed to resume after the step (written by the trainer)
//!   curves.png
//! ```

mod atomic;
mod column_reader;
mod column_writer;
mod curves;
mod episode_summary;
mod error;
mod event_file;
#[cfg(test)]
mod fixtures;
mod folder;
mod jsonl;
mod lock;
mod lock_holder;
mod missing_traces;
mod own_files;
mod process_clock;
mod run_lock;
mod scalars;
pub mod schedule;
mod settings;
mod step_table;
mod table;
mod table_file;
mod text_file;
mod token_table;
mod trace_index;
mod traces;
pub mod versions;

pub use atomic::{create_partial, sync_folder, write_atomically};
pub use curves::draw_curves;
pub use episode_summary::{AgentSummary, AttemptKey, EpisodeSummaries, EpisodeSummary};
pub use error::Error;
pub use event_file::EventFile;
pub use folder::{FinishedSteps, LogLengths, RunFolder};
pub use jsonl::{AppendLog, read_jsonl};
pub use lock::{Lock, first_digits, hash_file, hash_folder};
pub use lock_holder::LockHolder;
pub use missing_traces::missing_traces;
pub use process_clock::ProcessClock;
pub use run_lock::RunLock;
pub use scalars::scalars;
pub use settings::settings_by_path;
pub use step_table::StepTable;
pub use table::{read_transitions, write_transitions};
pub use token_table::{TokenTable, TrainedRow};
pub use trace_index::TraceIndex;
pub use traces::{TRACE_FORMAT, TraceFile, TraceLine, Traces};
