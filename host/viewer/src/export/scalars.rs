//! The numbers of a run's logs as a line per step, for programs that track experiments.

use std::collections::VecDeque;
use std::io::Write;
use std::path::Path;

use pl_record::scalars;
use serde_json::{Map, Value};

use super::Exported;
use crate::error::Error;
use crate::logs::{self, Log};

/// Writes a line for each step: `step`, and the numbers of its lines in `metrics.jsonl` and `timings.jsonl` by the names
/// that they have in TensorBoard's event file. Steps are in the order of the logs: trackers want them to rise.
///
/// # Errors
/// If a log can't be read, or the output can't be written.
pub(super) fn write_scalars(root: &Path, out: &mut impl Write) -> Result<Exported, Error> {
    let mut logs = [Log::Metrics, Log::Timings].map(|log| Lines::new(root, log));
    let mut lines = 0;
    loop {
        let mut next = Vec::new();
        for log in &mut logs {
            next.extend(log.next_step()?);
        }
        let Some(step) = next.into_iter().min() else { break };
        let mut numbers = Map::new();
        numbers.insert("step".into(), step.into());
        for log in &mut logs {
            while log.next_step()? == Some(step) {
                let line = log.pending.pop_front().unwrap_or_default();
                numbers.extend(scalars(&line).into_iter().map(|(name, number)| (name, number.into())));
            }
        }
        writeln!(out, "{}", Value::Object(numbers)).map_err(Error::Output)?;
        lines += 1;
    }
    out.flush().map_err(Error::Output)?;
    Ok(Exported { lines, problems: logs.into_iter().flat_map(|log| log.problems).collect() })
}

/// Lines of a log, read piece by piece.
struct Lines<'r> {
    root: &'r Path,
    log: Log,
    offset: u64,
    line: u64,
    more: bool,
    pending: VecDeque<Value>,
    problems: Vec<String>,
}

impl<'r> Lines<'r> {
    fn new(root: &'r Path, log: Log) -> Lines<'r> {
        Lines { root, log, offset: 0, line: 0, more: true, pending: VecDeque::new(), problems: Vec::new() }
    }

    /// Returns the step of the next line. Lines without a step have the number 0. Returns `None` at the end.
    fn next_step(&mut self) -> Result<Option<u64>, Error> {
        while self.pending.is_empty() && self.more {
            let piece = logs::read(self.root, self.log, self.offset, self.line)?;
            (self.offset, self.line, self.more) = (piece.offset, piece.line, piece.more);
            self.pending.extend(piece.lines);
            self.problems.extend(piece.problems);
        }
        let step = |line: &Value| line.get("step").and_then(Value::as_u64).unwrap_or_default();
        Ok(self.pending.front().map(step))
    }
}
