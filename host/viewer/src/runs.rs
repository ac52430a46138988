//! Finding run folders and summarising them.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use pl_record::RunFolder;
use serde::Serialize;
use serde_json::{Map, Value};
use walkdir::WalkDir;

use crate::error::Error;

/// Depth below a given folder at which runs are found: `runs/SWEEP/RUN`.
const DEPTH: usize = 3;

/// Largest number of files that one search looks at.
const LARGEST_SEARCH: usize = 100_000;

/// Bytes at the end of a log in which its last lines are looked for.
const TAIL: u64 = 256 << 10;

/// A run folder with the name under which requests ask for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FoundRun {
    pub(crate) name: String,
    pub(crate) root: PathBuf,
}

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// A process of this machine writes into the folder.
    Running,
    /// All steps are done.
    Finished,
    /// Steps are left, and no process of this machine writes into the folder.
    Stopped,
}

/// Summary of a run.
#[derive(Debug, Clone, Serialize)]
pub struct RunSummary {
    /// Name under which requests ask for the run.
    pub name: String,
    /// Folder.
    pub folder: String,
    /// Name of the workflow.
    pub workflow: Option<String>,
    pub state: RunState,
    /// Last finished step.
    pub step: u64,
    /// Planned steps.
    pub steps: Option<u64>,
    pub seed: Option<u64>,
    pub device: Option<String>,
    /// Name and success, between 0 and 1, of the last evaluation.
    pub evaluation: Option<(String, f64)>,
    /// Success of the rollouts in the last step.
    pub success: Option<f64>,
    /// Time of the last change of the metrics, in seconds since 1970.
    pub changed: Option<u64>,
    /// Problem with one of the files.
    pub problem: Option<String>,
}

/// Finds the run folders among and below some folders, sorted by name. Links are not followed.
pub(crate) fn find(folders: &[PathBuf]) -> Vec<FoundRun> {
    let mut found: Vec<FoundRun> = Vec::new();
    for folder in folders {
        let mut walk = WalkDir::new(folder).max_depth(DEPTH).sort_by_file_name().into_iter();
        let mut seen = 0;
        while let Some(entry) = walk.next() {
            seen += 1;
            if seen > LARGEST_SEARCH {
                break;
            }
            let Ok(entry) = entry else { continue };
            if !entry.file_type().is_dir() && entry.depth() > 0 || !is_run(entry.path()) {
                continue;
            }
            walk.skip_current_dir();
            if found.iter().any(|run| run.root == entry.path()) {
                continue;
            }
            let name = unused_name(name(folder, entry.path()), &found);
            found.push(FoundRun { name, root: entry.into_path() });
        }
    }
    found
}

/// Summarises the runs of a folder, sorted by name.
///
/// # Errors
/// [`Error::NoRuns`] if there are none.
pub fn list_runs(folder: &Path) -> Result<Vec<RunSummary>, Error> {
    let runs = find(&[folder.to_path_buf()]);
    if runs.is_empty() {
        return Err(Error::NoRuns { path: folder.to_path_buf() });
    }
    Ok(runs.iter().map(summarise).collect())
}

fn is_run(path: &Path) -> bool {
    path.join("workflow.json").symlink_metadata().is_ok_and(|file| file.is_file())
}

/// Returns the path of a run below the folder that was given, or the folder's name if it is a run itself.
fn name(folder: &Path, run: &Path) -> String {
    let below = run.strip_prefix(folder).ok().filter(|below| !below.as_os_str().is_empty());
    let name = below.map_or_else(
        || {
            let absolute = run.canonicalize().unwrap_or_else(|_| run.to_path_buf());
            absolute.file_name().unwrap_or(absolute.as_os_str()).to_string_lossy().into_owned()
        },
        |below| below.to_string_lossy().into_owned(),
    );
    if name.is_empty() { "run".to_owned() } else { name }
}

fn unused_name(name: String, taken: &[FoundRun]) -> String {
    let is_taken = |name: &str| taken.iter().any(|run| run.name == name);
    if !is_taken(&name) {
        return name;
    }
    let mut numbers = 2u32..;
    numbers.find_map(|n| Some(format!("{name}~{n}")).filter(|name| !is_taken(name))).unwrap_or(name)
}

