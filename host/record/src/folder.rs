//! A run folder: creating, resuming, and the paths of its files.
//!
//! A run writes and deletes only files with names of its own forms. Other files in its folder stay as they
//! are.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use pl_types::{Key, TrainedCompletion, Transition};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::atomic::{create_folder, parent, sync_folder, write_atomically};
use crate::curves::draw_curves;
use crate::error::Error;
use crate::event_file::EventFile;
use crate::jsonl::AppendLog;
use crate::lock::Lock;
use crate::lock_holder::LockHolder;
use crate::own_files::{delete_later, own_files, parse_step};
use crate::run_lock::{RUN_LOCK, RunLock, find_holder};
use crate::scalars::scalars;
use crate::schedule::{RecordedBatch, SCHEDULE};
use crate::table::{read_transitions, write_transitions};
use crate::text_file::{LARGEST_TEXT, read_text};
use crate::token_table::{TokenTable, write_trained};
use crate::traces::{TraceFile, Traces};
use crate::versions::{RecordedVersions, VERSIONS};

const WORKFLOW: &str = "workflow.json";
const LOCK: &str = "lock.json";
pub(crate) const METRICS: &str = "metrics.jsonl";
const TIMINGS: &str = "timings.jsonl";
const FAILURES: &str = "failures.jsonl";
const DESIGNS: &str = "designs.jsonl";
/// TensorBoard finds its files by `tfevents`, and sorts them by the number.
const EVENTS: &str = "events.out.tfevents.0.pl-host";
const CURVES: &str = "curves.png";
const STEPS: &str = "steps";
const TOKENS: &str = "tokens";
const CHECKPOINTS: &str = "checkpoints";
const ADAPTERS: &str = "adapters";

/// Entries of a run folder that a run writes, except its lock.
const ENTRIES: [&str; 21] = [
    WORKFLOW,
    "workflow.json.mac",
    "workflow.mas",
    LOCK,
    "plan.json",
    METRICS,
    TIMINGS,
    FAILURES,
    SCHEDULE,
    VERSIONS,
    DESIGNS,
    EVENTS,
    CURVES,
    STEPS,
    TOKENS,
    "traces",
    CHECKPOINTS,
    ADAPTERS,
    // Designs as files.
    "best",
    // Of a run on several machines: its name, and the store and the configuration of a server on this machine.
    "cluster.json",
    "cluster",
];

/// Lengths in bytes of the append-only files when a checkpoint was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLengths {
    pub metrics: u64,
    pub timings: u64,
    pub failures: u64,
    /// 0 in checkpoints of earlier versions: the file then begins at the resumed step.
    #[serde(default)]
    pub events: u64,
    /// 0 if each update trains on the tasks that were drawn for it: the file does not exist then.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub schedule: u64,
    /// 0 if every episode keeps the weights that it began with: the file does not exist then.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub versions: u64,
    /// 0 in checkpoints of earlier versions, whose runs had no designs.
    #[serde(default)]
    pub designs: u64,
}

/// Steps of a run whose files are kept when it resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedSteps {
    /// Last step that was played.
    pub played: u64,
    /// Last step that was trained on.
    pub trained: u64,
}

/// An open run folder, locked for this process.
#[derive(Debug)]
pub struct RunFolder {
    lock: RunLock,
    metrics: AppendLog,
    timings: AppendLog,
    pub failures: AppendLog,
    /// Designs. `None` before the first one.
    designs: Option<AppendLog>,
    events: EventFile,
    /// `None` if nothing was written.
    schedule: Option<AppendLog>,
    /// `None` if nothing was written.
    versions: Option<AppendLog>,
}

/// Returns the error of a folder without a file that runs have.
fn missing_file(root: &Path, missing: &str) -> Error {
    let (path, missing) = (root.to_path_buf(), missing.to_owned());
    match root.join(WORKFLOW).is_file() {
        true => Error::Incomplete { path, missing },
        false if is_unstarted(root) => not_started(root),
        false => Error::NoRun { path, missing },
    }
}

