//! Indexes of trace files: a short row per attempt at an episode, built when a file is first needed and kept
//! within a bound.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use pl_record::{TraceFile, Traces};
use serde::Serialize;

use crate::error::Error;
use crate::event::{Counts, Detail, Kind, Mode, RewardWeights, Texts, TraceRecord};
use crate::runs::inside;

/// Largest decompressed size of a trace file. Compression makes a file of 1 MB of 8 GiB of one letter.
const LARGEST_FILE: u64 = 8 << 30;

/// Longest failure that an index keeps, in characters.
const LONGEST_FAILURE: usize = 200;

/// Bytes of a row besides its texts, and of its place in a list.
const ROW_BYTES: usize = 128;

/// Attempt at an episode, as a line of a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EpisodeRow {
    /// Position in the trace file, from 0.
    #[serde(skip)]
    pub(crate) position: u32,
    pub(crate) task: u32,
    pub(crate) sample: u32,
    pub(crate) attempt: u32,
    pub(crate) task_id: Box<str>,
    pub(crate) tree: bool,
    pub(crate) success: bool,
    pub(crate) truncated: bool,
    pub(crate) turns: u32,
    pub(crate) tokens: u64,
    /// Mean reward over all samples. `None` if nothing was scored.
    pub(crate) reward: Option<f32>,
    /// First line of the failure.
    pub(crate) failure: Option<Box<str>>,
    /// Number of failed candidates of a tree.
    pub(crate) failed_candidates: u32,
    pub(crate) agents: Box<[AgentRow]>,
}

/// Part of an agent in an attempt.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct AgentRow {
    pub(crate) name: Arc<str>,
    /// Number of completions.
    pub(crate) completions: u32,
    pub(crate) tokens: u64,
    /// Mean reward of the completions.
    pub(crate) reward: Option<f32>,
}

/// Index of a trace file.
#[derive(Debug)]
pub(crate) struct FileIndex {
    pub(crate) rows: Vec<EpisodeRow>,
    /// Lines that can't be read, with the file.
    pub(crate) problems: Vec<String>,
    bytes: usize,
}

/// A trace file of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct IndexedFile {
    pub(crate) run: PathBuf,
    pub(crate) file: TraceFile,
}

/// A file in a state: a run that is started again replaces its files.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FileState {
    path: PathBuf,
    length: u64,
    modified: Option<SystemTime>,
    /// Text that the positions of `Found` have. Empty for an index.
    text: String,
}

/// Result of reading a file once.
#[derive(Debug, Clone)]
enum Content {
    Index(Arc<FileIndex>),
    /// Positions of the episodes with a text.
    Found(Arc<Vec<u32>>),
}

impl Content {
    fn bytes(&self) -> usize {
        match self {
            Content::Index(index) => index.bytes,
            Content::Found(positions) => 64 + 4 * positions.len(),
        }
    }
}

/// Indexes that were built. The least recently used ones are dropped when they need more than `limit` bytes.
#[derive(Debug)]
pub(crate) struct IndexCache {
    limit: usize,
    kept: Mutex<Kept>,
    /// Held while a file is read: one at a time bounds the memory.
    reading: Mutex<()>,
    reads: AtomicU64,
}

#[derive(Debug, Default)]
struct Kept {
    contents: HashMap<FileState, (Content, u64)>,
    bytes: usize,
    clock: u64,
}

impl IndexCache {
    pub(crate) fn new(limit: usize) -> IndexCache {
        IndexCache { limit, kept: Mutex::default(), reading: Mutex::default(), reads: AtomicU64::new(0) }
    }

    /// Returns the largest number of bytes of all indexes.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of times that a trace file was read from its start to its end.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Returns the index of a file if it is kept.
    pub(crate) fn kept_index(&self, file: &IndexedFile) -> Result<Option<Arc<FileIndex>>, Error> {
        match self.get(&state(file, "")?) {
            Some(Content::Index(index)) => Ok(Some(index)),
            _ => Ok(None),
        }
    }

    /// Returns the index of a file, and builds it if it is not kept.
    pub(crate) fn index(&self, file: &IndexedFile, weights: RewardWeights) -> Result<Arc<FileIndex>, Error> {
        let state = state(file, "")?;
        let content = self.get_or_read(state, || Content::Index(Arc::new(build(file, weights))));
        match content {
            Content::Index(index) => Ok(index),
            Content::Found(_) => Err(Error::Panicked),
        }
    }

