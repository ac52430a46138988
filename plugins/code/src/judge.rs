//! Jobs that run the tests of a task, without the program: its answers are looked up.

use pl_sdk::prelude::*;
use pl_sdk::sandbox::{Ending, Job, Verdict};
use serde_json::json;

use crate::candidate::{Call, CallResult};
use crate::record::Asserts;

/// Python program that runs tests on answered calls.
const SOURCE: &str = concat!(include_str!("values.py"), "\n", include_str!("judge.py"));

/// Calls and their answers.
#[derive(Debug, Clone, Serialize)]
pub struct Sequence {
    /// Calls that depend on each other, in order.
    pub calls: Vec<Call>,
    /// One for each call.
    pub answers: Vec<CallResult>,
}

/// Last line of a judge's output.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Report {
    /// The tests need answers.
    Wanted {
        /// Number of assert statements.
        total: u32,
        /// Sequences of calls to be answered.
        wanted: Vec<Vec<Call>>,
    },
    /// The tests have decided.
    Decided {
        /// Number of assert statements.
        total: u32,
        /// Number of those that held.
        held: u32,
        /// The first failure.
        failure: Option<Failure>,
    },
}

/// A failure of the tests. It quotes nothing of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Failure {
    /// Number of the assert statement. `None` if the tests broke off outside of one.
    pub assert: Option<usize>,
    /// Name of the exception's type.
    #[serde(rename = "type")]
    pub exception: String,
    /// Sequence and position of the call whose exception it was.
    pub cause: Option<(usize, usize)>,
}

/// Returns the job that runs the tests on answered calls. `seed` is that of the tests' random numbers.
pub fn job(tests: &Asserts, seed: u64, sequences: &[Sequence]) -> Job {
    let Asserts { prelude, names, code, .. } = tests;
    let seed = seed.to_string();
    let stdin =
        json!({ "prelude": prelude, "names": names, "tests": code, "seed": seed, "sequences": sequences });
    Job {
        language: "python".to_owned(),
        source: SOURCE.to_owned(),
        stdin: stdin.to_string(),
        files: Vec::new(),
    }
}

/// Reads what a job of [`job`] printed.
///
/// # Errors
/// The reason, for the author of the task: it may quote tests, and must not reach a view.
pub fn read(verdict: &Verdict) -> std::result::Result<Report, Unread> {
    let line = verdict.stdout.lines().last().filter(|_| verdict.ending == Ending::Ok);
    line.and_then(|line| serde_json::from_str(line).ok()).ok_or_else(|| Unread {
        ending: verdict.ending,
        stderr: verdict.stderr.lines().last().unwrap_or_default().to_owned(),
    })
}

/// A judge's job without a report.
#[derive(Debug, Clone)]
pub struct Unread {
    /// Reason why it ended.
    pub ending: Ending,
    /// Last line that it printed as an error. It may quote tests.
    pub stderr: String,
}

#[cfg(test)]
mod tests {
    use pl_sdk::services::testing;

    use super::*;

    #[test]
    fn a_report_is_the_last_line_of_a_job_that_ended_well() {
        let line = "noise\n{\"total\":3,\"held\":2,\"failure\":{\"assert\":1,\"type\":\"KeyError\",\"cause\":[0,2]}}\n";
        let verdict = testing::printed(line);
        let failure = Failure { assert: Some(1), exception: "KeyError".to_owned(), cause: Some((0, 2)) };
        let decided = Report::Decided { total: 3, held: 2, failure: Some(failure) };
        assert_eq!(read(&verdict).unwrap(), decided);
        let wanted = read(&testing::printed("{\"total\":1,\"wanted\":[]}")).unwrap();
        assert_eq!(wanted, Report::Wanted { total: 1, wanted: Vec::new() });
        assert!(read(&Verdict { ending: Ending::Error, ..verdict }).is_err());
        assert!(read(&testing::printed("{\"total\":-1,\"held\":2,\"failure\":null}")).is_err());
    }
}
