//! Input and output of a sandbox.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// One program to run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// `python`. Containers also run `shell`, and any other language if `run` is given.
    pub language: String,
    /// Source code of the program.
    pub source: String,
    /// Standard input of a job without cases.
    pub stdin: String,
    /// Files of its working folder.
    pub files: Vec<File>,
    /// Standard inputs: the program runs once for each, on the same files, and each run has a verdict of its
    /// own.
    pub cases: Vec<String>,
    /// Command line that runs once, before the program. `{file}` stands for the program's file.
    pub compile: Vec<String>,
    /// Command line of the program. Empty for that of its language. `{file}` stands for the program's file.
    pub run: Vec<String>,
    /// Files of the working folder to return, if they exist in the end.
    pub output_files: Vec<String>,
}

/// A file of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Relative to the working folder, with `/` as the separator.
    pub path: String,
    /// Content.
    pub bytes: Vec<u8>,
}

/// Reason why a job ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Exit code 0.
    #[default]
    Ok,
    /// Another exit code, an uncaught exception, or a broken interpreter.
    Error,
    /// It ran for too long.
    Timeout,
    /// It needed more memory than it may have.
    Memory,
    /// It printed too much.
    OutputLimit,
    /// It started too many processes.
    ProcessLimit,
    /// The worker was lost for a reason other than the job.
    LostWorker,
}

impl Ending {
    /// Returns its name as users see it.
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

/// Resource usage of a job. It is measured, so it differs from run to run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Wall-clock time from the program's start to its end.
    pub time: Duration,
    /// Peak memory in bytes: of the whole interpreter in WebAssembly, of the largest process in a container.
    /// `None` if the program ended before it could be measured.
    pub memory: Option<u64>,
}

/// Result of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Reason why it ended. With cases: the first reason that is not [`Ending::Ok`].
    pub ending: Ending,
    /// Exit code. `None` if the sandbox ended the program.
    pub exit: Option<i32>,
    /// Standard output up to the limit, with a mark at its end if it was cut. Bytes that are not UTF-8 are
    /// replaced.
    pub stdout: String,
    /// Standard error likewise, with the traceback of an uncaught exception and the sandbox's notes.
    pub stderr: String,
    /// False if the wall clock decided: another run may end differently.
    pub reproducible: bool,
    /// Files of [`Job::output_files`] that exist.
    pub output_files: Vec<File>,
    /// Verdicts of the cases, in their order. Empty for a job without cases, and for a case.
    #[serde(with = "case_verdicts")]
    pub cases: Vec<Verdict>,
    /// Resource usage.
    pub usage: Usage,
}

impl Verdict {
    /// Returns a verdict of the sandbox itself, with an explanation on stderr.
    pub fn from_sandbox(ending: Ending, message: impl Into<String>, reproducible: bool) -> Self {
        Self { ending, stderr: message.into(), reproducible, ..Self::default() }
    }

    /// Combines the verdicts of a job's cases.
    pub(crate) fn from_cases(cases: Vec<Verdict>) -> Self {
        let decisive = cases.iter().find(|case| case.ending != Ending::Ok).or(cases.last());
        let decisive = decisive.cloned().unwrap_or_default();
        let usage = Usage {
            time: cases.iter().map(|case| case.usage.time).sum(),
            memory: cases.iter().filter_map(|case| case.usage.memory).max(),
        };
        let reproducible = cases.iter().all(|case| case.reproducible);
        Self { cases, usage, reproducible, ..decisive }
    }

    /// Appends a note of the sandbox to stderr.
    pub(crate) fn note(&mut self, note: &str) {
        if !self.stderr.is_empty() && !self.stderr.ends_with('\n') {
            self.stderr.push('\n');
        }
        self.stderr.push_str("sandbox: ");
        self.stderr.push_str(note);
        self.stderr.push('\n');
    }
}

/// Reads and writes the verdicts of cases without cases of their own. Messages come from processes that may lie: a type
/// that held itself would let them nest until the reader's stack is full.
mod case_verdicts {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Ending, File, Usage, Verdict};

    #[derive(Serialize, Deserialize)]
    #[serde(remote = "Verdict")]
    struct Fields {
        ending: Ending,
        exit: Option<i32>,
        stdout: String,
        stderr: String,
        reproducible: bool,
        output_files: Vec<File>,
        #[serde(skip)]
        cases: Vec<Verdict>,
        usage: Usage,
    }

    #[derive(Serialize)]
    struct Written<'a>(#[serde(with = "Fields")] &'a Verdict);

    #[derive(Deserialize)]
    struct Read(#[serde(with = "Fields")] Verdict);

    pub fn serialize<S: Serializer>(cases: &[Verdict], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(cases.iter().map(Written))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Verdict>, D::Error> {
        let cases = Vec::<Read>::deserialize(deserializer)?;
        Ok(cases.into_iter().map(|Read(verdict)| verdict).collect())
    }
}

/// Returns printed bytes as text, with a mark at the end if they were `cut`.
pub(crate) fn to_text(bytes: Vec<u8>, cut: bool) -> String {
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

#[cfg(test)]
mod tests {
    use pl_supervisor::{decode, encode_frame};

    use super::*;

    #[test]
    fn verdicts_do_not_nest() {
        let case = Verdict { stdout: "1\n".to_owned(), exit: Some(0), ..Verdict::default() };
        let verdict = Verdict { cases: vec![case.clone(), case], ..Verdict::default() };
        let frame = encode_frame(&verdict).unwrap();
        assert_eq!(decode::<Verdict>(&frame[4..]), Some(verdict));
        // A verdict without anything but a case, which is such a verdict itself, and so on.
        let nested: Vec<u8> = [0, 0, 0, 0, 0, 0, 1].repeat(1_000_000);
        assert_eq!(decode::<Verdict>(&nested), None);
    }
}
