//! What goes into a sandbox and what comes out.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One program to run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// `python`; in containers `shell` too, and with `run` anything.
    pub language: String,
    /// The program's text.
    pub source: String,
    /// What it reads from its standard input, where there are no cases.
    pub stdin: String,
    /// What it finds in its working folder.
    pub files: Vec<File>,
    /// Standard inputs: the program is run once for each, on the same files, and each gets its verdict.
    pub cases: Vec<String>,
    /// A command line that is run once, before the program. `{file}` stands for the program's file.
    pub compile: Vec<String>,
    /// The program's command line, where it is not its language's. `{file}` stands for the program's file.
    pub run: Vec<String>,
    /// Files of the working folder that are handed back, where they are there in the end.
    pub keep: Vec<String>,
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Exit code 0.
    #[default]
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

impl Ending {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Ending::Ok => "ok",
            Ending::Error => "error",
            Ending::Timeout => "timeout",
            Ending::Memory => "memory",
            Ending::OutputLimit => "output limit",
            Ending::ProcessLimit => "process limit",
            Ending::LostWorker => "lost worker",
        }
    }
}

/// What a job took. It is measured, and so differs from run to run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// From the program's start to its end, by the clock on the wall.
    pub time: Duration,
    /// Bytes: of the whole interpreter in WebAssembly, of its largest process in a container. None where the program
    /// was ended before it could be asked.
    pub memory: Option<u64>,
}

/// What came of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// How it ended. With cases: the first of theirs that is not ok.
    pub ending: Ending,
    /// None where it was ended from outside.
    pub exit: Option<i32>,
    /// What it printed, up to the limit, with a mark where it was cut. Bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// What it printed there, and the traceback of an uncaught exception.
    pub stderr: String,
    /// False where a wall clock, not the job, decided: another run may end differently.
    pub reproducible: bool,
    /// Those of [`Job::keep`] that were there.
    pub files: Vec<File>,
    /// Of each case, in their order; empty for a job without cases.
    pub cases: Vec<Verdict>,
    /// What it took.
    pub usage: Usage,
}

impl Verdict {
    /// A verdict of the sandbox itself, explained on stderr.
    pub fn of_sandbox(ending: Ending, message: impl Into<String>, reproducible: bool) -> Self {
        Self { ending, stderr: message.into(), reproducible, ..Self::default() }
    }

    /// That of a job from those of its cases.
    pub(crate) fn of_cases(cases: Vec<Verdict>) -> Self {
        let decisive = cases.iter().find(|case| case.ending != Ending::Ok).or(cases.last());
        let decisive = decisive.cloned().unwrap_or_default();
        let usage = Usage {
            time: cases.iter().map(|case| case.usage.time).sum(),
            memory: cases.iter().filter_map(|case| case.usage.memory).max(),
        };
        let reproducible = cases.iter().all(|case| case.reproducible);
        Self { cases, usage, reproducible, ..decisive }
    }

    /// Adds the sandbox's own words to stderr.
    pub(crate) fn note(&mut self, note: &str) {
        if !self.stderr.is_empty() && !self.stderr.ends_with('\n') {
            self.stderr.push('\n');
        }
        self.stderr.push_str("sandbox: ");
        self.stderr.push_str(note);
        self.stderr.push('\n');
    }
}

/// What was printed, as text; where it was `cut`, with a mark at its end.
pub(crate) fn printed(bytes: Vec<u8>, cut: bool) -> String {
    let kept = bytes.len();
    let mut text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    if cut {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&format!("[cut after {kept} bytes]\n"));
    }
    text
}
