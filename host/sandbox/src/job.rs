//! What goes into a sandbox and what comes out.

use serde::{Deserialize, Serialize};

/// One program to run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// `python`.
    pub language: String,
    /// The program's text.
    pub source: String,
    /// What it reads from its standard input.
    pub stdin: String,
    /// What it finds in its working folder.
    pub files: Vec<File>,
}

/// A file of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Relative to the working folder, parts separated by `/`.
    pub path: String,
    /// What it holds.
    pub bytes: Vec<u8>,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Exit code 0.
    Ok,
    /// Another exit code, an uncaught exception, or a broken interpreter.
    Error,
    /// It used up its time.
    Timeout,
    /// It needed more memory than it may have.
    Memory,
    /// It printed more than is kept.
    OutputLimit,
    /// It started more processes than it may.
    ProcessLimit,
    /// The worker was lost through no fault of the job.
    LostWorker,
}

/// What came of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// How it ended.
    pub ending: Ending,
    /// None where it was ended from outside.
    pub exit: Option<i32>,
    /// What it printed, up to the limit. Bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// What it printed there, and the traceback of an uncaught exception.
    pub stderr: String,
    /// False where a wall clock, not the job, decided: another run may end differently.
    pub reproducible: bool,
}

impl Verdict {
    /// A verdict of the sandbox itself, explained on stderr.
    pub(crate) fn of_sandbox(ending: Ending, message: impl Into<String>, reproducible: bool) -> Self {
        Self { ending, exit: None, stdout: String::new(), stderr: message.into(), reproducible }
    }
}
