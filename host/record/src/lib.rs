//! The run folder: what a run leaves behind, and what it needs to go on.
//!
//! ```text
//! runs/math/
//!   workflow.mas       as written           workflow.json   as resolved
//!   lock.json          hashes of plugins, model and data; seed; versions
//!   metrics.jsonl      one line a step and an evaluation: equal for equal seeds
//!   timings.jsonl      seconds and rates: never equal
//!   failures.jsonl     episodes that failed, with their cause
//!   steps/000001.parquet   every transition of the step
//!   traces/000001.jsonl.zst    every attempt at an episode, as `pl-host replay` reads it
//!   checkpoints/000010/    everything needed to go on
//!   curves.png
//! ```

mod atomic;
mod curves;
mod error;
mod folder;
mod jsonl;
mod lock;
mod table;
mod traces;
pub mod transition;

pub use atomic::{sync_folder, write_atomically};
pub use curves::draw_curves;
pub use error::Error;
pub use folder::{Lengths, RunFolder};
pub use jsonl::{AppendLog, read_jsonl};
pub use lock::{Lock, hash_file};
pub use table::{read_transitions, write_transitions};
pub use traces::{TraceFile, Traces};
pub use transition::{Group, Key, Transition};
