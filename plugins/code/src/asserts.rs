//! Grading by assert statements: the tests run in a judge's job, and the program's calls in candidate jobs.

use pl_sdk::prelude::*;
use pl_sdk::sandbox::{Ending, Job, Verdict};

use crate::attempt::{ProgramRun, Tally, exceeded, failure, last_lines};
use crate::candidate::{self, Call, CallResult};
use crate::grading::{BATCH, Grading};
use crate::judge::{self, Failure, Report, Sequence};
use crate::record::Asserts;

/// Limit of the judge's passes. A test whose calls depend on each other's results needs one for each call.
const MAX_PASSES: u32 = 32;

/// The grading of one program.
pub struct AssertGrading<'a> {
    tests: &'a Asserts,
    program: &'a str,
    seed: u64,
    /// Sequences of calls that one process answers, if there are enough jobs for that.
    calls_per_job: usize,
    /// Number of candidate jobs that are left.
    jobs: usize,
    /// Sequences of calls that one process answers in this round.
    chunk: usize,
    /// Answered calls.
    sequences: Vec<Sequence>,
    /// Calls that no job has yet.
    waiting: Vec<Vec<Call>>,
    /// Calls of the running jobs.
    running: Vec<Vec<Vec<Call>>>,
    step: Step,
    passes: u32,
    ran: bool,
    /// The limit that the program ran into. It isn't run again.
    exceeded: Option<String>,
    tally: Tally,
    error: Option<String>,
}

/// Step of a grading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Runs the tests on the answers so far.
    Judge,
    /// Runs the program on the calls that wait.
    Candidate,
    /// Has the result.
    Done,
}

impl<'a> AssertGrading<'a> {
    /// Creates the grading of `program` by about `jobs` candidate jobs. `seed` is that of the tests' random numbers.
    pub fn new(tests: &'a Asserts, program: &'a str, seed: u64, calls_per_job: usize, jobs: usize) -> Self {
        // Without tests the program is only loaded.
        let step = if tests.code.is_empty() { Step::Candidate } else { Step::Judge };
        Self {
            tests,
            program,
            seed,
            calls_per_job,
            jobs,
            chunk: 1,
            sequences: Vec::new(),
            waiting: Vec::new(),
            running: Vec::new(),
            step,
            passes: 0,
            ran: false,
            exceeded: None,
            tally: Tally::default(),
            error: None,
        }
    }

    fn take_judge(&mut self, verdict: &Verdict) -> Result<()> {
        self.passes += 1;
        let unanswered = self.sequences.is_empty();
        match judge::read(verdict) {
            Ok(Report::Wanted { total, wanted }) => {
                self.tally.total = total;
                self.waiting = wanted;
                if self.passes == MAX_PASSES {
                    self.end(format!("The tests need more than {MAX_PASSES} rounds of calls."));
                } else if self.exceeded.is_some() {
                    self.answer_the_rest();
                } else {
                    self.plan_jobs();
                    self.step = Step::Candidate;
                }
            }
            Ok(Report::Decided { failure, .. }) if unanswered => {
                let reason = failure.map_or_else(String::new, |failure| format!(": {}", failure.exception));
                return Err(Error::task(format!("the tests end before they call the program{reason}")));
            }
            Ok(Report::Decided { total, held, failure }) => {
                self.tally = Tally { held: held.min(total), total };
                self.error = failure.map(|failure| self.explain(&failure));
                self.step = Step::Done;
            }
            Err(unread) if unanswered && unread.ending != Ending::LostWorker => {
                let judge::Unread { ending, stderr } = unread;
                return Err(Error::task(format!(
                    "the tests do not run by themselves ({ending:?}): {stderr}"
                )));
            }
            // What the judge printed may quote tests.
            Err(_) => self.end("The tests broke off with the program's results.".to_owned()),
        }
        Ok(())
    }

