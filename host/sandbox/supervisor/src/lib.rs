//! The protocol between the host and the supervisor of a container.
//!
//! The supervisor is PID 1 of a container. It reads a [`SupervisorTask`] at a time from its standard input and writes
//! [`SupervisorMessage`]s to its standard output. Each is a frame: the length in four bytes (little endian), then the
//! value in postcard's format.

use std::io::{Error, ErrorKind, Read, Result, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Maximum size of a compiler's results, which the supervisor keeps in its memory from case to case, in bytes.
pub const MAX_COMPILED: u64 = 32 << 20;

/// One program, run once per case.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorTask {
    /// Content of the working folder when the program starts.
    pub files: Vec<FileEntry>,
    /// Command line that runs once, before the cases. Empty if there is nothing to compile.
    pub compile: Vec<String>,
    /// Command line of the program.
    pub run: Vec<String>,
    /// Standard input of each run.
    pub cases: Vec<Vec<u8>>,
    /// Files of the working folder to return after a run, if they exist.
    pub output_files: Vec<String>,
    /// Time limit of one run in milliseconds.
    pub timeout_ms: u64,
    /// Bytes kept of each of stdout and stderr. A run that prints more is ended.
    pub max_output: u64,
    /// Bytes of all returned files of a run together.
    pub max_files: u64,
}

/// A file of the working folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Relative to the folder, with `/` as the separator.
    pub path: String,
    pub bytes: Vec<u8>,
    pub executable: bool,
}

/// A message of the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SupervisorMessage {
    /// First message: `None` if the supervisor accepts tasks, else the reason why it can't.
    Ready(Option<String>),
    /// Result of one run: of the compiler if it failed, of each case otherwise.
    Ran(Box<RunReport>),
    /// Last message of a task: `None` if nothing of it remains. Otherwise it describes the remains, and the
    /// container must be discarded.
    Clean(Option<String>),
}

/// Result of one run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunReport {
    pub termination: Termination,
    /// True if this was the compiler's run: no case was run.
    pub is_compiler: bool,
    /// True if the kernel killed a process because the container was out of memory.
    pub out_of_memory: bool,
    /// True if the kernel refused to create a process because there were too many.
    pub process_limit: bool,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Microseconds from start to end.
    pub duration_us: u64,
    /// Peak memory of the largest process, in bytes.
    pub peak_memory: u64,
    pub output_files: Vec<FileEntry>,
}

/// Reason why a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Termination {
    /// The program exited with this code.
    Exited(i32),
    /// This signal killed the program.
    Signalled(i32),
    TimedOut,
    OutputLimit,
    /// The program never started, because of its files or its command line.
    NotStarted(String),
}

impl Default for Termination {
    fn default() -> Self {
        Termination::Exited(0)
    }
}

/// Returns a value as a frame.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if the frame is longer than its four bytes of length can express.
pub fn encode_frame(value: &impl Serialize) -> Result<Vec<u8>> {
    let invalid = |_| Error::from(ErrorKind::InvalidInput);
    let mut frame = postcard::to_extend(value, vec![0; 4]).map_err(|_| ErrorKind::InvalidInput)?;
    let length = u32::try_from(frame.len() - 4).map_err(invalid)?;
    frame[..4].copy_from_slice(&length.to_le_bytes());
    Ok(frame)
}

/// Returns the value of a frame's content. Returns `None` if the content is malformed, cut or followed by
/// more bytes.
pub fn decode<T: DeserializeOwned>(content: &[u8]) -> Option<T> {
    let (value, rest) = postcard::take_from_bytes(content).ok()?;
    rest.is_empty().then_some(value)
}

/// Writes a value as a frame and flushes the stream.
///
/// # Errors
/// Errors of the stream and of [`encode_frame`].
pub fn write_frame(to: &mut impl Write, value: &impl Serialize) -> Result<()> {
    to.write_all(&encode_frame(value)?)?;
    to.flush()
}