/// Returns true for a folder without a workflow that was locked for a run, and has nothing that a run has recorded.
fn is_unstarted(root: &Path) -> bool {
    let has_checkpoints =
        fs::read_dir(root.join(CHECKPOINTS)).is_ok_and(|mut entries| entries.next().is_some());
    root.join(RUN_LOCK).is_file() && !has_checkpoints && matches!(RunFolder::has_episodes(root), Ok(false))
}

/// Returns the error of a folder in which a run was to start.
fn not_started(root: &Path) -> Error {
    let path = root.to_path_buf();
    match find_holder(root).filter(|holder| holder.pid != std::process::id()) {
        Some(holder) => Error::Locked { path, holder: Some(holder) },
        None => Error::Unstarted { path },
    }
}

/// Removes the entries of a run, and the folder if it has nothing else. What can't be removed stays.
fn remove_run(root: &Path) {
    for path in ENTRIES.into_iter().chain([RUN_LOCK]).map(|entry| root.join(entry)) {
        let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    }
    let _ = fs::remove_dir(root);
}

impl RunFolder {
    /// Creates the folder with the files that describe the run. If they can't be written, nothing of the run stays.
    ///
    /// # Errors
    /// Those of [`RunFolder::check_unused`]; [`Error::Locked`] if another process is creating the folder; [`Error::Io`].
    pub fn create(root: &Path, source: &str, workflow: &impl Serialize, lock: &Lock) -> Result<Self, Error> {
        RunFolder::check_unused(root)?;
        create_folder(root)?;
        let run_lock = RunLock::acquire(root)?;
        // Another process may have created a run since.
        RunFolder::check_unused(root)?;
        if let Err(error) = Self::write_start(root, source, workflow, lock) {
            remove_run(root);
            return Err(error);
        }
        Self::open_logs(run_lock, LogLengths::default()).inspect_err(|_| remove_run(root))
    }

    /// Writes the files that describe a new run.
    fn write_start(root: &Path, source: &str, workflow: &impl Serialize, lock: &Lock) -> Result<(), Error> {
        for folder in [STEPS, TOKENS, "traces", CHECKPOINTS] {
            create_folder(&root.join(folder))?;
        }
        write_atomically(&root.join("workflow.mas"), source.as_bytes())?;
        write_json(&root.join(LOCK), lock)?;
        // Written last: its presence makes the folder a run.
        write_json(&root.join(WORKFLOW), workflow)
    }

    /// Removes what [`RunFolder::create`] and the caller have written since, for a run that can't start. The folder stays if it has
    /// anything else, and so does what can't be removed.
    pub fn discard(self) {
        remove_run(self.root());
    }

    /// Checks that a new run in `root` would overwrite nothing.
    ///
    /// # Errors
    /// [`Error::Occupied`] if the folder holds a run; [`Error::Unstarted`] if one was killed while its folder was created;
    /// [`Error::InUse`] if it has another file or folder that a run would write.
    pub fn check_unused(root: &Path) -> Result<(), Error> {
        let path = || root.to_path_buf();
        match ENTRIES.into_iter().find(|entry| root.join(entry).symlink_metadata().is_ok()) {
            None => Ok(()),
            Some(WORKFLOW) => Err(Error::Occupied { path: path() }),
            Some(_) if is_unstarted(root) => Err(not_started(root)),
            Some(entry) => Err(Error::InUse { path: path(), entry }),
        }
    }

    /// Checks that a folder is that of a run.
    ///
    /// # Errors
    /// [`Error::NoRun`] or [`Error::Unstarted`]; [`Error::Incomplete`].
    pub fn require(root: &Path) -> Result<(), Error> {
        match [WORKFLOW, LOCK].into_iter().find(|name| !root.join(name).is_file()) {
            Some(missing) => Err(missing_file(root, missing)),
            None => Ok(()),
        }
    }