    /// Returns the positions of the episodes of a file with a text if they are kept.
    pub(crate) fn kept_search(&self, file: &IndexedFile, text: &str) -> Result<Option<Arc<Vec<u32>>>, Error> {
        match self.get(&state(file, text)?) {
            Some(Content::Found(positions)) => Ok(Some(positions)),
            _ => Ok(None),
        }
    }

    /// Returns the positions of the episodes whose task, completions or actions have a text, in any case.
    pub(crate) fn search(&self, file: &IndexedFile, text: &str) -> Result<Arc<Vec<u32>>, Error> {
        let state = state(file, text)?;
        let content = self.get_or_read(state, || Content::Found(Arc::new(search(file, text))));
        match content {
            Content::Found(positions) => Ok(positions),
            Content::Index(_) => Err(Error::Panicked),
        }
    }

    fn get(&self, state: &FileState) -> Option<Content> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let clock = kept.clock;
        let (content, used) = kept.contents.get_mut(state)?;
        *used = clock;
        Some(content.clone())
    }

    fn get_or_read(&self, state: FileState, read: impl FnOnce() -> Content) -> Content {
        if let Some(content) = self.get(&state) {
            return content;
        }
        let _reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        // Another request may have read the file meanwhile.
        if let Some(content) = self.get(&state) {
            return content;
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        let content = read();
        self.keep(state, content.clone());
        content
    }

    fn keep(&self, state: FileState, content: Content) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.clock += 1;
        let clock = kept.clock;
        kept.bytes += content.bytes();
        if let Some((old, _)) = kept.contents.insert(state, (content, clock)) {
            kept.bytes -= old.bytes();
        }
        while kept.bytes > self.limit {
            let oldest = kept.contents.iter().min_by_key(|(_, (_, used))| *used);
            let Some(oldest) = oldest.map(|(state, _)| state.clone()) else { break };
            if let Some((old, _)) = kept.contents.remove(&oldest) {
                kept.bytes -= old.bytes();
            }
        }
    }
}

