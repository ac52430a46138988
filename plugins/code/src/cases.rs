//! Grading by cases: the program runs once for each, and its result is compared here.

use pl_sdk::prelude::*;
use pl_sdk::sandbox::{Ending, Job, Verdict};
use serde_json::Value;

use crate::attempt::{ProgramRun, Tally, exceeded, failure, last_lines, shorten};
use crate::candidate::{self, Call, CallResult};
use crate::data;
use crate::grading::{BATCH, Grading};

/// Characters kept of a program's result.
pub const MAX_RESULT: usize = 300;

/// A test that one run of a program decides.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Case {
    /// A whole program.
    Input {
        /// Standard input.
        input: String,
        /// Standard output, compared word by word.
        output: String,
    },
    /// A function.
    Call(CallCase),
}

impl Case {
    /// Returns true if both cases give a program the same input, whatever they expect of it: the same words, or equal
    /// arguments of a function.
    pub fn same_input(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Input { input: one, .. }, Self::Input { input: other, .. }) => same_words(one, other),
            (Self::Call(one), Self::Call(other)) => {
                let values =
                    |case: &CallCase| case.calls.last().into_iter().flat_map(Call::values).cloned().collect();
                data::equal(&Value::Array(values(one)), &Value::Array(values(other)))
            }
            _ => false,
        }
    }
}

/// Calls of a program's functions with the result of the last one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallCase {
    /// Calls of one process, in order.
    pub calls: Vec<Call>,
    /// Results that are right, as data of `values.py`.
    pub accepted: Vec<Value>,
    /// True if the right results come from JSON, which has no tuples: then lists stand for them.
    pub json: bool,
}

/// Result of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaseResult {
    /// True if the result is right.
    pub held: bool,
    /// The program's result, or the reason for which it has none, cut to [`MAX_RESULT`] characters.
    pub printed: String,
    /// Reason why there is no result, as the program printed it.
    error: Option<String>,
}

impl CaseResult {
    fn missing(error: String) -> Self {
        let last = error.trim_end().lines().next_back().unwrap_or_default();
        Self { held: false, printed: shorten(last, MAX_RESULT), error: Some(error) }
    }

    fn new(held: bool, result: &str) -> Self {
        Self { held, printed: shorten(result.trim_end(), MAX_RESULT), error: None }
    }
}

impl CallCase {
    fn result(&self, answer: &CallResult) -> CaseResult {
        match answer {
            CallResult::Value { value, .. } => {
                let lists = self.json.then(|| data::without_tuples(value));
                let compared = lists.as_ref().unwrap_or(value);
                let held = self.accepted.iter().any(|right| data::equal(right, compared));
                CaseResult::new(held, &data::render(value))
            }
            CallResult::Raised { error, .. } => CaseResult::missing(error.clone()),
            CallResult::Object { .. } => CaseResult::new(false, "an object that isn't plain data"),
        }
    }
}

/// The grading of one program.
pub struct CaseGrading<'a> {
    /// Python code before the program, for calls.
    prelude: &'a str,
    cases: Vec<&'a Case>,
    program: &'a str,
    /// Results of the cases that have run.
    results: Vec<CaseResult>,
    /// True if the program itself ran: a whole program to its end, or one with functions was loaded.
    ran: bool,
    /// True if the program ran into a limit or can't be loaded. It isn't run again.
    ended: bool,
    load_error: Option<String>,
}

impl<'a> CaseGrading<'a> {
    /// Creates the grading of `program`.
    pub fn new(prelude: &'a str, cases: impl IntoIterator<Item = &'a Case>, program: &'a str) -> Self {
        let cases = cases.into_iter().collect();
        Self { prelude, cases, program, results: Vec::new(), ran: false, ended: false, load_error: None }
    }

    /// Returns the result of each case. What did not run, because of a limit, has not held.
    pub fn into_results(mut self) -> Vec<CaseResult> {
        let reason =
            self.load_error.as_deref().unwrap_or("not run, because an earlier test ran into a limit");
        let missing = CaseResult::missing(reason.to_owned());
        self.results.resize(self.cases.len(), missing);
        self.results
    }

