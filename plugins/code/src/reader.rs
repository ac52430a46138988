//! Jobs that read a tester's assert statements as data. Nothing of the statements is executed, there or anywhere else.

use pl_sdk::prelude::*;
use pl_sdk::sandbox::{Ending, Job, Verdict};
use serde_json::{Value, json};

use crate::candidate::Call;

/// Python program that reads assert statements.
const SOURCE: &str = concat!(include_str!("values.py"), "\n", include_str!("reader.py"));

/// An assert statement as data.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadAssert {
    /// Calls of the functions under test; the last one's result is compared.
    pub calls: Vec<Call>,
    /// The result that the statement expects.
    pub expected: Value,
    /// The call as text.
    pub input: String,
    /// The expected result as text.
    pub output: String,
}

/// Returns the job that reads `asserts`, each of which may call one of `functions`.
pub fn job(asserts: &[&str], functions: &[String]) -> Job {
    let stdin = json!({ "asserts": asserts, "functions": functions }).to_string();
    Job { language: "python".to_owned(), source: SOURCE.to_owned(), stdin, files: Vec::new() }
}

/// Returns the statements of a job of [`job`], `None` for those that aren't read.
pub fn read(verdict: &Verdict, count: usize) -> Vec<Option<ReadAssert>> {
    let line = verdict.stdout.lines().next_back().filter(|_| verdict.ending == Ending::Ok);
    let mut found: Vec<Option<ReadAssert>> =
        line.and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
    found.resize(count, None);
    found
}

#[cfg(test)]
mod tests {
    use pl_sdk::services::testing;

    use super::*;

    #[test]
    fn a_job_that_breaks_reads_nothing() {
        let call = json!({"function": {"name": "f"}, "args": [1], "kwargs": {}});
        let test = json!({"calls": [call], "expected": 2, "input": "f(1)", "output": "2"});
        let printed = json!([null, test]).to_string();
        let found = read(&testing::printed(&printed), 2);
        assert!(found[0].is_none() && found[1].as_ref().is_some_and(|test| test.output == "2"), "{found:?}");
        assert_eq!(read(&testing::printed(&printed), 1).len(), 1);
        let lost = Verdict { ending: Ending::Memory, ..testing::printed(&printed) };
        assert_eq!(read(&lost, 2), [None, None]);
        assert_eq!(read(&testing::printed("[1, 2]"), 2), [None, None]);
    }
}
