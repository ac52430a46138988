//! Trace files: every attempt at an episode, one compressed file of JSON lines per step and per evaluation.
//!
//! Episodes of one task share long texts (the task, prompts, evidence): the compressor's window spans a frame of
//! several megabytes, so that each text is stored about once. An index at the end of the file leads to single lines, and
//! has a row of each ([`crate::trace_index`]); files of earlier versions are one frame without an index, or have no rows.
//!
//! The first line is `{"format":2}`, with `"indexed":true` if the file has an index. The number changes with the
//! serialised names of the traces. Files of format 1 have no such line.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::atomic::write_atomically;
use crate::episode_summary::EpisodeSummaries;
use crate::error::Error;
use crate::own_files::parse_step;
use crate::trace_index::{TraceIndex, encode_rows, index_length, read_rows};

/// Format of the trace files that are written and read.
pub const TRACE_FORMAT: u32 = 2;

/// Compression level. Higher levels cost more time than the saved bytes are worth.
const LEVEL: i32 = 3;

/// Base-two logarithm of the compressor's window: 16 MiB.
const WINDOW: u32 = 24;

/// Text of a frame, in bytes, after which the next line begins another one. It is what a reader of one line has to
/// decompress, in some milliseconds.
const FRAME: usize = 8 << 20;

/// Longest line that is read, in bytes. Compression makes a file of 260 kB of a line of 8 GiB.
const LONGEST_LINE: u64 = 64 << 20;

/// Longest first line that is read. A trace of format 1 is longer.
const LONGEST_HEADER: u64 = 256;

/// Extension, after the step and the name of the evaluation.
const EXTENSION: &str = ".jsonl.zst";

/// The first line of a trace file.
#[derive(Serialize, Deserialize)]
struct Header {
    format: u32,
    /// True if the file ends with an index. A file without it is truncated then.
    #[serde(default)]
    indexed: bool,
}

/// The trace files of a run.
#[derive(Debug, Clone)]
pub struct Traces {
    run: PathBuf,
}

/// The step, and the evaluation after it, that a trace file belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceFile {
    pub step: u64,
    /// `None` for the episodes of the step itself.
    pub evaluation: Option<String>,
}

impl Traces {
    /// The trace files of a run folder.
    pub fn for_run(run: &Path) -> Traces {
        Traces { run: run.to_path_buf() }
    }

    /// The run folder.
    pub fn run(&self) -> &Path {
        &self.run
    }

    /// The folder of the files.
    pub fn folder(&self) -> PathBuf {
        self.run.join("traces")
    }

    /// The path of a file.
    pub fn path(&self, file: &TraceFile) -> PathBuf {
        let name = file.evaluation.as_ref().map(|name| format!("-{name}")).unwrap_or_default();
        self.folder().join(format!("{:06}{name}{EXTENSION}", file.step))
    }

