//! Indexes of trace files: a short row per attempt at an episode, read from the end of a file when it is first needed, and
//! kept within a bound. Of files that have no rows, every line is read.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use pl_record::{AgentSummary, EpisodeSummaries, EpisodeSummary, Traces};

use crate::error::Error;
use crate::event::{Kind, Texts, TraceRecord};
use crate::trace_file::{IndexedFile, READ_LIMITS, path, read_all};

/// Bytes of a file's entry besides its rows.
const ENTRY_BYTES: usize = 512;

/// Bytes that an allocation has besides its content.
const ALLOCATION_BYTES: usize = 16;

/// Index of a trace file.
#[derive(Debug, Default)]
pub(crate) struct FileIndex {
    pub(crate) summaries: EpisodeSummaries,
    /// Line of each row. Empty if every line has a row.
    lines: Vec<u32>,
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

    /// Returns the index of a file if it is kept, or the file has rows.
    pub(crate) fn recorded_index(&self, file: &IndexedFile) -> Result<Option<Arc<FileIndex>>, Error> {
        let state = state(file, "")?;
        if let Some(Content::Index(index)) = self.get(&state) {
            return Ok(Some(index));
        }
        // Damaged files are read up to the damage.
        let Ok(Some(summaries)) = Traces::for_run(&file.run).summaries(&file.file) else { return Ok(None) };
        let index = Arc::new(FileIndex::new(summaries, Vec::new(), Vec::new()));
        self.keep(state, Content::Index(Arc::clone(&index)));
        Ok(Some(index))
    }

