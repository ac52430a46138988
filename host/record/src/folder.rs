//! Where things stand in a run folder, and how a resumed run finds its way in it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    AppendLog, Error, Lock, TraceFile, Traces, Transition, draw_curves, write_atomically, write_transitions,
};

/// Lengths in bytes of the append-only files when a checkpoint was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lengths {
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
    /// Makes the folder and what stands in it from the first moment.
    ///
    /// # Errors
    /// [`Error::Occupied`] where the folder holds a run already.
    pub fn create(root: &Path, source: &str, workflow: &impl Serialize, lock: &Lock) -> Result<Self, Error> {
        if root.join("workflow.json").exists() {
            return Err(Error::Occupied { path: root.to_path_buf() });
        }
        for folder in ["steps", "traces", "checkpoints"] {
            let path = root.join(folder);
            fs::create_dir_all(&path).map_err(Error::io("make folder", &path))?;
        }
        write_atomically(&root.join("workflow.mas"), source.as_bytes())?;
        write_json(&root.join("lock.json"), lock)?;
        // Last: its presence makes the folder a run.
        write_json(&root.join("workflow.json"), workflow)?;
        Self::open_logs(root, Lengths::default())
    }

    /// Opens the folder as it was after step `step`: later lines, step files and traces are cut off.
    pub fn resume(root: &Path, step: u64, lengths: Lengths) -> Result<Self, Error> {
        if !root.join("workflow.json").exists() {
            return Err(Error::NoRun { path: root.to_path_buf() });
        }
        cut(&root.join("steps"), step, |path| path.file_stem()?.to_str()?.parse().ok())?;
        cut(&Traces::of(root).folder(), step, |path| Some(TraceFile::at(path)?.step))?;
        Self::open_logs(root, lengths)
    }

    fn open_logs(root: &Path, lengths: Lengths) -> Result<Self, Error> {
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

    /// Reads a file of the folder that [`RunFolder::create`] wrote as JSON.
    pub fn read_json<T: for<'de> Deserialize<'de>>(root: &Path, name: &str) -> Result<T, Error> {
        let path = root.join(name);
        if !path.exists() {
            return Err(Error::NoRun { path: root.to_path_buf() });
        }
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        serde_json::from_str(&text).map_err(|e| Error::Line { path, line: e.line(), message: e.to_string() })
    }

    /// Keeps every transition of a step.
    pub fn write_step(&self, step: u64, transitions: &[Transition]) -> Result<(), Error> {
        write_transitions(&self.root.join(format!("steps/{step:06}.parquet")), transitions)
    }

    /// Where the run's traces go.
    pub fn traces(&self) -> Traces {
        Traces::of(&self.root)
    }

    /// Makes the append-only files durable and returns their lengths.
    pub fn sync(&mut self) -> Result<Lengths, Error> {
        Ok(Lengths {
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

/// Removes the files of a folder that are of later steps than `step`, or none of ours. Makes the folder where it is
/// missing.
fn cut(folder: &Path, step: u64, step_of: impl Fn(&Path) -> Option<u64>) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(Error::io("make folder", folder))?;
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let path = entry.map_err(Error::io("read", folder))?.path();
        if step_of(&path).is_none_or(|of| of > step) {
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
    }
    Ok(())
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(|e| Error::Table {
        action: "write",
        path: path.to_path_buf(),
        message: e.to_string(),
    })?;
    bytes.push(b'\n');
    write_atomically(path, &bytes)
}