    /// Reads the lock file of a run.
    ///
    /// # Errors
    /// If the file can't be read, or is not valid JSON for a [`Lock`].
    pub fn read_lock(root: &Path) -> Result<Lock, Error> {
        Self::read_json(root, LOCK)
    }

    /// Returns the run folder and the entry of it that a path leads to or into, also by links and `..`. Returns `None` if no run
    /// writes or reads the path, or its folder is missing.
    pub fn entry_of(path: &Path) -> Option<(PathBuf, &'static str)> {
        let real = real_path(path)?;
        real.ancestors().skip(1).find_map(|root| {
            let name = real.strip_prefix(root).ok()?.iter().next()?;
            let entry = ENTRIES.into_iter().chain([RUN_LOCK]).find(|entry| name == *entry)?;
            RunFolder::require(root).is_ok().then(|| (root.to_path_buf(), entry))
        })
    }

    /// Locks the folder of a run, before anything is read that this process will change.
    ///
    /// # Errors
    /// [`Error::NoRun`] or [`Error::Unstarted`]; [`Error::Locked`] if another process writes into it.
    pub fn lock(root: &Path) -> Result<RunLock, Error> {
        if !root.join(WORKFLOW).is_file() {
            return Err(missing_file(root, WORKFLOW));
        }
        RunLock::acquire(root)
    }

