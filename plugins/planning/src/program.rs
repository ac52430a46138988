//! Programs of agents and their results.

use pl_sdk::prelude::*;
use pl_sdk::sandbox::{Ending, Job, Verdict};

/// Characters kept of a program's output and error, so that they fit into the context of a small model.
const MAX_SHOWN: usize = 1000;

/// A program and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramRun {
    /// The program.
    pub code: String,
    /// The end of its output.
    pub output: String,
    /// Reason why its output doesn't count, in one line.
    pub error: Option<String>,
    /// The plan that it printed.
    pub plan: Option<String>,
}

/// Returns the job that runs a Python program.
pub fn job(code: &str) -> Job {
    Job { language: "python".to_owned(), source: code.to_owned(), stdin: String::new(), files: Vec::new() }
}

impl ProgramRun {
    /// Returns the result of a program from its verdict. `find_plan` finds the plan in its output.
    pub fn new(code: &str, verdict: Option<Verdict>, find_plan: impl Fn(&str) -> Option<String>) -> Self {
        let (output, error) = match verdict {
            Some(verdict) => (end(verdict.stdout.trim_end()), error(&verdict)),
            None => (String::new(), Some("the sandbox gave no verdict".to_owned())),
        };
        // The output of a failed program is no plan.
        let plan = if error.is_none() { find_plan(&output) } else { None };
        Self { code: code.to_owned(), output, error, plan }
    }

    /// Stands for an answer without a program.
    pub fn missing() -> Self {
        let error = Some("there is no program".to_owned());
        Self { code: String::new(), output: String::new(), error, plan: None }
    }
}

fn error(verdict: &Verdict) -> Option<String> {
    let reason = match verdict.ending {
        Ending::Ok if verdict.stdout.trim().is_empty() => "the program printed nothing",
        Ending::Ok => return None,
        Ending::Error => {
            // The last line of a Python traceback names the exception.
            let last = verdict.stderr.lines().map(str::trim).rfind(|line| !line.is_empty());
            return Some(last.map_or("the program failed".to_owned(), end));
        }
        Ending::Timeout => "the program took too long",
        Ending::Memory => "the program used too much memory",
        Ending::OutputLimit => "the program printed too much",
        Ending::ProcessLimit => "the program started too many processes",
        Ending::LostWorker => "the sandbox lost the program",
    };
    Some(reason.to_owned())
}

/// Returns the end of a text: programs print the plan last.
fn end(text: &str) -> String {
    let excess = text.chars().count().saturating_sub(MAX_SHOWN);
    text.chars().skip(excess).collect()
}

#[cfg(test)]
mod tests {
    use pl_sdk::services::testing;

    use super::*;

    fn run(verdict: Option<Verdict>) -> (Option<String>, Option<String>) {
        let run = ProgramRun::new("x", verdict, |output| Some(output.to_owned()));
        (run.plan, run.error)
    }

    #[test]
    fn a_plan_is_the_output_of_a_program_that_ended_well() {
        assert_eq!(run(Some(testing::printed("[1]\n"))), (Some("[1]".to_owned()), None));
        let long = format!("{}[1]", "x".repeat(5000));
        let (plan, _) = run(Some(testing::printed(&long)));
        assert!(plan.is_some_and(|plan| plan.len() == MAX_SHOWN && plan.ends_with("x[1]")));
        assert_eq!(run(Some(testing::printed(" \n"))).1.as_deref(), Some("the program printed nothing"));
        let stderr = "Traceback\nNameError: x\n\n".to_owned();
        let failed = Verdict { ending: Ending::Error, exit: Some(1), stdout: "[1]".to_owned(), stderr };
        assert_eq!(run(Some(failed.clone())), (None, Some("NameError: x".to_owned())));
        for ending in [Ending::Timeout, Ending::Memory, Ending::OutputLimit, Ending::LostWorker] {
            let (plan, error) = run(Some(Verdict { ending, ..failed.clone() }));
            assert!(plan.is_none() && error.is_some(), "{ending:?}");
        }
        assert_eq!(run(None), (None, Some("the sandbox gave no verdict".to_owned())));
    }
}
