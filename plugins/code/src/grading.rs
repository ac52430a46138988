//! Grading of programs: rounds of sandbox jobs, for all programs of a turn side by side.

use pl_sdk::prelude::*;
use pl_sdk::sandbox::{Job, Verdict};

use crate::attempt::ProgramRun;

/// Jobs of a program that run at the same time, after the first: a program that runs into a limit does so at
/// most this many times.
pub const BATCH: usize = 8;

/// Limit of the jobs in one call of the sandbox.
const MAX_JOBS: usize = 256;

/// The grading of one program.
pub trait Grading {
    /// Returns the jobs to run next: none if the result is known.
    fn jobs(&mut self) -> Vec<Job>;

    /// Takes the verdicts of the last jobs, in their order.
    ///
    /// # Errors
    /// [`Error::task`] if the tests fail by themselves.
    fn take(&mut self, verdicts: &[Verdict]) -> Result<()>;

    /// Returns the result.
    fn attempt(&self) -> ProgramRun;
}

/// Runs the jobs of all gradings until every result is known.
///
/// # Errors
/// See [`Grading::take`].
pub fn run(gradings: &mut [&mut dyn Grading]) -> Result<()> {
    loop {
        let batches: Vec<Vec<Job>> = gradings.iter_mut().map(|grading| grading.jobs()).collect();
        if batches.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let counts: Vec<usize> = batches.iter().map(Vec::len).collect();
        let mut verdicts = execute(batches.into_iter().flatten().collect()).into_iter();
        for (grading, count) in gradings.iter_mut().zip(counts).filter(|(_, count)| *count > 0) {
            let own: Vec<Verdict> = verdicts.by_ref().take(count).collect();
            grading.take(&own)?;
        }
    }
}

/// Runs jobs, equal ones once: equal programs get equal results, and all programs share their tests' first pass.
fn execute(jobs: Vec<Job>) -> Vec<Verdict> {
    let mut different: Vec<Job> = Vec::new();
    let mut places = Vec::new();
    for job in jobs {
        let equal = |other: &Job| other.source == job.source && other.stdin == job.stdin;
        let known = different.iter().position(equal);
        places.push(known.unwrap_or(different.len()));
        if known.is_none() {
            different.push(job);
        }
    }
    let verdicts: Vec<Verdict> = different.chunks(MAX_JOBS).flat_map(sandbox::execute).collect();
    places.iter().filter_map(|place| verdicts.get(*place).cloned()).collect()
}
