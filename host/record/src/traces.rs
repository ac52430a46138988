//! What happened in every episode: one compressed file of JSON lines per step and per evaluation.
//!
//! Episodes of one task have long texts in common (the task, the prompts, the evidence): the compressor's window
//! spans the whole file, so that each of them is stored about once.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, write_atomically};

/// Higher levels cost more time than the bytes are worth.
const LEVEL: i32 = 3;

/// Base-two logarithm of the window: 16 MiB.
const WINDOW: u32 = 24;

/// Behind the number and the name.
const ENDING: &str = ".jsonl.zst";

/// The folder `traces` of a run.
#[derive(Debug, Clone)]
pub struct Traces {
    run: PathBuf,
}

/// One of its files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TraceFile {
    pub step: u64,
    /// None: of the step itself.
    pub evaluation: Option<String>,
}

impl Traces {
    /// Those of a run folder.
    pub fn of(run: &Path) -> Traces {
        Traces { run: run.to_path_buf() }
    }

    /// The run folder.
    pub fn run(&self) -> &Path {
        &self.run
    }

    /// Where the files lie.
    pub fn folder(&self) -> PathBuf {
        self.run.join("traces")
    }

    /// Where a file lies.
    pub fn path(&self, file: &TraceFile) -> PathBuf {
        let name = file.evaluation.as_ref().map(|name| format!("-{name}")).unwrap_or_default();
        self.folder().join(format!("{:06}{name}{ENDING}", file.step))
    }

    /// Every file, by step; the evaluations after a step behind it.
    ///
    /// # Errors
    /// [`Error::Io`]; a run without the folder has none.
    pub fn files(&self) -> Result<Vec<TraceFile>, Error> {
        let folder = self.folder();
        if !folder.is_dir() {
            return Ok(Vec::new());
        }
        let mut files = Vec::new();
        for entry in fs::read_dir(&folder).map_err(Error::io("read", &folder))? {
            let path = entry.map_err(Error::io("read", &folder))?.path();
            files.extend(TraceFile::at(&path));
        }
        files.sort();
        Ok(files)
    }

    /// Writes a file whole or not at all. Equal lines give equal bytes.
    pub fn write(&self, file: &TraceFile, lines: &[impl Serialize]) -> Result<(), Error> {
        let path = self.path(file);
        let bytes = encode(lines).map_err(Error::io("write", &path))?;
        write_atomically(&path, &bytes)
    }

    /// Reads a file's lines one by one, so that no more of them is held than is wanted.
    ///
    /// # Errors
    /// [`Error::Io`] where there is no such file or it ends too early; each line that is not as it should be is an
    /// [`Error::Line`].
    pub fn read<T: DeserializeOwned>(
        &self,
        file: &TraceFile,
    ) -> Result<impl Iterator<Item = Result<T, Error>> + use<T>, Error> {
        let path = self.path(file);
        let opened = fs::File::open(&path).map_err(Error::io("read", &path))?;
        let mut decoder = zstd::Decoder::new(opened).map_err(Error::io("read", &path))?;
        decoder.window_log_max(WINDOW).map_err(Error::io("read", &path))?;
        let lines = BufReader::new(decoder).lines().enumerate();
        Ok(lines.map(move |(index, line)| {
            let line = line.map_err(Error::io("read", &path))?;
            serde_json::from_str(&line).map_err(|error| Error::Line {
                path: path.clone(),
                line: index + 1,
                message: error.to_string(),
            })
        }))
    }
}

impl TraceFile {
    /// What the file at a path is; none: something else.
    pub(crate) fn at(path: &Path) -> Option<TraceFile> {
        let stem = path.file_name()?.to_str()?.strip_suffix(ENDING)?;
        let (step, evaluation) = match stem.split_once('-') {
            Some((step, name)) => (step, Some(name.to_owned())),
            None => (stem, None),
        };
        Some(TraceFile { step: step.parse().ok()?, evaluation })
    }
}

fn encode(lines: &[impl Serialize]) -> std::io::Result<Vec<u8>> {
    let mut encoder = zstd::Encoder::new(Vec::new(), LEVEL)?;
    encoder.window_log(WINDOW)?;
    encoder.long_distance_matching(true)?;
    encoder.include_checksum(true)?;
    for line in lines {
        serde_json::to_writer(&mut encoder, line)?;
        encoder.write_all(b"\n")?;
    }
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, Traces) {
        let run = tempfile::tempdir().unwrap();
        let traces = Traces::of(run.path());
        fs::create_dir(traces.folder()).unwrap();
        (run, traces)
    }

    #[test]
    fn what_was_written_is_read_and_listed_in_order() {
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
    fn what_lines_have_in_common_is_stored_once() {
        let (_run, traces) = folder();
        let file = TraceFile { step: 1, evaluation: None };
        // Text that does not compress by itself, far more of it than a usual window spans.
        let mut hasher = blake3::Hasher::new();
        let mut noise = vec![0; 1 << 20];
        hasher.update(b"noise").finalize_xof().fill(&mut noise);
        let line = hex::encode(noise);
        traces.write(&file, &[&line, &line, &line]).unwrap();
        let size = fs::metadata(traces.path(&file)).unwrap().len();
        assert!(size < 3 << 19, "{size} bytes for 1 MiB that is told three times");
    }

    #[test]
    fn a_file_that_was_cut_or_changed_is_an_error_that_names_it() {
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
            // The end of the last block carries no text; all of it is there, or there is an error.
            let message = result.map(|lines| lines.len()).map_err(|error| error.to_string());
            assert!(
                message.as_ref().is_err_and(|m| m.contains("000001.jsonl.zst")) || end == 0,
                "{end}: {message:?}"
            );
        }
        for at in 4..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x20;
            fs::write(&path, &changed).unwrap();
            // A byte of the frame's head may say no more than how much memory to take.
            assert!(read().map_or(true, |read| read == lines), "byte {at} changes what is read");
        }
    }
}
