//! What the host and the supervisor of a container say to each other.
//!
//! The supervisor is PID 1 of a container. It reads tasks from its standard input and writes messages to its standard
//! output, each as a frame: four bytes of length (little endian), then the message. Numbers are little endian,
//! texts and byte strings stand behind their length, lists behind their count.

mod wire;

use wire::{Reader, Writer};
pub use wire::{read_frame, write_frame};

/// The folder of a container with the module that makes a Python interpreter wait to be forked.
pub const PYTHON_FOLDER: &str = "/pl-python";

/// What a container is asked to do: one program, run once per case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Task {
    /// What the working folder holds when the program starts.
    pub files: Vec<Entry>,
    /// A command line that is run once, before the cases; none where it is empty.
    pub compile: Vec<String>,
    /// The program's command line.
    pub run: Vec<String>,
    /// Standard input of each run.
    pub cases: Vec<Vec<u8>>,
    /// Files of the working folder that are handed back after a run, where they are there.
    pub keep: Vec<String>,
    /// Milliseconds that one run may take.
    pub timeout: u64,
    /// Bytes kept of each of stdout and stderr; printing more ends the run.
    pub output: u64,
    /// Bytes kept of all files together.
    pub kept: u64,
}

/// A file of the working folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the folder, parts separated by `/`.
    pub path: String,
    pub bytes: Vec<u8>,
    /// It may be executed.
    pub executable: bool,
}

/// What the supervisor says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// It waits for tasks; or why it can't serve.
    Ready(Option<String>),
    /// How a run ended: of the compiler where it failed, of each case otherwise.
    Ran(Box<Run>),
    /// The task is done, and nothing of it is left; or what is, so that the container must go.
    Clean(Option<String>),
}

/// How a program ended and what came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Run {
    pub end: End,
    /// It was the compiler's run: no case was run.
    pub compiling: bool,
    /// The kernel ended a process for want of memory.
    pub memory: bool,
    /// The kernel refused a process, as there were too many.
    pub processes: bool,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    /// Microseconds from start to end.
    pub took: u64,
    /// Bytes of the largest process at its largest.
    pub peak: u64,
    pub files: Vec<Entry>,
}

impl Default for End {
    fn default() -> Self {
        End::Exited(0)
    }
}

/// Why a program is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It left with this code.
    Exited(i32),
    /// A signal ended it.
    Signalled(i32),
    /// It took too long.
    TimedOut,
    /// It printed too much.
    Flooded,
    /// It never started: its files or its command line can't be had, for this reason.
    Refused(String),
}

impl Task {
    /// As a frame's content.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        to.list(&self.files).list(&self.compile).list(&self.run).list(&self.cases).list(&self.keep);
        to.number(self.timeout).number(self.output).number(self.kept);
        to.done()
    }

    /// From a frame's content; none where it is none of ours.
    pub fn decode(bytes: &[u8]) -> Option<Task> {
        let mut from = Reader::new(bytes);
        let task = Task {
            files: from.list()?,
            compile: from.list()?,
            run: from.list()?,
            cases: from.list()?,
            keep: from.list()?,
            timeout: from.number()?,
            output: from.number()?,
            kept: from.number()?,
        };
        from.is_empty().then_some(task)
    }
}

impl Message {
    /// As a frame's content.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::default();
        match self {
            Message::Ready(reason) => to.number(0).optional(reason.as_ref()),
            Message::Clean(left) => to.number(1).optional(left.as_ref()),
            Message::Ran(run) => {
                let (kind, value, reason) = match &run.end {
                    End::Exited(code) => (0, *code, ""),
                    End::Signalled(signal) => (1, *signal, ""),
                    End::TimedOut => (2, 0, ""),
                    End::Flooded => (3, 0, ""),
                    End::Refused(reason) => (4, 0, reason.as_str()),
                };
                to.number(2).number(kind).number(i64::from(value).cast_unsigned()).text(reason);
                let flags = [run.compiling, run.memory, run.processes];
                for flag in flags {
                    to.number(u64::from(flag));
                }
                to.bytes(&run.stdout).bytes(&run.stderr).number(run.took).number(run.peak).list(&run.files)
            }
        };
        to.done()
    }

    /// From a frame's content; none where it is none of ours.
    pub fn decode(bytes: &[u8]) -> Option<Message> {
        let mut from = Reader::new(bytes);
        let message = match from.number()? {
            0 => Message::Ready(from.optional()?),
            1 => Message::Clean(from.optional()?),
            2 => {
                let (kind, value) = (from.number()?, from.number()?.cast_signed());
                let (value, reason) = (i32::try_from(value).ok()?, from.text()?);
                let end = match kind {
                    0 => End::Exited(value),
                    1 => End::Signalled(value),
                    2 => End::TimedOut,
                    3 => End::Flooded,
                    4 => End::Refused(reason),
                    _ => return None,
                };
                Message::Ran(Box::new(Run {
                    end,
                    compiling: from.flag()?,
                    memory: from.flag()?,
                    processes: from.flag()?,
                    stdout: from.bytes()?,
                    stderr: from.bytes()?,
                    took: from.number()?,
                    peak: from.number()?,
                    files: from.list()?,
                }))
            }
            _ => return None,
        };
        from.is_empty().then_some(message)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn entry() -> Entry {
        Entry { path: "a/b".into(), bytes: vec![0, 255], executable: true }
    }

    #[test]
    fn what_is_said_is_what_is_heard() {
        let task = Task {
            files: vec![entry()],
            compile: vec!["cc".into()],
            run: vec!["python3".into(), "main.py".into()],
            cases: vec![b"1\n".to_vec(), Vec::new()],
            keep: vec!["out".into()],
            timeout: 20_000,
            output: 1 << 16,
            kept: 9,
        };
        assert_eq!(Task::decode(&task.encode()), Some(task));
        let run =
            |end| Run { end, stdout: b"x".to_vec(), files: vec![entry()], memory: true, ..Run::default() };
        let ends =
            [End::Exited(-1), End::Signalled(9), End::TimedOut, End::Flooded, End::Refused("no".into())];
        let runs = ends.map(|end| Message::Ran(Box::new(run(end))));
        let others = [Message::Ready(None), Message::Ready(Some("why".into())), Message::Clean(None)];
        for message in runs.into_iter().chain(others) {
            assert_eq!(Message::decode(&message.encode()), Some(message));
        }
    }

    #[test]
    fn cut_and_foreign_bytes_are_refused() {
        let bytes = Message::Ran(Box::default()).encode();
        for end in 0..bytes.len() {
            assert_eq!(Message::decode(&bytes[..end]), None);
        }
        assert_eq!(Message::decode(&[&bytes[..], b"x"].concat()), None);
        // A count that no bytes follow must not be believed.
        assert_eq!(Task::decode(&u64::MAX.to_le_bytes()), None);
        let mut frames = Vec::new();
        write_frame(&mut frames, b"abc").unwrap();
        assert_eq!(read_frame(&mut frames.as_slice(), 3).unwrap(), b"abc");
        assert!(read_frame(&mut frames.as_slice(), 2).is_err());
        assert!(read_frame(&mut &frames[..5], 3).is_err());
    }
}
