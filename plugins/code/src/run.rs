//! One program under the tests of its problem, in the sandbox.

use pl_sdk::prelude::*;
use pl_sdk::sandbox::{Ending, Job, Verdict};
use serde_json::{Value, json};

use crate::record::Problem;

/// Runs a program and its tests in one process and counts asserts.
const HARNESS: &str = include_str!("harness.py");

/// Characters kept of an error, from its end: the line that names the exception is the last one.
const SHOWN_ERROR: usize = 800;

/// How many of a problem's assert statements held. All of them, exactly where the tests passed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Those that held.
    pub held: u32,
    /// All that there are; 0 where nothing was tested.
    pub total: u32,
}

/// A program and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The program.
    pub program: String,
    /// The program itself ran to its end, whatever the tests said afterwards.
    pub ran: bool,
    /// What the tests said.
    pub tally: Tally,
    /// What went wrong first, cut to its last lines.
    pub error: Option<String>,
}

/// The harness's last line.
#[derive(Deserialize)]
struct Report {
    key: String,
    ran: bool,
    held: u32,
    total: u32,
    error: Option<String>,
}

impl Tally {
    /// All asserts held, and there were some.
    pub fn passed(self) -> bool {
        self.total > 0 && self.held == self.total
    }

    /// The share of asserts that held, 0 to 1.
    pub fn share(self) -> f64 {
        f64::from(self.held) / f64::from(self.total.max(1))
    }
}

/// The job that tests `program`. `key` is what a program can't know before it is started: a report without it
/// is a forgery.
pub fn job(problem: &Problem, program: &str, key: &str) -> Job {
    let Problem { prelude, tests, shown, .. } = problem;
    let input: Value =
        json!({"prelude": prelude, "program": program, "tests": tests, "shown": shown, "key": key});
    Job {
        language: "python".to_owned(),
        source: HARNESS.to_owned(),
        stdin: input.to_string(),
        files: Vec::new(),
    }
}

impl Attempt {
    /// Reads the verdict on `program`.
    pub fn read(program: &str, key: &str, verdict: Option<Verdict>) -> Self {
        let failed = |why: String| Self {
            program: program.to_owned(),
            ran: false,
            tally: Tally::default(),
            error: Some(last(&why)),
        };
        let Some(Verdict { ending, stdout, stderr, .. }) = verdict else {
            return failed("the sandbox gave no verdict".to_owned());
        };
        match ending {
            Ending::Ok => {}
            Ending::Error if stderr.trim().is_empty() => return failed("the program failed".to_owned()),
            Ending::Error => return failed(stderr.trim_end().to_owned()),
            Ending::Timeout => return failed("the program took too long".to_owned()),
            Ending::Memory => return failed("the program used too much memory".to_owned()),
            Ending::OutputLimit => return failed("the program printed too much".to_owned()),
            Ending::ProcessLimit => return failed("the program started too many processes".to_owned()),
            Ending::LostWorker => return failed(format!("the sandbox lost the program: {}", stderr.trim())),
        }
        let report = stdout.lines().last().and_then(|line| serde_json::from_str::<Report>(line).ok());
        match report.filter(|report| report.key == key) {
            Some(Report { ran, held, total, error, .. }) => Self {
                program: program.to_owned(),
                ran,
                tally: Tally { held, total },
                error: error.as_deref().map(last),
            },
            None => failed("the program ended before it could be tested".to_owned()),
        }
    }
}

/// The end of a text, from the beginning of a line where one begins in it.
fn last(text: &str) -> String {
    let length = text.chars().count();
    if length <= SHOWN_ERROR {
        return text.to_owned();
    }
    let end: String = text.chars().skip(length - SHOWN_ERROR).collect();
    end.split_once('\n').map_or(end.as_str(), |(_, lines)| lines).to_owned()
}

#[cfg(test)]
mod tests {
    use pl_sdk::services::testing;

    use super::*;

    fn report(key: &str, held: u32, error: Option<&str>) -> Verdict {
        let report = json!({"key": key, "ran": true, "held": held, "total": 3, "error": error});
        testing::printed(&format!("what the program printed\n{report}\n"))
    }

    #[test]
    fn only_the_key_makes_a_report() {
        let attempt = Attempt::read("x", "17", Some(report("17", 3, None)));
        assert!(attempt.ran && attempt.tally.passed() && attempt.error.is_none());
        let forged = Attempt::read("x", "17", Some(report("18", 3, None)));
        assert_eq!((forged.tally, forged.ran), (Tally::default(), false));
        assert!(forged.error.unwrap().contains("before it could be tested"));
        assert!(Attempt::read("x", "17", Some(testing::printed(""))).error.is_some());
    }

    #[test]
    fn a_share_is_not_a_pass() {
        let attempt = Attempt::read("x", "1", Some(report("1", 2, Some("AssertionError"))));
        assert!(!attempt.tally.passed());
        assert!((attempt.tally.share() - 2.0 / 3.0).abs() < 1e-12);
        assert!(!Tally::default().passed());
        assert_eq!(Tally::default().share(), 0.0);
    }

    #[test]
    fn errors_are_cut_to_their_last_lines() {
        let long = format!("{}\nlast but one\nNameError: x", "line\n".repeat(500));
        let verdict = Verdict { ending: Ending::Error, exit: Some(1), stdout: String::new(), stderr: long };
        let error = Attempt::read("x", "1", Some(verdict)).error.unwrap();
        assert!(error.len() <= SHOWN_ERROR && error.starts_with("line\n"), "{error}");
        assert!(error.ends_with("last but one\nNameError: x"), "{error}");
        for ending in [Ending::Timeout, Ending::Memory, Ending::OutputLimit, Ending::LostWorker] {
            let verdict = Verdict { ending, ..report("1", 3, None) };
            let attempt = Attempt::read("x", "1", Some(verdict));
            assert!(attempt.error.is_some() && !attempt.tally.passed(), "{ending:?}");
        }
    }
}