/// Returns the path of a file of a run.
///
/// # Errors
/// [`Error::Link`] if the file, or a folder on the way to it, is a link: the folder may come from anywhere.
pub(crate) fn inside(root: &Path, parts: &[&str]) -> Result<PathBuf, Error> {
    let mut path = root.to_path_buf();
    for part in parts {
        path.push(part);
        if path.symlink_metadata().is_ok_and(|file| file.is_symlink()) {
            return Err(Error::Link { path });
        }
    }
    Ok(path)
}

/// Reads a JSON file of a run as an object.
pub(crate) fn read_object(root: &Path, name: &str) -> Result<Map<String, Value>, Error> {
    inside(root, &[name])?;
    Ok(RunFolder::read_json(root, name)?)
}

/// Reads the workflow of a run as JSON. It is not checked.
pub(crate) fn read_workflow(root: &Path) -> Result<Map<String, Value>, Error> {
    let mut stored = read_object(root, "workflow.json")?;
    match stored.remove("workflow") {
        Some(Value::Object(workflow)) => Ok(workflow),
        _ => Ok(Map::new()),
    }
}

/// Summarises a run. A file that can't be read becomes a problem of the summary.
pub(crate) fn summarise(run: &FoundRun) -> RunSummary {
    let mut problem = None;
    let mut note = |error: Error| problem = Some(error.to_string());
    let workflow = read_workflow(&run.root).map_err(&mut note).unwrap_or_default();
    let lock = inside(&run.root, &["lock.json"])
        .and_then(|_| Ok(RunFolder::read_lock(&run.root)?))
        .map_err(&mut note)
        .ok();
    let last = last_lines(&run.root).map_err(&mut note).unwrap_or_default();
    let steps = workflow.get("train").and_then(|train| train.get("steps")?.as_u64());
    let step = last.step.as_ref().and_then(|line| line.get("step")?.as_u64()).unwrap_or(0);
    let state = match (RunFolder::writer(&run.root), steps) {
        (Some(_), _) => RunState::Running,
        (None, Some(steps)) if step >= steps => RunState::Finished,
        _ => RunState::Stopped,
    };
    let success = |line: &Value| line.get("success").and_then(Value::as_f64);
    RunSummary {
        name: run.name.clone(),
        folder: run.root.display().to_string(),
        workflow: workflow.get("name").and_then(Value::as_str).map(str::to_owned),
        state,
        step,
        steps,
        seed: lock.as_ref().map(|lock| lock.seed),
        device: lock.map(|lock| lock.device),
        evaluation: last
            .evaluation
            .as_ref()
            .and_then(|line| Some((line.get("name")?.as_str()?.to_owned(), success(line)?))),
        success: last.step.as_ref().and_then(|line| line.get("rollout_success")?.as_f64()),
        changed: last.changed,
        problem,
    }
}

/// Last lines of each kind in the metrics of a run.
#[derive(Default)]
struct LastLines {
    step: Option<Value>,
    evaluation: Option<Value>,
    changed: Option<u64>,
}

/// Reads the end of the metrics. Lines that are not complete are left out; a run without metrics has none.
fn last_lines(root: &Path) -> Result<LastLines, Error> {
    let path = inside(root, &["metrics.jsonl"])?;
    let Ok(metadata) = path.metadata() else { return Ok(LastLines::default()) };
    if !metadata.is_file() {
        return Ok(LastLines::default());
    }
    let changed = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let mut last = LastLines { changed: changed.map(|time| time.as_secs()), ..LastLines::default() };
    let mut file = File::open(&path).map_err(Error::io(&path))?;
    file.seek(SeekFrom::Start(metadata.len().saturating_sub(TAIL))).map_err(Error::io(&path))?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).map_err(Error::io(&path))?;
    for line in bytes.split(|byte| *byte == b'\n').rev() {
        let Ok(line) = serde_json::from_slice::<Value>(line) else { continue };
        match line.get("kind").and_then(Value::as_str) {
            Some("step") if last.step.is_none() => last.step = Some(line),
            Some("evaluation") if last.evaluation.is_none() => last.evaluation = Some(line),
            _ => {}
        }
        if last.step.is_some() && last.evaluation.is_some() {
            break;
        }
    }
    Ok(last)
}
