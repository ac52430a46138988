//! Reading the logs of a run piece by piece, while the run appends to them.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;
use crate::runs::inside;

/// Bytes that are read for one request.
const PIECE: u64 = 4 << 20;

/// Log of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Log {
    Metrics,
    Timings,
    Failures,
}

impl Log {
    fn file(self) -> &'static str {
        match self {
            Log::Metrics => "metrics.jsonl",
            Log::Timings => "timings.jsonl",
            Log::Failures => "failures.jsonl",
        }
    }
}

/// Lines of a log after a position.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct LogPiece {
    pub(crate) lines: Vec<Value>,
    /// Lines that are not JSON, with the file and the number of the line.
    pub(crate) problems: Vec<String>,
    /// Position after the lines, in bytes.
    pub(crate) offset: u64,
    /// Number of lines before that position.
    pub(crate) line: u64,
    /// True if there is more to read at once.
    pub(crate) more: bool,
    /// True if the log was cut back, as a resumed run does, and the lines are those from its start.
    pub(crate) restarted: bool,
}

/// Reads complete lines from a position on. A missing file has no lines.
///
/// # Errors
/// If the file can't be read, or a line is longer than 4 MiB.
pub(crate) fn read(root: &Path, log: Log, mut offset: u64, mut line: u64) -> Result<LogPiece, Error> {
    let path = inside(root, &[log.file()])?;
    let length = match path.metadata() {
        Ok(file) if file.is_file() => file.len(),
        _ => 0,
    };
    let restarted = offset > length;
    if restarted {
        (offset, line) = (0, 0);
    }
    let mut piece =
        LogPiece { lines: Vec::new(), problems: Vec::new(), offset, line, more: false, restarted };
    if length == 0 {
        return Ok(piece);
    }
    let mut file = File::open(&path).map_err(Error::io(&path))?;
    file.seek(SeekFrom::Start(offset)).map_err(Error::io(&path))?;
    let mut bytes = Vec::new();
    file.take(PIECE).read_to_end(&mut bytes).map_err(Error::io(&path))?;
    let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    if complete == 0 && bytes.len() as u64 == PIECE {
        return Err(Error::TooLarge { path, limit: PIECE, unit: "bytes in a line" });
    }
    piece.more = offset + (complete as u64) < length && bytes.len() as u64 == PIECE;
    let (whole, _) = bytes.split_at(complete);
    for text in whole.split_inclusive(|byte| *byte == b'\n') {
        piece.line += 1;
        piece.offset += text.len() as u64;
        if text.trim_ascii().is_empty() {
            continue;
        }
        match serde_json::from_slice(text) {
            Ok(value) => piece.lines.push(value),
            Err(error) => piece.problems.push(format!("{}:{}: {error}", path.display(), piece.line)),
        }
    }
    Ok(piece)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_metrics(root: &Path, offset: u64, line: u64) -> LogPiece {
        read(root, Log::Metrics, offset, line).unwrap()
    }

    #[test]
    fn a_growing_log_is_read_up_to_its_last_complete_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        assert_eq!(read_metrics(folder.path(), 0, 0).lines, Vec::<Value>::new(), "no file yet");
        std::fs::write(&path, "{\"step\":1}\n{\"st").unwrap();
        let first = read_metrics(folder.path(), 0, 0);
        assert_eq!((first.lines.len(), first.offset, first.line), (1, 11, 1));
        std::fs::write(&path, "{\"step\":1}\n{\"step\":2}\n").unwrap();
        let second = read_metrics(folder.path(), first.offset, first.line);
        assert_eq!(second.lines, [serde_json::json!({"step": 2})]);
        std::fs::write(&path, "{\"step\":1}\n").unwrap();
        let third = read_metrics(folder.path(), second.offset, second.line);
        assert!(third.restarted && third.lines.len() == 1, "{third:?}");
    }

    #[test]
    fn a_damaged_line_is_named_and_the_others_are_shown() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("metrics.jsonl"), "{}\n{\"a\n{}\n").unwrap();
        let piece = read_metrics(folder.path(), 0, 0);
        assert_eq!(piece.lines.len(), 2);
        assert!(piece.problems[0].contains("metrics.jsonl:2:"), "{:?}", piece.problems);
    }

    #[test]
    fn a_long_log_comes_in_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let line = format!("\"{}\"\n", "a".repeat(1 << 20));
        std::fs::write(folder.path().join("metrics.jsonl"), line.repeat(6)).unwrap();
        let first = read_metrics(folder.path(), 0, 0);
        assert!(first.more && first.lines.len() == 3);
        let second = read_metrics(folder.path(), first.offset, first.line);
        assert!(!second.more && second.lines.len() == 3 && second.line == 6);
    }
}