impl FileIndex {
    /// Returns the bytes that the index needs.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

fn state(file: &IndexedFile, text: &str) -> Result<FileState, Error> {
    let path = path(file)?;
    let metadata = path.metadata().map_err(Error::io(&path))?;
    Ok(FileState { length: metadata.len(), modified: metadata.modified().ok(), path, text: text.to_owned() })
}

/// Returns the path of a trace file that is no link.
pub(crate) fn path(file: &IndexedFile) -> Result<PathBuf, Error> {
    let path = Traces::for_run(&file.run).path(&file.file);
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    inside(&file.run, &["traces", &name])
}

/// Reads every line of a trace file. Lines that can't be read become problems.
pub(crate) fn read_all<D: Detail>(
    file: &IndexedFile,
    mut each: impl FnMut(u32, TraceRecord<D>),
) -> Result<Vec<String>, Error> {
    let path = path(file)?;
    let (mut problems, mut bytes) = (Vec::new(), 0);
    for (position, line) in (0u32..).zip(Traces::for_run(&file.run).lines(&file.file)?) {
        let line = match line {
            Ok(line) => line,
            // What was read up to here is shown; the reader ends at such an error.
            Err(error) => {
                problems.push(error.to_string());
                break;
            }
        };
        bytes += line.text.len() as u64;
        if bytes > LARGEST_FILE {
            return Err(Error::TooLarge { path, limit: LARGEST_FILE, unit: "decompressed bytes" });
        }
        match serde_json::from_slice(&line.text) {
            Ok(trace) => each(position, trace),
            Err(error) if problems.len() < 20 => {
                problems.push(format!("{}:{}: {error}", path.display(), line.number));
            }
            Err(_) => {}
        }
    }
    Ok(problems)
}

/// Builds the index of a file. A file that can't be read has a problem and no rows: it is not read again until it
/// changes.
fn build(file: &IndexedFile, weights: RewardWeights) -> FileIndex {
    let (mut rows, mut names, mut bytes) = (Vec::new(), Vec::<Arc<str>>::new(), ROW_BYTES);
    let problems = read_all::<Counts>(file, |position, trace| {
        let row = row(position, &trace, weights, &mut names);
        let texts = row.task_id.len() + row.failure.as_ref().map_or(0, |failure| failure.len());
        bytes += ROW_BYTES + texts + std::mem::size_of::<AgentRow>() * row.agents.len();
        rows.push(row);
    });
    FileIndex { rows, problems: problems.unwrap_or_else(|error| vec![error.to_string()]), bytes }
}

/// Sums of one agent.
#[derive(Default)]
struct AgentSums {
    completions: u32,
    tokens: u64,
    rewards: f64,
    scored: u32,
}

fn row(
    position: u32,
    trace: &TraceRecord<Counts>,
    weights: RewardWeights,
    names: &mut Vec<Arc<str>>,
) -> EpisodeRow {
    let mut sums: Vec<(Arc<str>, AgentSums)> = Vec::new();
    // Agents whose completions are not scored yet.
    let mut acting: Vec<usize> = Vec::new();
    let mut failed_candidates = 0;
    for event in &trace.events {
        match (&event.kind, &event.position.agent) {
            (Kind::Completion(completion), Some(agent)) => {
                let index = match sums.iter().position(|(name, _)| **name == **agent) {
                    Some(index) => index,
                    None => {
                        sums.push((shared(names, agent), AgentSums::default()));
                        sums.len() - 1
                    }
                };
                if let Some((_, sums)) = sums.get_mut(index) {
                    sums.completions += 1;
                    sums.tokens += completion.tokens.0 as u64;
                }
                acting.push(index);
            }
            (Kind::Scores(scores), _) => {
                acting.sort_unstable();
                acting.dedup();
                for index in acting.drain(..) {
                    if let Some((name, sums)) = sums.get_mut(index) {
                        sums.rewards += weights.reward(scores, name);
                        sums.scored += 1;
                    }
                }
            }
            (Kind::Fault(_), _) => {
                failed_candidates += u32::from(event.position.candidate.is_some());
                acting.clear();
            }
            _ => {}
        }
    }
    let mean = |rewards: f64, scored: u32| (scored > 0).then(|| (rewards / f64::from(scored)) as f32);
    let all = sums.iter().fold((0.0, 0), |(r, n), (_, sums)| (r + sums.rewards, n + sums.scored));
    let end = &trace.end;
    let first_line = |text: &String| -> Box<str> {
        text.lines().next().unwrap_or_default().chars().take(LONGEST_FAILURE).collect::<String>().into()
    };
    EpisodeRow {
        position,
        task: trace.key.task,
        sample: trace.key.sample,
        attempt: trace.key.attempt,
        task_id: trace.task.id.as_str().into(),
        tree: trace.mode == Mode::Tree,
        success: end.success,
        truncated: end.truncated,
        turns: end.turns,
        tokens: end.tokens,
        reward: mean(all.0, all.1),
        failure: end.failure.as_ref().map(first_line),
        failed_candidates,
        agents: sums
            .into_iter()
            .map(|(name, sums)| AgentRow {
                name,
                completions: sums.completions,
                tokens: sums.tokens,
                reward: mean(sums.rewards, sums.scored),
            })
            .collect(),
    }
}

/// Returns one copy of a name for all rows.
fn shared(names: &mut Vec<Arc<str>>, name: &str) -> Arc<str> {
    if let Some(known) = names.iter().find(|known| ***known == *name) {
        return Arc::clone(known);
    }
    let new: Arc<str> = name.into();
    names.push(Arc::clone(&new));
    new
}

/// Returns the positions of the episodes with a text. The problems of the file are in its index.
fn search(file: &IndexedFile, text: &str) -> Vec<u32> {
    let wanted = text.to_lowercase();
    let has = |text: &str| text.to_lowercase().contains(&wanted);
    let mut found = Vec::new();
    let _ = read_all::<Texts>(file, |position, trace| {
        let in_event = |kind: &Kind<Texts>| match kind {
            Kind::Completion(completion) => has(&completion.text),
            Kind::Action(action) => has(action),
            Kind::Fault(fault) => has(&fault.cause),
            _ => false,
        };
        if has(&trace.task.id) || has(&trace.task.data) || trace.events.iter().any(|e| in_event(&e.kind)) {
            found.push(position);
        }
    });
    found
}
