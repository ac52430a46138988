//! Trace files: every attempt at an episode, one compressed file of JSON lines per step and per evaluation.
//!
//! Episodes of one task share long texts (the task, prompts, evidence): the compressor's window spans the
//! whole file, so that each text is stored about once.
//!
//! The first line is `{"format":2}`. The number changes with the serialised names of the traces. Files of
//! format 1 have no such line.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::atomic::write_atomically;
use crate::error::Error;
use crate::own_files::parse_step;

/// Format of the trace files that are written and read.
pub const TRACE_FORMAT: u32 = 2;

/// Compression level. Higher levels cost more time than the saved bytes are worth.
const LEVEL: i32 = 3;

/// Base-two logarithm of the compressor's window: 16 MiB.
const WINDOW: u32 = 24;

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
    /// [`Error::Io`].
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
        let mut decoder = zstd::Decoder::new(opened).map_err(Error::io("read", &path))?;
        decoder.window_log_max(WINDOW).map_err(Error::io("read", &path))?;
        let mut reader = BufReader::new(decoder);
        let header = read_line(&mut reader, LONGEST_HEADER).map_err(Error::io("read", &path))?;
        check_format(&path, header.as_deref().unwrap_or_default())?;
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
                    end.err().map(|error| Err(Error::io("read", &path)(error)))
                }
            }
        }))
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
fn check_format(path: &Path, header: &[u8]) -> Result<(), Error> {
    let found = serde_json::from_slice::<Header>(header).map_or(1, |header| header.format);
    match found {
        TRACE_FORMAT => Ok(()),
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
    let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
    encoder.window_log(WINDOW)?;
    encoder.long_distance_matching(true)?;
    encoder.include_checksum(true)?;
    serde_json::to_writer(&mut encoder, &Header { format: TRACE_FORMAT })?;
    encoder.write_all(b"\n")?;
    for trace in traces {
        serde_json::to_writer(&mut encoder, trace)?;
        encoder.write_all(b"\n")?;
    }
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let lines = ["one\ntwo", "🦀"];
        for file in [file(10, Some("held_out")), file(2, None), file(10, None)] {
            traces.write(&file, &lines).unwrap();
        }
        fs::write(traces.folder().join("notes.txt"), "mine").unwrap();
        assert_eq!(traces.files().unwrap(), [file(2, None), file(10, None), file(10, Some("held_out"))]);
        let read: Vec<String> =
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
        let line = hex::encode(noise);
        traces.write(&file, &[&line, &line, &line]).unwrap();
        let size = fs::metadata(traces.path(&file)).unwrap().len();
        assert!(size < 3 << 19, "{size} bytes for three copies of 1 MiB");
    }

    #[test]
    fn a_truncated_or_changed_file_is_an_error_that_names_it() {
        let (_run, traces) = folder();
        let file = TraceFile { step: 1, evaluation: None };
        let lines = ["a".repeat(1000), "b".repeat(1000)];
        traces.write(&file, &lines).unwrap();
        let path = traces.path(&file);
        let whole = fs::read(&path).unwrap();
        let read = || traces.read::<String>(&file).and_then(|lines| lines.collect::<Result<Vec<_>, _>>());
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
            traces.read::<serde_json::Value>(&file).map(Iterator::count).map_err(|error| error.to_string())
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