    /// All files, sorted by step; the evaluations after a step follow it. Empty for a run without the folder.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn files(&self) -> Result<Vec<TraceFile>, Error> {
        let folder = self.folder();
        if !folder.is_dir() {
            return Ok(Vec::new());
        }
        let mut files = Vec::new();
        for entry in fs::read_dir(&folder).map_err(Error::io("read", &folder))? {
            let path = entry.map_err(Error::io("read", &folder))?.path();
            files.extend(TraceFile::from_path(&path));
        }
        files.sort();
        Ok(files)
    }

    /// Writes a file atomically. Equal traces give equal bytes.
    ///
    /// # Errors
    /// [`Error::Io`]; also if a trace lacks what its row has.
    pub fn write(&self, file: &TraceFile, traces: &[impl Serialize]) -> Result<(), Error> {
        let path = self.path(file);
        let bytes = encode(traces).map_err(Error::io("write", &path))?;
        write_atomically(&path, &bytes)
    }

    /// Reads the traces of a file one by one, so that a caller holds no more of them than it needs. The
    /// iterator ends after its first error of the file system and after a line that is too long.
    ///
    /// # Errors
    /// [`Error::Io`] if the file is missing, or truncated; [`Error::TraceFormat`] if it has another format;
    /// for each line that is invalid, [`Error::Line`].
    pub fn read<T: DeserializeOwned>(
        &self,
        file: &TraceFile,
    ) -> Result<impl Iterator<Item = Result<T, Error>> + use<T>, Error> {
        let path = self.path(file);
        Ok(self.lines(file)?.map(move |line| {
            let TraceLine { number, text } = line?;
            serde_json::from_slice(&text).map_err(|error| Error::Line {
                path: path.clone(),
                line: number,
                message: error.to_string(),
            })
        }))
    }

    /// Reads the lines of a file after its first one, as they are. The iterator ends after its first error.
    ///
    /// # Errors
    /// [`Error::Io`] if the file is missing, or truncated; [`Error::TraceFormat`] if it has another format;
    /// [`Error::Line`] for a line that is too long.
    pub fn lines(
        &self,
        file: &TraceFile,
    ) -> Result<impl Iterator<Item = Result<TraceLine, Error>> + use<>, Error> {
        let path = self.path(file);
        // Opening a pipe would wait for a writer.
        if path.exists() && !path.is_file() {
            return Err(Error::io("read", &path)(std::io::Error::other("it is not a file")));
        }
        let opened = fs::File::open(&path).map_err(Error::io("read", &path))?;
        let mut reader = decoder(opened).map_err(Error::io("read", &path))?;
        let header = read_line(&mut reader, LONGEST_HEADER).map_err(Error::io("read", &path))?;
        let header = check_format(&path, header.as_deref().unwrap_or_default())?;
        let mut numbers = 2..;
        let mut ended = false;
        Ok(std::iter::from_fn(move || {
            if ended {
                return None;
            }
            let number = numbers.next()?;
            match read_line(&mut reader, LONGEST_LINE) {
                Ok(Some(text)) if text.len() as u64 > LONGEST_LINE => {
                    ended = true;
                    let message = format!("longer than {} MiB", LONGEST_LINE >> 20);
                    Some(Err(Error::Line { path: path.clone(), line: number, message }))
                }
                Ok(Some(text)) => Some(Ok(TraceLine { number, text })),
                end => {
                    ended = true;
                    let end = end.and_then(|_| if header.indexed { check_whole(&path) } else { Ok(()) });
                    end.err().map(|error| Err(Error::io("read", &path)(error)))
                }
            }
        }))
    }
}

impl Traces {
    /// Reads the index of a file. Returns `None` for files of earlier versions.
    ///
    /// # Errors
    /// [`Error::Io`] if the file is missing.
    pub fn index(&self, file: &TraceFile) -> Result<Option<TraceIndex>, Error> {
        let path = self.path(file);
        open(&path).and_then(|mut opened| TraceIndex::read(&mut opened)).map_err(Error::io("read", &path))
    }

    /// Reads the rows of a file without its lines. Returns `None` for files of earlier versions, and for damaged ones.
    ///
    /// # Errors
    /// [`Error::Io`] if the file is missing.
    pub fn summaries(&self, file: &TraceFile) -> Result<Option<EpisodeSummaries>, Error> {
        let path = self.path(file);
        open(&path).and_then(|mut opened| read_rows(&mut opened)).map_err(Error::io("read", &path))
    }

