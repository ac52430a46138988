//! Grading by inputs and outputs: the program runs once for each input, and its output is compared here.

use pl_sdk::prelude::*;
use pl_sdk::sandbox::{Ending, Job, Verdict};

use crate::attempt::{ProgramRun, Tally, exceeded, failure, last_lines};
use crate::grading::{BATCH, Grading};
use crate::record::Case;

/// The grading of one program.
pub struct CaseGrading<'a> {
    cases: &'a [Case],
    program: &'a str,
    /// Number of cases that have run.
    finished: usize,
    held: u32,
    ran: bool,
    /// True if the program ran into a limit. It isn't run again.
    exceeded: bool,
    error: Option<String>,
}

impl<'a> CaseGrading<'a> {
    /// Creates the grading of `program`.
    pub fn new(cases: &'a [Case], program: &'a str) -> Self {
        Self { cases, program, finished: 0, held: 0, ran: false, exceeded: false, error: None }
    }

    /// Returns the next cases to run, the first alone.
    fn batch(&self) -> &'a [Case] {
        let rest = self.cases.get(self.finished..).unwrap_or_default();
        let count = match (self.exceeded, self.finished) {
            (true, _) => 0,
            (false, 0) => 1,
            (false, _) => BATCH,
        };
        rest.get(..count).unwrap_or(rest)
    }
}

impl Grading for CaseGrading<'_> {
    fn jobs(&mut self) -> Vec<Job> {
        let job = |case: &Case| Job {
            language: "python".to_owned(),
            source: self.program.to_owned(),
            stdin: case.input.clone(),
            files: Vec::new(),
        };
        self.batch().iter().map(job).collect()
    }

    fn take(&mut self, verdicts: &[Verdict]) -> Result<()> {
        let batch = self.batch();
        // A sandbox that returns fewer verdicts would otherwise be asked for ever.
        self.finished += batch.len();
        self.exceeded |= verdicts.len() < batch.len();
        for (case, verdict) in batch.iter().zip(verdicts) {
            let ended = verdict.ending == Ending::Ok;
            self.ran |= ended;
            self.exceeded |= exceeded(verdict);
            if ended && same_words(&verdict.stdout, &case.output) {
                self.held += 1;
            } else {
                let reason = if ended { "Wrong output.".to_owned() } else { failure(verdict) };
                self.error.get_or_insert_with(|| format!("A hidden test failed.\n{reason}"));
            }
        }
        Ok(())
    }

    fn attempt(&self) -> ProgramRun {
        let total = u32::try_from(self.cases.len()).unwrap_or(u32::MAX);
        ProgramRun {
            program: self.program.to_owned(),
            ran: self.ran,
            tally: Tally { held: self.held.min(total), total },
            error: self.error.as_deref().map(last_lines),
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

    use super::*;

    fn cases() -> Vec<Case> {
        let case = |n: u32| Case { input: n.to_string(), output: format!("{}\n", 2 * n) };
        (0..12).map(case).collect()
    }

    fn grade(run: impl Fn(u32) -> Verdict + 'static) -> (ProgramRun, u32) {
        let cases = cases();
        let (sender, runs) = std::sync::mpsc::channel();
        testing::set_sandbox(move |job| {
            sender.send(()).unwrap();
            run(job.stdin.parse().unwrap())
        });
        let mut gradings: Vec<Box<dyn Grading>> = vec![Box::new(CaseGrading::new(&cases, "program"))];
        crate::grading::run(&mut gradings).unwrap();
        (gradings[0].attempt(), runs.try_iter().map(|()| 1).sum())
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
}
