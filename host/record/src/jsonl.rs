//! Append-only files with one JSON value per line.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::text_file::read_text;

/// Largest file that is read as a whole, in bytes. A step has a few kilobytes.
const LARGEST_LOG: u64 = 1 << 30;

/// A JSONL file that only grows. A resumed run truncates it to its length at the checkpoint.
#[derive(Debug)]
pub struct AppendLog {
    path: PathBuf,
    file: File,
    length: u64,
}

impl AppendLog {
    /// Checks that the file has at least `length` bytes. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Truncated`] if it is shorter, or missing.
    pub(crate) fn check_length(path: &Path, length: u64) -> Result<(), Error> {
        let found = path.metadata().map_or(0, |file| file.len());
        if found < length {
            return Err(Error::Truncated { path: path.to_path_buf(), found, expected: length });
        }
        Ok(())
    }

    /// Opens the file and truncates it to `length` bytes.
    ///
    /// # Errors
    /// [`Error::Truncated`] if the file is shorter than `length`.
    pub fn open(path: &Path, length: u64) -> Result<AppendLog, Error> {
        Ok(AppendLog { path: path.to_path_buf(), file: open_truncated(path, length)?, length })
    }

    /// Writes one line.
    pub fn append(&mut self, value: &impl Serialize) -> Result<(), Error> {
        let mut line = serde_json::to_vec(value).map_err(Error::json(&self.path))?;
        line.push(b'\n');
        self.file.write_all(&line).map_err(Error::io("write", &self.path))?;
        self.length += line.len() as u64;
        Ok(())
    }

    /// Makes all lines durable and returns the length in bytes.
    pub fn sync(&mut self) -> Result<u64, Error> {
        self.file.sync_data().map_err(Error::io("sync", &self.path))?;
        Ok(self.length)
    }
}

/// Opens a file for appending and truncates it to `length` bytes. Creates it if it is missing.
///
/// # Errors
/// [`Error::Truncated`] if the file is shorter than `length`.
pub(crate) fn open_truncated(path: &Path, length: u64) -> Result<File, Error> {
    AppendLog::check_length(path, length)?;
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(Error::io("open", path))?;
    file.set_len(length).map_err(Error::io("truncate", path))?;
    file.seek(SeekFrom::End(0)).map_err(Error::io("read", path))?;
    Ok(file)
}

/// Reads every complete line of a JSONL file.
///
/// # Errors
/// [`Error::Io`] if it is not a file, or larger than 1 GiB; [`Error::Line`].
pub fn read_jsonl<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Error> {
    parse_lines(path, &read_text(path, LARGEST_LOG).map_err(Error::io("read", path))?)
}

/// Parses the complete lines of a JSONL file. The last one is incomplete if a run is writing it, or was killed meanwhile.
pub(crate) fn parse_lines<T: DeserializeOwned>(path: &Path, text: &str) -> Result<Vec<T>, Error> {
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            serde_json::from_str(line).map_err(|e| Error::Line {
                path: path.to_path_buf(),
                line: index + 1,
                message: e.to_string(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reopened_log_loses_the_lines_after_the_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut log = AppendLog::open(&path, 0).unwrap();
        log.append(&1).unwrap();
        let kept = log.sync().unwrap();
        log.append(&2).unwrap();
        drop(log);
        let mut log = AppendLog::open(&path, kept).unwrap();
        log.append(&3).unwrap();
        assert_eq!(read_jsonl::<i32>(&path).unwrap(), [1, 3]);
    }

    /// Ends that a kill or a power loss leaves after the checkpoint. Without cutting them off, the log can't be read after the
    /// next line.
    #[test]
    fn damaged_ends_are_cut_off() {
        for damage in ["{\"torn\":", "2", "\0\0\0\0\0\0\0\0", "2\r\n{", "2\n\0\0\0"] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("metrics.jsonl");
            let mut log = AppendLog::open(&path, 0).unwrap();
            log.append(&1).unwrap();
            let kept = log.sync().unwrap();
            drop(log);
            let mut file = OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(damage.as_bytes()).unwrap();
            // The control: a log that just goes on.
            let mut log = AppendLog::open(&path, path.metadata().unwrap().len()).unwrap();
            log.append(&3).unwrap();
            let read = read_jsonl::<i32>(&path);
            assert!(read.as_ref().map_or(true, |lines| *lines != [1, 3]), "{damage:?}: {read:?}");
            drop(log);
            let mut log = AppendLog::open(&path, kept).unwrap();
            log.append(&3).unwrap();
            assert_eq!(read_jsonl::<i32>(&path).unwrap(), [1, 3], "{damage:?}");
        }
    }

    /// Damage before the checkpoint, which no cut repairs.
    #[test]
    fn holes_before_the_checkpoint_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        for (text, line) in [("1\n\0\0\n3\n", 2), ("{\n2\n3\n", 1), ("1\r\n2\r\n3 4\r\n", 3)] {
            std::fs::write(&path, text).unwrap();
            drop(AppendLog::open(&path, text.len() as u64).unwrap());
            let message = read_jsonl::<i32>(&path).unwrap_err().to_string();
            assert!(message.contains(&format!("metrics.jsonl:{line}:")), "{text:?}: {message}");
        }
    }

    #[test]
    fn a_file_shorter_than_its_checkpoint_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        std::fs::write(&path, "1\n").unwrap();
        assert!(matches!(AppendLog::open(&path, 5), Err(Error::Truncated { found: 2, expected: 5, .. })));
    }

    #[test]
    fn a_device_or_a_huge_file_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let huge = folder.path().join("huge.jsonl");
        File::create(&huge).unwrap().set_len(LARGEST_LOG + 1).unwrap();
        let link = folder.path().join("metrics.jsonl");
        std::os::unix::fs::symlink("/dev/zero", &link).unwrap();
        let read = |path: &Path| read_jsonl::<i32>(path).unwrap_err().to_string();
        assert!(read(&huge).contains("larger than 1024 MiB"), "{}", read(&huge));
        assert!(read(&link).contains("it is not a file"), "{}", read(&link));
    }

    #[test]
    fn a_line_without_an_end_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.jsonl");
        for (text, lines) in [("1\n[2", &[1][..]), ("1\n2", &[1]), ("1", &[]), ("", &[])] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read_jsonl::<i32>(&path).unwrap(), lines, "{text:?}");
        }
    }

    #[test]
    fn a_bad_line_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.jsonl");
        std::fs::write(&path, "1\n{\n").unwrap();
        let message = read_jsonl::<i32>(&path).unwrap_err().to_string();
        assert!(message.contains("x.jsonl:2:"), "{message}");
    }
}