    /// Reads a line, counted from 0, by the index of its file.
    ///
    /// # Errors
    /// [`Error::Io`] if the file is damaged; [`Error::Line`] if the index does not lead to such a line, or it is too
    /// long.
    pub fn indexed_line(
        &self,
        file: &TraceFile,
        index: &TraceIndex,
        line: usize,
    ) -> Result<TraceLine, Error> {
        let path = self.path(file);
        // After the header, and counted from 1.
        let number = line + 2;
        let invalid =
            |message: &str| Error::Line { path: path.clone(), line: number, message: message.to_owned() };
        let (offset, skipped) = index.position(line).ok_or_else(|| invalid("the index has no such line"))?;
        let read = || {
            let mut opened = fs::File::open(&path)?;
            opened.seek(SeekFrom::Start(offset))?;
            let mut reader = decoder(opened)?;
            // The first frame begins with the header.
            let skipped = skipped + usize::from(offset == 0);
            for _ in 0..skipped {
                read_line(&mut reader, LONGEST_LINE)?;
            }
            read_line(&mut reader, LONGEST_LINE)
        };
        match read().map_err(Error::io("read", &path))? {
            Some(text) if text.len() as u64 <= LONGEST_LINE => Ok(TraceLine { number, text }),
            Some(_) => Err(invalid("the line is too long")),
            None => Err(invalid("the file ends before the line")),
        }
    }
}

/// Opens a file. Opening a pipe would wait for a writer.
fn open(path: &Path) -> std::io::Result<fs::File> {
    if !path.is_file() {
        return Err(ErrorKind::NotFound.into());
    }
    fs::File::open(path)
}

/// Returns a reader of the text of a file from its position on.
fn decoder(file: fs::File) -> std::io::Result<impl BufRead> {
    let mut decoder = zstd::Decoder::new(file)?;
    decoder.window_log_max(WINDOW)?;
    Ok(BufReader::new(decoder))
}

/// Checks that a file ends with an index: it was not truncated between two frames.
fn check_whole(path: &Path) -> std::io::Result<()> {
    match index_length(&mut fs::File::open(path)?)? {
        Some(_) => Ok(()),
        None => {
            Err(std::io::Error::new(ErrorKind::UnexpectedEof, "the file is truncated: its index is missing"))
        }
    }
}

/// A line of a trace file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceLine {
    /// Its number, from 1. The first line, the format, is not among the lines.
    pub number: usize,
    /// JSON, without the line's end.
    pub text: Vec<u8>,
}

/// Reads a line without its end, or the first `longest + 1` bytes of a longer line. Returns `None` at the end
/// of the file.
fn read_line(reader: &mut impl BufRead, longest: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    if reader.take(longest + 1).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    Ok(Some(line))
}

/// Checks the first line of a file. A line without a format is a trace of format 1.
fn check_format(path: &Path, header: &[u8]) -> Result<Header, Error> {
    let header = serde_json::from_slice::<Header>(header).unwrap_or(Header { format: 1, indexed: false });
    match header.format {
        TRACE_FORMAT => Ok(header),
        found => Err(Error::TraceFormat { path: path.to_path_buf(), found, supported: TRACE_FORMAT }),
    }
}

impl TraceFile {
    /// Parses the name of a trace file. Returns `None` for other files.
    pub(crate) fn from_path(path: &Path) -> Option<TraceFile> {
        let stem = path.file_name()?.to_str()?.strip_suffix(EXTENSION)?;
        let (step, evaluation) = match stem.split_once('-') {
            Some((step, name)) => (step, Some(name.to_owned())),
            None => (stem, None),
        };
        Some(TraceFile { step: parse_step(step)?, evaluation })
    }

    /// Parses the name of a trace file and returns its step. Returns `None` for other files.
    pub(crate) fn step_of(name: &str) -> Option<u64> {
        Some(TraceFile::from_path(Path::new(name))?.step)
    }
}

fn encode(traces: &[impl Serialize]) -> std::io::Result<Vec<u8>> {
    let (mut bytes, mut index) = (Vec::new(), TraceIndex::default());
    let mut summaries = EpisodeSummaries::default();
    let mut text = serde_json::to_vec(&Header { format: TRACE_FORMAT, indexed: true })?;
    text.push(b'\n');
    index.begin_frame(0);
    for trace in traces {
        if text.len() >= FRAME {
            bytes.extend(encode_frame(&text)?);
            text.clear();
            index.begin_frame(bytes.len() as u64);
        }
        let start = text.len();
        serde_json::to_writer(&mut text, trace)?;
        summaries.add(text.get(start..).unwrap_or_default())?;
        index.attempts.extend(summaries.rows.last().map(|row| row.key));
        text.push(b'\n');
    }
    bytes.extend(encode_frame(&text)?);
    bytes.extend(encode_rows(&summaries)?);
    bytes.extend(index.encode());
    Ok(bytes)
}