    /// Returns true if the run has recorded episodes: in a log, in a file of a step, or in a trace file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn has_episodes(root: &Path) -> Result<bool, Error> {
        let has_lines = |name: &&str| root.join(name).metadata().is_ok_and(|file| file.len() > 0);
        Ok([METRICS, FAILURES].iter().any(has_lines)
            || !own_files(&root.join(STEPS), step_of_table)?.is_empty()
            || !own_files(&Traces::for_run(root).folder(), TraceFile::step_of)?.is_empty())
    }

    /// Returns the process that writes into the folder of a run, without taking the lock. Returns `None` if
    /// no process of this machine does.
    pub fn writer(root: &Path) -> Option<LockHolder> {
        find_holder(root)
    }

    /// Path of the file of a step within a run folder.
    pub fn step_file(root: &Path, step: u64) -> PathBuf {
        root.join(format!("{STEPS}/{step:06}.parquet"))
    }

    /// Replaces a JSON file of the folder.
    ///
    /// # Errors
    /// If the file can't be written. The old one then stays.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), Error> {
        write_json(&self.root().join(name), value)
    }

    /// Opens the folder in its state after some steps: later lines, step files, token files and trace files are
    /// deleted, and unfinished files of all kinds.
    ///
    /// # Errors
    /// [`Error::Truncated`] if an append-only file is shorter than `lengths`. Nothing is deleted then.
    pub fn resume(lock: RunLock, steps: FinishedSteps, lengths: LogLengths) -> Result<Self, Error> {
        let root = lock.root().to_path_buf();
        let folder = Self::open_logs(lock, lengths)?;
        delete_later(&root.join(STEPS), steps.played, step_of_table)?;
        delete_later(&root.join(TOKENS), steps.trained, step_of_table)?;
        delete_later(&Traces::for_run(&root).folder(), steps.played, TraceFile::step_of)?;
        // Of the entries, which have no steps, only unfinished ones are deleted.
        delete_later(&root, 0, |name| ENTRIES.contains(&name).then_some(0))?;
        Ok(folder)
    }

    /// Opens the logs and truncates them to `lengths`, once all are known to be long enough.
    fn open_logs(lock: RunLock, lengths: LogLengths) -> Result<Self, Error> {
        let root = lock.root();
        let logs = [(METRICS, lengths.metrics), (TIMINGS, lengths.timings), (FAILURES, lengths.failures)];
        let others = [(EVENTS, lengths.events), (SCHEDULE, lengths.schedule), (DESIGNS, lengths.designs)];
        let others = others.into_iter().chain([(VERSIONS, lengths.versions)]);
        for (name, length) in logs.into_iter().chain(others) {
            AppendLog::check_length(&root.join(name), length)?;
        }
        let open = |(name, length): (&str, u64)| AppendLog::open(&root.join(name), length);
        let [metrics, timings, failures] = logs.map(open);
        let (metrics, timings, failures) = (metrics?, timings?, failures?);
        let has_designs = root.join(DESIGNS).symlink_metadata().is_ok();
        let designs = has_designs.then(|| open((DESIGNS, lengths.designs))).transpose()?;
        let events = EventFile::open(&root.join(EVENTS), lengths.events)?;
        let reopen = |log: (&str, u64)| root.join(log.0).exists().then(|| open(log)).transpose();
        let schedule = reopen((SCHEDULE, lengths.schedule))?;
        let versions = reopen((VERSIONS, lengths.versions))?;
        sync_folder(root)?;
        Ok(RunFolder { lock, metrics, timings, failures, designs, events, schedule, versions })
    }

    pub fn root(&self) -> &Path {
        self.lock.root()
    }

    /// Writes a line of `metrics.jsonl`, and its numbers for TensorBoard.
    ///
    /// # Errors
    /// If a file can't be written.
    pub fn append_metrics(&mut self, step: u64, line: &Value) -> Result<(), Error> {
        self.metrics.append(line)?;
        self.events.append(step, &scalars(line))
    }

    /// Writes a line of `timings.jsonl`, and its numbers for TensorBoard.
    ///
    /// # Errors
    /// If a file can't be written.
    pub fn append_timings(&mut self, step: u64, line: &Value) -> Result<(), Error> {
        self.timings.append(line)?;
        self.events.append(step, &scalars(line))
    }

    /// Writes a line of `schedule.jsonl`.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn append_schedule(&mut self, batch: &RecordedBatch) -> Result<(), Error> {
        append_to_new(&mut self.schedule, self.lock.root(), SCHEDULE, batch)
    }

    /// Writes a line of `versions.jsonl`.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn append_versions(&mut self, versions: &RecordedVersions) -> Result<(), Error> {
        append_to_new(&mut self.versions, self.lock.root(), VERSIONS, versions)
    }

    /// Writes a line of `designs.jsonl`.
    ///
    /// # Errors
    /// If the file can't be written.
    pub fn append_design(&mut self, design: &impl Serialize) -> Result<(), Error> {
        append_to_new(&mut self.designs, self.lock.root(), DESIGNS, design)
    }

    /// Returns the folder of the adapters that servers load, which exists if the run has such servers.
    pub fn adapters(root: &Path) -> PathBuf {
        root.join(ADAPTERS)
    }

    /// The folder of checkpoints within a run folder.
    pub fn checkpoints(root: &Path) -> PathBuf {
        root.join(CHECKPOINTS)
    }

    /// Reads a JSON file of a run folder, such as `lock.json`.
    pub fn read_json<T: for<'de> Deserialize<'de>>(root: &Path, name: &str) -> Result<T, Error> {
        let (path, text) = (root.join(name), Self::read_text(root, name)?);
        serde_json::from_str(&text).map_err(|e| Error::Line { path, line: e.line(), message: e.to_string() })
    }

    /// Reads a text file of a run folder, such as `workflow.mas`.
    ///
    /// # Errors
    /// [`Error::NoRun`] or [`Error::Incomplete`] if it is missing; [`Error::Io`] if it is not a file, or larger than 64 MiB.
    pub fn read_text(root: &Path, name: &str) -> Result<String, Error> {
        let path = root.join(name);
        if !path.exists() {
            return Err(missing_file(root, name));
        }
        read_text(&path, LARGEST_TEXT).map_err(Error::io("read", &path))
    }

    /// Writes every transition of a step to a Parquet file.
    pub fn write_step(&self, step: u64, transitions: &[Transition]) -> Result<(), Error> {
        write_transitions(&RunFolder::step_file(self.root(), step), transitions)
    }

    /// Path of the file of a step's tokens within a run folder.
    pub fn token_file(root: &Path, step: u64) -> PathBuf {
        root.join(format!("{TOKENS}/{step:06}.parquet"))
    }

    /// Writes what the update of a step computed of each token to a Parquet file.
    pub fn write_tokens(&self, step: u64, records: &[TrainedCompletion]) -> Result<(), Error> {
        write_trained(&RunFolder::token_file(self.root(), step), records)
    }

    /// Adds what the update of a later step computed of a step's tokens. Records of the same pass replace those that the file has.
    pub fn add_tokens(&self, step: u64, records: Vec<TrainedCompletion>) -> Result<(), Error> {
        let path = RunFolder::token_file(self.root(), step);
        let mut all = if path.exists() { TokenTable::open(&path)?.completions()? } else { Vec::new() };
        let new: HashSet<(&Key, u32)> = records.iter().map(|own| (&own.key, own.epoch)).collect();
        all.retain(|own| !new.contains(&(&own.key, own.epoch)));
        all.extend(records);
        all.sort_by(|a, b| (&a.key, a.epoch).cmp(&(&b.key, b.epoch)));
        write_trained(&path, &all)
    }

    /// Reads the transitions of a step.
    pub fn read_step(&self, step: u64) -> Result<Vec<Transition>, Error> {
        read_transitions(&RunFolder::step_file(self.root(), step))
    }

    /// The trace files of the run.
    pub fn traces(&self) -> Traces {
        Traces::for_run(self.root())
    }

    /// Makes the append-only files durable and returns their lengths.
    pub fn sync(&mut self) -> Result<LogLengths, Error> {
        Ok(LogLengths {
            metrics: self.metrics.sync()?,
            timings: self.timings.sync()?,
            failures: self.failures.sync()?,
            events: self.events.sync()?,
            schedule: self.schedule.as_mut().map_or(Ok(0), AppendLog::sync)?,
            versions: self.versions.as_mut().map_or(Ok(0), AppendLog::sync)?,
            designs: self.designs.as_mut().map_or(Ok(0), AppendLog::sync)?,
        })
    }

    /// Draws `curves.png` from `metrics.jsonl`.
    pub fn draw(&self) -> Result<(), Error> {
        draw_curves(&self.root().join(METRICS), &self.root().join(CURVES))
    }
}