    /// Returns the index of a file, and reads the file from its start to its end if nothing shorter leads to it.
    pub(crate) fn index(&self, file: &IndexedFile) -> Result<Arc<FileIndex>, Error> {
        if let Some(index) = self.recorded_index(file)? {
            return Ok(index);
        }
        let content = self.get_or_read(state(file, "")?, || Content::Index(Arc::new(build(file))));
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
        let mut kept = self.state.lock();
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
        let _reading = self.reading.lock();
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
        let mut kept = self.state.lock();
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
    fn new(mut summaries: EpisodeSummaries, lines: Vec<u32>, problems: Vec<String>) -> FileIndex {
        summaries.rows.shrink_to_fit();
        let bytes = ENTRY_BYTES + 4 * lines.len() + summaries.rows.iter().map(bytes_of).sum::<usize>();
        FileIndex { summaries, lines, problems, bytes }
    }

    /// Returns the number of a row's line, from 0.
    pub(crate) fn line(&self, row: usize) -> u32 {
        self.lines.get(row).copied().unwrap_or(row as u32)
    }

    /// Returns the bytes that the index needs.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Returns the bytes that a row needs.
fn bytes_of(row: &EpisodeSummary) -> usize {
    let texts =
        row.task_id.len() + row.failure.as_ref().map_or(0, |failure| failure.len() + ALLOCATION_BYTES);
    let agents = row.agents.len() * size_of::<AgentSummary>();
    size_of::<EpisodeSummary>() + texts + agents + 2 * ALLOCATION_BYTES
}

fn state(file: &IndexedFile, text: &str) -> Result<FileState, Error> {
    let path = path(file)?;
    let metadata = path.metadata().map_err(Error::io(&path))?;
    Ok(FileState { length: metadata.len(), modified: metadata.modified().ok(), path, text: text.to_owned() })
}

/// Builds the index of a file from its lines. A file that can't be read has a problem and no rows: it is not read again
/// until it changes.
fn build(file: &IndexedFile) -> FileIndex {
    let (mut summaries, mut lines) = (EpisodeSummaries::default(), Vec::new());
    let problems = read_all(file, READ_LIMITS, |position, line| {
        summaries.add(line)?;
        lines.push(position);
        Ok(())
    });
    FileIndex::new(summaries, lines, problems.unwrap_or_else(|error| vec![error.to_string()]))
}

/// Returns the positions of the episodes with a text. The problems of the file are in its index.
fn search(file: &IndexedFile, text: &str) -> Vec<u32> {
    let wanted = text.to_lowercase();
    let has = |text: &str| text.to_lowercase().contains(&wanted);
    let mut found = Vec::new();
    let _ = read_all(file, READ_LIMITS, |position, line| {
        let trace: TraceRecord<Texts> = serde_json::from_slice(line)?;
        let in_event = |kind: &Kind<Texts>| match kind {
            Kind::Completion(completion) => has(&completion.text),
            Kind::Action(action) => has(action),
            Kind::ToolResults(results) => results.iter().any(|result| has(result)),
            Kind::Fault(fault) => has(&fault.cause),
            _ => false,
        };
        if has(&trace.task.id) || has(&trace.task.data) || trace.events.iter().any(|e| in_event(&e.kind)) {
            found.push(position);
        }
        Ok(())
    });
    found
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use pl_record::{TraceFile, Traces};

    use super::*;
    use crate::trace_file::ReadLimits;

    const LINES: usize = 5;

    /// A file of a few short episodes. Files of earlier versions have no rows.
    fn file(run: &std::path::Path, step: u64, has_rows: bool) -> IndexedFile {
        let line = serde_json::json!({
            "key": { "seed": 0, "phase": "train", "step": step, "task": 0, "sample": 0, "attempt": 0 },
            "task": { "id": "one", "data": "{}" }, "mode": "flat", "events": [],
            "end": { "success": true, "truncated": false, "turns": 1, "tokens": 1 },
        });
        let file = IndexedFile { run: run.to_path_buf(), file: TraceFile { step, evaluation: None } };
        std::fs::create_dir_all(run.join("traces")).unwrap();
        let traces = Traces::for_run(run);
        if has_rows {
            traces.write(&file.file, &vec![line; LINES]).unwrap();
        } else {
            let mut text = "{\"format\":2}\n{\"damaged\":true}\n".to_owned();
            (0..LINES).for_each(|_| writeln!(text, "{line}").unwrap());
            std::fs::write(traces.path(&file.file), zstd::encode_all(text.as_bytes(), 0).unwrap()).unwrap();
        }
        file
    }

    #[test]
    fn the_least_recently_used_index_makes_room() {
        let run = tempfile::tempdir().unwrap();
        let [a, b, c] = [1, 2, 3].map(|step| file(run.path(), step, false));
        let cache = IndexCache::new(2 * build(&a).bytes());
        let read = |file| cache.index(file).map(|index| (index.summaries.rows.len(), cache.reads())).unwrap();
        assert_eq!([read(&a), read(&b), read(&a)], [(LINES, 1), (LINES, 2), (LINES, 2)]);
        assert_eq!(read(&c), (LINES, 3), "in the place of the second");
        assert_eq!([read(&a), read(&b)], [(LINES, 3), (LINES, 4)]);
    }

    #[test]
    fn files_without_rows_get_the_same_rows_from_their_lines() {
        let run = tempfile::tempdir().unwrap();
        let [recorded, earlier] =
            [(1, true), (2, false)].map(|(step, has_rows)| file(run.path(), step, has_rows));
        let cache = IndexCache::new(1 << 20);
        let index = cache.index(&recorded).unwrap();
        assert_eq!((cache.reads(), index.line(4)), (0, 4), "only the rows were read");
        assert!(cache.recorded_index(&earlier).unwrap().is_none());
        let built = cache.index(&earlier).unwrap();
        assert_eq!(built.summaries, index.summaries);
        // The damaged line has no row.
        assert_eq!((cache.reads(), built.line(4)), (1, 5));
        assert!(built.problems[0].contains("000002.jsonl.zst:2"), "{:?}", built.problems);
    }

    #[test]
    fn a_file_is_read_up_to_its_bounds() {
        let run = tempfile::tempdir().unwrap();
        let file = file(run.path(), 1, true);
        let read = |bytes, lines| {
            let mut count = 0;
            let result = read_all(&file, ReadLimits { bytes, lines }, |_, _| {
                count += 1;
                Ok(())
            });
            (count, result.map_err(|error| error.to_string()))
        };
        assert_eq!(read(1 << 20, 5), (LINES, Ok(Vec::new())));
        let (count, result) = read(1 << 20, 2);
        assert!(count == 2 && result.is_err_and(|error| error.contains("more than 2 episodes")));
        let (count, result) = read(300, 5);
        assert!(count == 1 && result.is_err_and(|error| error.contains("000001.jsonl.zst")));
    }
}
