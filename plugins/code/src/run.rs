//! Runs of programs and their tests in the sandbox.

use pl_sdk::prelude::*;
use pl_sdk::sandbox::{Ending, Job, Verdict};
use serde_json::{Value, json};

use crate::record::Problem;

/// Python program that runs a program and its tests in one process and counts asserts.
const HARNESS: &str = include_str!("harness.py");

/// Characters kept of the end of an error, whose last line names the exception.
const MAX_ERROR: usize = 800;

/// Numbers of a problem's assert statements. The tests passed if and only if all of them held.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Number of asserts that held.
    pub held: u32,
    /// Number of asserts. 0 if nothing was tested.
    pub total: u32,
}

/// A program and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// The program.
    pub program: String,
    /// True if the program itself ran to its end, with any result of its tests.
    pub ran: bool,
    /// Test result.
    pub tally: Tally,
    /// First error, cut to its last lines.
    pub error: Option<String>,
}

/// Last line of the harness's output.
#[derive(Deserialize)]
struct Report {
    key: String,
    ran: bool,
    held: u32,
    total: u32,
    error: Option<String>,
}

impl Tally {
    /// Returns true if there are asserts and all of them held.
    pub fn passed(self) -> bool {
        self.total > 0 && self.held == self.total
    }

    /// Returns the share of asserts that held, 0 to 1.
    pub fn share(self) -> f64 {
        f64::from(self.held) / f64::from(self.total.max(1))
    }
}

/// Returns the job that tests `program`. `key` authenticates the report: the program can't know it before it
/// starts.
pub fn to_job(problem: &Problem, program: &str, key: &str) -> Job {
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
    /// Returns the result of `program` from its verdict.
    pub fn from_verdict(program: &str, key: &str, verdict: Option<Verdict>) -> Self {
        let failed = |reason: String| Self {
            program: program.to_owned(),
            ran: false,
            tally: Tally::default(),
            error: Some(last_lines(&reason)),
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
                error: error.as_deref().map(last_lines),
            },
            None => failed("the program ended before it could be tested".to_owned()),
        }
    }
}

/// Returns the end of a text, from the start of a line if possible.
fn last_lines(text: &str) -> String {
    let length = text.chars().count();
    if length <= MAX_ERROR {
        return text.to_owned();
    }
    let end: String = text.chars().skip(length - MAX_ERROR).collect();
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
    fn a_report_needs_the_key() {
        let attempt = Attempt::from_verdict("x", "17", Some(report("17", 3, None)));
        assert!(attempt.ran && attempt.tally.passed() && attempt.error.is_none());
        let forged = Attempt::from_verdict("x", "17", Some(report("18", 3, None)));
        assert_eq!((forged.tally, forged.ran), (Tally::default(), false));
        assert!(forged.error.unwrap().contains("before it could be tested"));
        assert!(Attempt::from_verdict("x", "17", Some(testing::printed(""))).error.is_some());
    }

    #[test]
    fn a_partial_success_is_not_a_pass() {
        let attempt = Attempt::from_verdict("x", "1", Some(report("1", 2, Some("AssertionError"))));
        assert!(!attempt.tally.passed());
        assert!((attempt.tally.share() - 2.0 / 3.0).abs() < 1e-12);
        assert!(!Tally::default().passed());
        assert_eq!(Tally::default().share(), 0.0);
    }

    #[test]
    fn errors_are_cut_to_their_last_lines() {
        let long = format!("{}\nlast but one\nNameError: x", "line\n".repeat(500));
        let verdict = Verdict { ending: Ending::Error, exit: Some(1), stdout: String::new(), stderr: long };
        let error = Attempt::from_verdict("x", "1", Some(verdict)).error.unwrap();
        assert!(error.len() <= MAX_ERROR && error.starts_with("line\n"), "{error}");
        assert!(error.ends_with("last but one\nNameError: x"), "{error}");
        for ending in [Ending::Timeout, Ending::Memory, Ending::OutputLimit, Ending::LostWorker] {
            let verdict = Verdict { ending, ..report("1", 3, None) };
            let attempt = Attempt::from_verdict("x", "1", Some(verdict));
            assert!(attempt.error.is_some() && !attempt.tally.passed(), "{ending:?}");
        }
    }
}