/// Reads a frame with a content of at most `max_length` bytes.
///
/// # Errors
/// Errors of the stream. [`ErrorKind::InvalidData`] if the frame is longer or [`decode`] refuses its content.
pub fn read_frame<T: DeserializeOwned>(from: &mut impl Read, max_length: usize) -> Result<T> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > max_length {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut content = vec![0; length];
    from.read_exact(&mut content)?;
    decode(&content).ok_or_else(|| ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn file() -> FileEntry {
        FileEntry { path: "a/b".into(), bytes: vec![0, 255], executable: true }
    }

    fn task() -> SupervisorTask {
        SupervisorTask {
            files: vec![file()],
            compile: vec!["cc".into()],
            run: vec!["python3".into(), "main.py".into()],
            cases: vec![b"1\n".to_vec(), Vec::new()],
            output_files: vec!["out".into()],
            timeout_ms: 20_000,
            max_output: 1 << 16,
            max_files: 9,
        }
    }

    fn messages() -> Vec<SupervisorMessage> {
        let report = |termination| RunReport {
            termination,
            stdout: b"x".to_vec(),
            output_files: vec![file()],
            out_of_memory: true,
            ..RunReport::default()
        };
        let terminations = [
            Termination::Exited(-1),
            Termination::Signalled(9),
            Termination::TimedOut,
            Termination::OutputLimit,
            Termination::NotStarted("no".into()),
        ];
        let reports = terminations.map(|termination| SupervisorMessage::Ran(Box::new(report(termination))));
        let others = [
            SupervisorMessage::Ready(None),
            SupervisorMessage::Ready(Some("why".into())),
            SupervisorMessage::Clean(None),
        ];
        reports.into_iter().chain(others).collect()
    }

    #[test]
    fn values_survive_the_way_through_a_frame() {
        let frame = encode_frame(&task()).unwrap();
        assert_eq!(read_frame::<SupervisorTask>(&mut frame.as_slice(), frame.len()).unwrap(), task());
        for message in messages() {
            let frame = encode_frame(&message).unwrap();
            assert_eq!(decode::<SupervisorMessage>(&frame[4..]), Some(message));
        }
    }

    #[test]
    fn cut_and_foreign_bytes_are_refused() {
        for message in messages() {
            let frame = encode_frame(&message).unwrap();
            let content = &frame[4..];
            for end in 0..content.len() {
                assert_eq!(decode::<SupervisorMessage>(&content[..end]), None);
            }
            assert_eq!(decode::<SupervisorMessage>(&[content, b"x"].concat()), None);
        }
        let frame = encode_frame(&task()).unwrap();
        for end in 4..frame.len() {
            assert_eq!(decode::<SupervisorTask>(&frame[4..end]), None);
        }
        // Not a variant, not a flag, not UTF-8.
        assert_eq!(decode::<SupervisorMessage>(&[3]), None);
        assert_eq!(decode::<SupervisorMessage>(&[0, 2]), None);
        assert_eq!(decode::<SupervisorMessage>(&[0, 1, 1, 0xff]), None);
    }

    #[test]
    fn a_claimed_length_without_bytes_allocates_nothing() {
        // A count of 2⁶⁴ − 1 as a varint.
        let count = [[0xff; 9].as_slice(), &[1]].concat();
        assert_eq!(decode::<SupervisorTask>(&count), None);
        assert_eq!(decode::<SupervisorMessage>(&[&[0, 1], count.as_slice()].concat()), None);
    }

    #[test]
    fn frames_have_a_maximum() {
        let frame = encode_frame(&"abc".to_owned()).unwrap();
        assert_eq!(frame, b"\x04\0\0\0\x03abc");
        let read = |bytes: &[u8], most| read_frame::<String>(&mut &*bytes, most);
        assert_eq!(read(&frame, 4).unwrap(), "abc");
        assert_eq!(read(&frame, 3).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(read(&frame[..6], 4).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!(read(b"\xff\xff\xff\xff", 4).unwrap_err().kind(), ErrorKind::InvalidData);
        assert_eq!(read(b"\x01\0\0\0x", 4).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