/// Writes a line of a file in a run folder that is created with its first line.
fn append_to_new(
    log: &mut Option<AppendLog>,
    root: &Path,
    name: &str,
    line: &impl Serialize,
) -> Result<(), Error> {
    let log = match log {
        Some(log) => log,
        None => {
            let opened = AppendLog::open(&root.join(name), 0)?;
            sync_folder(root)?;
            log.insert(opened)
        }
    };
    log.append(line)
}

/// Returns the place of a file that exists or is to be created, without links and `..`. Returns `None` if its folder is missing.
fn real_path(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_path_buf();
    // As many links as Linux follows.
    for _ in 0..40 {
        let folder = parent(&path).canonicalize().ok()?;
        path = folder.join(path.file_name()?);
        match fs::read_link(&path) {
            Ok(target) => path = folder.join(target),
            Err(_) => return Some(path),
        }
    }
    None
}

fn is_zero(length: &u64) -> bool {
    *length == 0
}

/// Parses the name of a file in `steps` or `tokens`. Returns `None` for files that are not the run's.
fn step_of_table(name: &str) -> Option<u64> {
    parse_step(name.strip_suffix(".parquet")?)
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(Error::json(path))?;
    bytes.push(b'\n');
    write_atomically(path, &bytes)
}

#[cfg(test)]
mod tests;
