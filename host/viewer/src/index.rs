//! Indexes of trace files: a short row per attempt at an episode, built when a file is first needed and kept
//! within a bound.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use crate::error::Error;
use crate::event::{Counts, Kind, RewardWeights, Texts};
use crate::rows::{AgentRow, EpisodeRow, row};
use crate::trace_file::{IndexedFile, READ_LIMITS, path, read_all};

/// Bytes of a row besides its texts, and of its place in a list.
const ROW_BYTES: usize = 128;

/// Index of a trace file.
#[derive(Debug)]
pub(crate) struct FileIndex {
    pub(crate) rows: Vec<EpisodeRow>,
    /// Lines that can't be read, with the file.
    pub(crate) problems: Vec<String>,
    bytes: usize,
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
    state: Mutex<CacheState>,
    /// Held while a file is read: one at a time bounds the memory.
    reading: Mutex<()>,
    reads: AtomicU64,
}

#[derive(Debug, Default)]
struct CacheState {
    contents: HashMap<FileState, (Content, u64)>,
    bytes: usize,
    clock: u64,
}

impl IndexCache {
    pub(crate) fn new(limit: usize) -> IndexCache {
        IndexCache { limit, state: Mutex::default(), reading: Mutex::default(), reads: AtomicU64::new(0) }
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
        let mut kept = self.state.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut kept = self.state.lock().unwrap_or_else(PoisonError::into_inner);
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

/// Builds the index of a file. A file that can't be read has a problem and no rows: it is not read again until it
/// changes.
fn build(file: &IndexedFile, weights: RewardWeights) -> FileIndex {
    let (mut rows, mut names, mut bytes) = (Vec::new(), Vec::<Arc<str>>::new(), ROW_BYTES);
    let problems = read_all::<Counts>(file, READ_LIMITS, |position, trace| {
        let row = row(position, &trace, weights, &mut names);
        let texts = row.task_id.len() + row.failure.as_ref().map_or(0, |failure| failure.len());
        bytes += ROW_BYTES + texts + std::mem::size_of::<AgentRow>() * row.agents.len();
        rows.push(row);
    });
    FileIndex { rows, problems: problems.unwrap_or_else(|error| vec![error.to_string()]), bytes }
}

/// Returns the positions of the episodes with a text. The problems of the file are in its index.
fn search(file: &IndexedFile, text: &str) -> Vec<u32> {
    let wanted = text.to_lowercase();
    let has = |text: &str| text.to_lowercase().contains(&wanted);
    let mut found = Vec::new();
    let _ = read_all::<Texts>(file, READ_LIMITS, |position, trace| {
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

#[cfg(test)]
mod tests {
    use pl_record::{TraceFile, Traces};

    use super::*;
    use crate::trace_file::ReadLimits;

    const LINES: usize = 5;

    /// A file of a few short episodes.
    fn file(run: &std::path::Path, step: u64) -> IndexedFile {
        let line = serde_json::json!({
            "key": { "seed": 0, "phase": "train", "step": step, "task": 0, "sample": 0, "attempt": 0 },
            "task": { "id": "one", "data": "{}" }, "mode": "flat", "events": [],
            "end": { "success": true, "truncated": false, "turns": 1, "tokens": 1 },
        });
        let file = IndexedFile { run: run.to_path_buf(), file: TraceFile { step, evaluation: None } };
        std::fs::create_dir_all(run.join("traces")).unwrap();
        Traces::for_run(run).write(&file.file, &vec![line; LINES]).unwrap();
        file
    }

    #[test]
    fn the_least_recently_used_index_makes_room() {
        let run = tempfile::tempdir().unwrap();
        let weights = RewardWeights { team: 1.0, local: 1.0 };
        let [a, b, c] = [1, 2, 3].map(|step| file(run.path(), step));
        let cache = IndexCache::new(2 * build(&a, weights).bytes());
        let read = |file| cache.index(file, weights).map(|index| (index.rows.len(), cache.reads())).unwrap();
        assert_eq!([read(&a), read(&b), read(&a)], [(LINES, 1), (LINES, 2), (LINES, 2)]);
        assert_eq!(read(&c), (LINES, 3), "in the place of the second");
        assert_eq!([read(&a), read(&b)], [(LINES, 3), (LINES, 4)]);
    }

    #[test]
    fn a_file_is_read_up_to_its_bounds() {
        let run = tempfile::tempdir().unwrap();
        let file = file(run.path(), 1);
        let read = |bytes, lines| {
            let mut count = 0;
            let result = read_all::<Counts>(&file, ReadLimits { bytes, lines }, |_, _| count += 1);
            (count, result.map_err(|error| error.to_string()))
        };
        assert_eq!(read(1 << 20, 5), (LINES, Ok(Vec::new())));
        let (count, result) = read(1 << 20, 2);
        assert!(count == 2 && result.is_err_and(|error| error.contains("more than 2 episodes")));
        let (count, result) = read(300, 5);
        assert!(count == 1 && result.is_err_and(|error| error.contains("000001.jsonl.zst")));
    }
}