    /// Returns the next cases to run, the first alone.
    fn batch(&self) -> &[&'a Case] {
        let rest = self.cases.get(self.results.len()..).unwrap_or_default();
        let count = match (self.ended, self.results.len()) {
            (true, _) => 0,
            (false, 0) => 1,
            (false, _) => BATCH,
        };
        rest.get(..count).unwrap_or(rest)
    }

    fn take_one(&mut self, case: &Case, verdict: &Verdict) -> CaseResult {
        self.ended |= exceeded(verdict);
        match case {
            Case::Input { output, .. } => {
                let ended = verdict.ending == Ending::Ok;
                self.ran |= ended;
                match ended {
                    true => CaseResult::new(same_words(&verdict.stdout, output), &verdict.stdout),
                    false => CaseResult::missing(failure(verdict)),
                }
            }
            Case::Call(case) => {
                let output = candidate::read(verdict, std::slice::from_ref(&case.calls));
                match output.load_error {
                    Some(error) if !self.ran => {
                        self.ended = true;
                        self.load_error = Some(error);
                    }
                    Some(_) => {}
                    None => self.ran = true,
                }
                let answer = output.answers.into_iter().flatten().next_back();
                match (&self.load_error, answer) {
                    (Some(error), _) => CaseResult::missing(error.clone()),
                    (None, Some(answer)) => case.result(&answer),
                    (None, None) => CaseResult::missing(failure(verdict)),
                }
            }
        }
    }
}

impl Grading for CaseGrading<'_> {
    fn jobs(&mut self) -> Vec<Job> {
        let job = |case: &&Case| match case {
            Case::Input { input, .. } => Job {
                language: "python".to_owned(),
                source: self.program.to_owned(),
                stdin: input.clone(),
                files: Vec::new(),
            },
            Case::Call(case) => candidate::job(self.prelude, self.program, std::slice::from_ref(&case.calls)),
        };
        self.batch().iter().map(job).collect()
    }

    fn take(&mut self, verdicts: &[Verdict]) -> Result<()> {
        let batch = self.batch().to_vec();
        for (case, verdict) in batch.iter().zip(verdicts) {
            let result = self.take_one(case, verdict);
            self.results.push(result);
        }
        // A sandbox that returns fewer verdicts would otherwise be asked for ever.
        self.ended |= verdicts.len() < batch.len();
        Ok(())
    }

    fn attempt(&self) -> ProgramRun {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let held = self.results.iter().filter(|result| result.held).count();
        let failed = self.results.iter().find(|result| !result.held);
        let error = failed.map(|failed| {
            let reason = failed.error.as_deref().unwrap_or("Wrong output.");
            format!("A hidden test failed.\n{reason}")
        });
        ProgramRun {
            program: self.program.to_owned(),
            ran: self.ran,
            tally: Tally { held: count(held), total: count(self.cases.len()) },
            error: self.load_error.clone().or(error).as_deref().map(last_lines),
        }
    }
}

/// Compares outputs as contests do: white space only separates words.
fn same_words(printed: &str, expected: &str) -> bool {
    printed.split_whitespace().eq(expected.split_whitespace())
}

#[cfg(test)]
mod tests {
    use pl_sdk::services::testing;
    use serde_json::json;

    use super::*;

    fn cases() -> Vec<Case> {
        let case = |n: u32| Case::Input { input: n.to_string(), output: format!("{}\n", 2 * n) };
        (0..12).map(case).collect()
    }

    fn grade_cases(
        cases: &[Case],
        run: impl Fn(&Job) -> Verdict + 'static,
    ) -> (ProgramRun, Vec<CaseResult>, u32) {
        let (sender, runs) = std::sync::mpsc::channel();
        testing::set_sandbox(move |job| {
            sender.send(()).unwrap();
            run(job)
        });
        let mut grading = CaseGrading::new("prelude", cases, "program");
        crate::grading::run(&mut [&mut grading]).unwrap();
        (grading.attempt(), grading.into_results(), runs.try_iter().map(|()| 1).sum())
    }