    /// Decides how many calls share a process. A round takes half of the jobs that are left, so that later rounds have some.
    fn plan_jobs(&mut self) {
        let most = (self.jobs / 2).max(1);
        self.chunk = self.calls_per_job.max(self.waiting.len().div_ceil(most)).max(1);
        self.jobs = self.jobs.saturating_sub(self.waiting.len().div_ceil(self.chunk));
    }

    fn take_candidate(&mut self, verdicts: &[Verdict]) {
        for (calls, verdict) in std::mem::take(&mut self.running).into_iter().zip(verdicts) {
            let output = candidate::read(verdict, &calls);
            if let (false, Some(error)) = (self.ran, &output.load_error) {
                return self.end(error.clone());
            }
            self.ran = true;
            let answered = calls.into_iter().zip(output.answers);
            self.sequences.extend(answered.map(|(calls, answers)| Sequence { calls, answers }));
            if exceeded(verdict) {
                self.exceeded = Some(failure(verdict));
            }
        }
        if self.tests.code.is_empty() {
            self.step = Step::Done;
        } else if self.exceeded.is_some() {
            self.answer_the_rest();
        } else if self.waiting.is_empty() {
            self.step = Step::Judge;
        }
    }

    /// Ends the grading without a test that held.
    fn end(&mut self, error: String) {
        self.error = Some(error);
        self.tally.held = 0;
        self.step = Step::Done;
    }

    /// Answers the waiting calls of a program that ran into a limit.
    fn answer_the_rest(&mut self) {
        let reason = self.exceeded.clone().unwrap_or_default();
        for calls in self.waiting.drain(..) {
            let answers = vec![CallResult::missing(&reason); calls.len()];
            self.sequences.push(Sequence { calls, answers });
        }
        self.step = Step::Judge;
    }

    /// Returns the text of a failure for the program's author: a shown test is quoted, a hidden one isn't.
    fn explain(&self, failure: &Failure) -> String {
        let shown = failure.assert.and_then(|index| self.tests.shown.get(index));
        let heading = shown.map_or("A hidden test failed.", String::as_str);
        let cause =
            failure.cause.and_then(|(sequence, call)| self.sequences.get(sequence)?.answers.get(call));
        let detail = match (cause.and_then(CallResult::error), failure.exception.as_str()) {
            (Some(error), _) => error.to_owned(),
            (None, "AssertionError") => "AssertionError".to_owned(),
            (None, "NotPlain") => "The test passes an argument that can't be sent to a program.".to_owned(),
            (None, exception) => format!("{exception}: the result can't be used as the test uses it."),
        };
        format!("{heading}\n{detail}")
    }
}

impl Grading for AssertGrading<'_> {
    fn jobs(&mut self) -> Vec<Job> {
        match self.step {
            Step::Judge => vec![judge::job(self.tests, self.seed, &self.sequences)],
            Step::Candidate => {
                // The first job alone: most programs that don't load, or don't end, show it here.
                let jobs = if self.ran { BATCH } else { 1 };
                let count = (jobs * self.chunk).min(self.waiting.len());
                let calls: Vec<Vec<Call>> = self.waiting.drain(..count).collect();
                self.running = match calls.is_empty() {
                    true => vec![Vec::new()],
                    false => calls.chunks(self.chunk).map(<[_]>::to_vec).collect(),
                };
                let job = |calls: &Vec<Vec<Call>>| candidate::job(&self.tests.prelude, self.program, calls);
                self.running.iter().map(job).collect()
            }
            Step::Done => Vec::new(),
        }
    }

    fn take(&mut self, verdicts: &[Verdict]) -> Result<()> {
        match (self.step, verdicts) {
            (Step::Judge, [verdict]) => return self.take_judge(verdict),
            (Step::Candidate, verdicts) if verdicts.len() == self.running.len() => {
                self.take_candidate(verdicts)
            }
            _ => self.end("The sandbox gave no verdict.".to_owned()),
        }
        Ok(())
    }

    fn attempt(&self) -> ProgramRun {
        ProgramRun {
            program: self.program.to_owned(),
            ran: self.ran,
            tally: self.tally,
            error: self.error.as_deref().map(last_lines),
        }
    }
}