fn encode_frame(text: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
    encoder.window_log(WINDOW)?;
    encoder.long_distance_matching(true)?;
    encoder.include_checksum(true)?;
    encoder.write_all(text)?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::episode_summary::AttemptKey;

    /// A trace as far as the files know it.
    fn line(task: u32, text: &str) -> Value {
        let key = json!({ "seed": 0, "phase": "train", "step": 1, "task": task, "sample": 2, "attempt": 0 });
        let end = json!({ "success": false, "truncated": false, "turns": 0, "tokens": task });
        let task = json!({ "id": format!("train-{task}") });
        json!({ "key": key, "task": task, "mode": "flat", "events": [], "end": end, "text": text })
    }

    fn folder() -> (tempfile::TempDir, Traces) {
        let run = tempfile::tempdir().unwrap();
        let traces = Traces::for_run(run.path());
        fs::create_dir(traces.folder()).unwrap();
        (run, traces)
    }

    #[test]
    fn written_traces_are_read_and_listed_in_order() {
        let (_run, traces) = folder();
        let file =
            |step, evaluation: Option<&str>| TraceFile { step, evaluation: evaluation.map(str::to_owned) };
        let lines = [line(0, "one\ntwo"), line(1, "🦀")];
        for file in [file(10, Some("held_out")), file(2, None), file(10, None)] {
            traces.write(&file, &lines).unwrap();
        }
        fs::write(traces.folder().join("notes.txt"), "mine").unwrap();
        assert_eq!(traces.files().unwrap(), [file(2, None), file(10, None), file(10, Some("held_out"))]);
        let read: Vec<Value> =
            traces.read(&file(10, Some("held_out"))).unwrap().collect::<Result<_, _>>().unwrap();
        assert_eq!(read, lines);
    }

    #[test]
    fn texts_that_lines_share_are_stored_once() {
        let (_run, traces) = folder();
        let file = TraceFile { step: 1, evaluation: None };
        // Text that is incompressible by itself, and longer than the usual window.
        let mut hasher = blake3::Hasher::new();
        let mut noise = vec![0; 1 << 20];
        hasher.update(b"noise").finalize_xof().fill(&mut noise);
        let noise = hex::encode(noise);
        let lines = [0, 1, 2].map(|task| line(task, &noise));
        traces.write(&file, &lines).unwrap();
        let size = fs::metadata(traces.path(&file)).unwrap().len();
        assert!(size < 3 << 19, "{size} bytes for three copies of 1 MiB");
    }

    #[test]
    fn single_lines_are_read_by_the_index_and_files_without_one_as_before() {
        let (_run, traces) = folder();
        let file = TraceFile { step: 1, evaluation: None };
        // Several frames.
        let lines: Vec<Value> = (0..7).map(|task| line(task, &task.to_string().repeat(FRAME / 2))).collect();
        traces.write(&file, &lines).unwrap();
        let index = traces.index(&file).unwrap().unwrap();
        assert_eq!(index.attempts[3], AttemptKey { task: 3, sample: 2, attempt: 0 });
        assert!(index.position(6).is_some_and(|(offset, _)| offset > 0));
        for (number, line) in lines.iter().enumerate() {
            let read = traces.indexed_line(&file, &index, number).unwrap();
            assert_eq!(serde_json::from_slice::<Value>(&read.text).unwrap(), *line);
            assert_eq!(read.number, number + 2);
        }
        assert!(traces.indexed_line(&file, &index, 7).is_err());
        let rows = traces.summaries(&file).unwrap().unwrap().rows;
        assert_eq!(rows.iter().map(|row| row.key).collect::<Vec<_>>(), index.attempts);
        assert_eq!((&*rows[3].task_id, rows[3].tokens), ("train-3", 3));
        let read = || traces.read(&file).unwrap().collect::<Result<Vec<Value>, _>>();
        assert_eq!(read().unwrap(), lines);
        // A file that ends between two frames is truncated.
        let whole = fs::read(traces.path(&file)).unwrap();
        let (second, _) = index.position(2).unwrap();
        fs::write(traces.path(&file), &whole[..second as usize]).unwrap();
        assert!(read().unwrap_err().to_string().contains("truncated"));
        let earlier = "{\"format\":2}\n{\"key\":1}\n";
        fs::write(traces.path(&file), zstd::encode_all(earlier.as_bytes(), 0).unwrap()).unwrap();
        assert_eq!(traces.index(&file).unwrap(), None);
        assert_eq!(traces.summaries(&file).unwrap(), None);
        assert_eq!(read().unwrap(), [json!({ "key": 1 })]);
    }

    #[test]
    fn a_truncated_or_changed_file_is_an_error_that_names_it() {
        let (_run, traces) = folder();
        let file = TraceFile { step: 1, evaluation: None };
        let lines = [line(0, &"a".repeat(1000)), line(1, &"b".repeat(1000))];
        traces.write(&file, &lines).unwrap();
        let path = traces.path(&file);
        let whole = fs::read(&path).unwrap();
        let read = || traces.read::<Value>(&file).and_then(|lines| lines.collect::<Result<Vec<_>, _>>());
        for end in 0..whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            let result = read();
            let message = result.map(|lines| lines.len()).map_err(|error| error.to_string());
            assert!(message.as_ref().is_err_and(|m| m.contains("000001.jsonl.zst")), "{end}: {message:?}");
        }
        for index in 4..whole.len() {
            let mut changed = whole.clone();
            changed[index] ^= 0x20;
            fs::write(&path, &changed).unwrap();
            // A byte of the frame's header may only change how much memory is reserved.
            assert!(read().map_or(true, |read| read == lines), "byte {index} changes the traces");
        }
    }

    #[test]
    fn another_format_is_refused_with_the_file_and_both_formats() {
        let (_run, traces) = folder();
        let file = TraceFile { step: 3, evaluation: None };
        let read = |text: &str| {
            fs::write(traces.path(&file), zstd::encode_all(text.as_bytes(), 0).unwrap()).unwrap();
            traces.read::<Value>(&file).map(Iterator::count).map_err(|error| error.to_string())
        };
        assert_eq!(read("{\"format\":2}\n{}\n{}\n"), Ok(2));
        let first = "{\"place\":{\"seed\":1},\"entries\":[]}\n";
        for (text, format) in [(first, 1), ("", 1), ("{\"format\":3}\n{}\n", 3)] {
            let message = read(text).unwrap_err();
            let expected = format!("format {format} of traces, but this pl-host reads format 2");
            assert!(message.contains("000003.jsonl.zst") && message.contains(&expected), "{message}");
        }
    }

    #[test]
    fn a_line_that_would_fill_the_memory_is_an_error() {
        let (_run, traces) = folder();
        let file = TraceFile { step: 1, evaluation: None };
        let mut encoder = zstd::Encoder::new(fs::File::create(traces.path(&file)).unwrap(), 1).unwrap();
        encoder.write_all(b"{\"format\":2}\n\"").unwrap();
        for _ in 0..80 {
            encoder.write_all(&vec![b' '; 1 << 20]).unwrap();
        }
        encoder.write_all(b"\"\n").unwrap();
        encoder.finish().unwrap();
        let lines: Vec<Result<String, Error>> = traces.read(&file).unwrap().collect();
        let [Err(error)] = &lines[..] else { panic!("{} lines", lines.len()) };
        let message = error.to_string();
        assert!(message.contains("000001.jsonl.zst:2: longer than 64 MiB"), "{message}");
    }
}