    fn grade(run: impl Fn(u32) -> Verdict + 'static) -> (ProgramRun, u32) {
        let (attempt, results, runs) = grade_cases(&cases(), move |job| run(job.stdin.parse().unwrap()));
        assert_eq!(results.len(), 12);
        (attempt, runs)
    }

    #[test]
    fn outputs_are_compared_by_words() {
        let (attempt, runs) = grade(|n| testing::printed(&format!(" {}", 2 * n)));
        assert!(attempt.tally.passed() && attempt.ran && attempt.error.is_none());
        assert_eq!(runs, 12);
        let (attempt, _) = grade(|n| testing::printed(&format!("{}", if n < 4 { 2 * n } else { 0 })));
        assert_eq!(attempt.tally, Tally { held: 4, total: 12 });
        assert_eq!(attempt.error.unwrap(), "A hidden test failed.\nWrong output.");
    }

    #[test]
    fn a_program_that_runs_into_a_limit_is_not_run_on() {
        let timeout = |n| match n {
            3 => Verdict { ending: Ending::Timeout, ..testing::printed("") },
            n => testing::printed(&(2 * n).to_string()),
        };
        let (attempt, runs) = grade(timeout);
        assert_eq!((attempt.tally, runs), (Tally { held: 8, total: 12 }, 9));
        assert!(attempt.error.unwrap().ends_with("took too long"));
    }

    /// Returns a case in which the last call returns `right`.
    fn call(calls: Vec<Call>, right: Value, json: bool) -> Case {
        Case::Call(CallCase { calls, accepted: vec![right], json })
    }

    #[test]
    fn results_of_calls_are_compared_as_data() {
        let two = json!({"tuple": [1, 2]});
        let cases = [
            call(vec![Call::function("f", vec![json!(1)])], two.clone(), false),
            call(vec![Call::function("f", vec![json!(1)])], json!([1, 2]), false),
            call(Call::method("Solution", "f", vec![json!(1)]), json!([1, 2]), true),
        ];
        let (attempt, results, runs) = grade_cases(&cases, move |job| {
            // A program sees the calls and nothing else.
            assert!(job.stdin.starts_with("{\"prelude\":\"prelude\",\"program\":\"program\"}\n"));
            let calls = job.stdin.lines().count() - 1;
            let answer = json!({"value": two, "changed": {}}).to_string();
            let objects = "{\"object\":true}\n".repeat(calls - 1);
            testing::printed(&format!("{{\"loaded\":true}}\n{objects}{answer}\n"))
        });
        assert_eq!(results.iter().map(|result| result.held).collect::<Vec<_>>(), [true, false, true]);
        assert_eq!((attempt.tally, attempt.ran, runs), (Tally { held: 2, total: 3 }, true, 3));
        assert_eq!(results[0].printed, "(1, 2)");
    }

    #[test]
    fn equal_inputs_are_found() {
        let f = |args: Vec<Value>| call(vec![Call::function("f", args)], json!(1), false);
        let input = |input: &str| Case::Input { input: input.to_owned(), output: "1".to_owned() };
        let float = json!({"float": "0x1.0000000000000p+0"});
        assert!(f(vec![json!(1), json!("a")]).same_input(&f(vec![float, json!("a")])));
        assert!(!f(vec![json!(1)]).same_input(&f(vec![json!(1), json!(2)])));
        assert!(input("1 2\n").same_input(&input(" 1  2")) && !input("12").same_input(&input("1 2")));
        assert!(!input("1").same_input(&f(vec![json!(1)])));
    }

    #[test]
    fn a_program_that_does_not_load_runs_once() {
        let cases = vec![call(vec![Call::function("f", Vec::new())], json!(1), true); 5];
        let not_loaded =
            |_: &Job| testing::printed("{\"loaded\":false,\"error\":\"Traceback\\nSyntaxError: x\"}\n");
        let (attempt, results, runs) = grade_cases(&cases, not_loaded);
        assert_eq!((attempt.ran, attempt.tally.held, runs), (false, 0, 1));
        assert_eq!(attempt.error.as_deref(), Some("Traceback\nSyntaxError: x"));
        assert!(
            results.iter().all(|result| !result.held && result.printed == "SyntaxError: x"),
            "{results:?}"
        );
    }
}
