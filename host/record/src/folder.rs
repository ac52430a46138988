//! A run folder: creating, resuming, and the paths of its files.

use std::fs;
use std::path::{Path, PathBuf};

use pl_types::Transition;
use serde::{Deserialize, Serialize};

use crate::atomic::write_atomically;
use crate::curves::draw_curves;
use crate::error::Error;
use crate::jsonl::AppendLog;
use crate::lock::Lock;
use crate::table::write_transitions;
use crate::traces::{TraceFile, Traces};

/// Lengths in bytes of the append-only files when a checkpoint was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLengths {
    pub metrics: u64,
    pub timings: u64,
    pub failures: u64,
}

/// An open run folder.
#[derive(Debug)]
pub struct RunFolder {
    root: PathBuf,
    pub metrics: AppendLog,
    pub timings: AppendLog,
    pub failures: AppendLog,
}

impl RunFolder {
    /// Creates the folder with the files that describe the run.
    ///
    /// # Errors
    /// [`Error::Occupied`] if the folder already holds a run.
    pub fn create(root: &Path, source: &str, workflow: &impl Serialize, lock: &Lock) -> Result<Self, Error> {
        if root.join("workflow.json").exists() {
            return Err(Error::Occupied { path: root.to_path_buf() });
        }
        for folder in ["steps", "traces", "checkpoints"] {
            let path = root.join(folder);
            fs::create_dir_all(&path).map_err(Error::io("create the folder", &path))?;
        }
        write_atomically(&root.join("workflow.mas"), source.as_bytes())?;
        write_json(&root.join("lock.json"), lock)?;
        // Written last: its presence makes the folder a run.
        write_json(&root.join("workflow.json"), workflow)?;
        Self::open_logs(root, LogLengths::default())
    }

    /// Replaces a JSON file of the folder.
    ///
    /// # Errors
    /// If the file can't be written. The old one then stays.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), Error> {
        write_json(&self.root.join(name), value)
    }

    /// Opens the folder in its state after step `step`: later lines, step files and trace files are deleted.
    ///
    /// # Errors
    /// [`Error::NoRun`]; [`Error::Truncated`] if an append-only file is shorter than `lengths`.
    pub fn resume(root: &Path, step: u64, lengths: LogLengths) -> Result<Self, Error> {
        if !root.join("workflow.json").exists() {
            return Err(Error::NoRun { path: root.to_path_buf() });
        }
        delete_later(&root.join("steps"), step, |path| path.file_stem()?.to_str()?.parse().ok())?;
        delete_later(&Traces::for_run(root).folder(), step, |path| Some(TraceFile::from_path(path)?.step))?;
        Self::open_logs(root, lengths)
    }

    fn open_logs(root: &Path, lengths: LogLengths) -> Result<Self, Error> {
        Ok(RunFolder {
            root: root.to_path_buf(),
            metrics: AppendLog::open(&root.join("metrics.jsonl"), lengths.metrics)?,
            timings: AppendLog::open(&root.join("timings.jsonl"), lengths.timings)?,
            failures: AppendLog::open(&root.join("failures.jsonl"), lengths.failures)?,
        })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of checkpoints within a run folder.
    pub fn checkpoints(root: &Path) -> PathBuf {
        root.join("checkpoints")
    }

    /// Reads a JSON file of a run folder, such as `lock.json`.
    pub fn read_json<T: for<'de> Deserialize<'de>>(root: &Path, name: &str) -> Result<T, Error> {
        let path = root.join(name);
        if !path.exists() {
            return Err(Error::NoRun { path: root.to_path_buf() });
        }
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        serde_json::from_str(&text).map_err(|e| Error::Line { path, line: e.line(), message: e.to_string() })
    }

    /// Writes every transition of a step to a Parquet file.
    pub fn write_step(&self, step: u64, transitions: &[Transition]) -> Result<(), Error> {
        write_transitions(&self.root.join(format!("steps/{step:06}.parquet")), transitions)
    }

    /// The trace files of the run.
    pub fn traces(&self) -> Traces {
        Traces::for_run(&self.root)
    }

    /// Makes the append-only files durable and returns their lengths.
    pub fn sync(&mut self) -> Result<LogLengths, Error> {
        Ok(LogLengths {
            metrics: self.metrics.sync()?,
            timings: self.timings.sync()?,
            failures: self.failures.sync()?,
        })
    }

    /// Draws `curves.png` from `metrics.jsonl`.
    pub fn draw(&self) -> Result<(), Error> {
        draw_curves(&self.root.join("metrics.jsonl"), &self.root.join("curves.png"))
    }
}

/// Deletes the files of later steps than `step` in a folder, and those that are not a run's. Creates the
/// folder if it is missing.
fn delete_later(folder: &Path, step: u64, step_of: impl Fn(&Path) -> Option<u64>) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(Error::io("create the folder", folder))?;
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let path = entry.map_err(Error::io("read", folder))?.path();
        if step_of(&path).is_none_or(|file_step| file_step > step) {
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
    }
    Ok(())
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(Error::json(path))?;
    bytes.push(b'\n');
    write_atomically(path, &bytes)
}
