//! The sandbox of a process whose jobs other machines run.

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::join_all;
use pl_cluster::JobClient;
use pl_sandbox::{DeniedSandbox, Ending, Job, Sandbox, Verdict};

use crate::error::cluster::ClusterError;

use super::message;

/// Bytes of a verdict's stdout and stderr in addition to the limit: marks and notes of the sandbox.
const SLACK: u64 = 64 << 10;

/// Sends jobs to the sandbox machines of a run.
pub(super) struct RemoteSandbox {
    jobs: JobClient,
    /// Longest stdout or stderr of a verdict in bytes.
    longest: u64,
}

impl RemoteSandbox {
    /// Returns the sandbox of a run that keeps `output` bytes of each of stdout and stderr.
    pub fn new(jobs: JobClient, output: u64) -> RemoteSandbox {
        // Bytes that are not UTF-8 take three as text.
        RemoteSandbox { jobs, longest: output.saturating_mul(3).saturating_add(SLACK) }
    }

    async fn run(&self, job: &Job) -> Verdict {
        let lost = |reason: &dyn std::fmt::Display| {
            Verdict::from_sandbox(Ending::LostWorker, format!("sandbox: {reason}\n"), false)
        };
        let encoded = match message::encode("a job", job) {
            Ok(encoded) => encoded,
            Err(error) => return lost(&error),
        };
        match self.jobs.run(encoded, |bytes| check(bytes, job.cases.len(), self.longest)).await {
            Ok(verdict) => verdict,
            Err(error) => {
                tracing::warn!(%error, "a job has no verdict of a sandbox machine");
                lost(&error)
            }
        }
    }
}

#[async_trait]
impl Sandbox for RemoteSandbox {
    async fn execute(&self, jobs: Vec<Job>) -> Vec<Verdict> {
        join_all(jobs.iter().map(|job| self.run(job))).await
    }
}

/// Returns the sandbox of a process that plays nothing.
pub(super) fn no_jobs() -> Arc<dyn Sandbox> {
    Arc::new(DeniedSandbox("sandbox: other machines run the code of this run\n".to_owned()))
}

/// Returns the verdict of a machine on a job with this number of cases, whose output is not longer than the sandbox would keep.
fn check(bytes: &[u8], cases: usize, longest: u64) -> Result<Verdict, ClusterError> {
    let refuse = |reason: String| ClusterError::unreadable("a verdict", reason);
    let verdict: Verdict = message::decode("a verdict", bytes)?;
    if verdict.cases.len() > cases {
        return Err(refuse(format!("it has {} cases, the job has {cases}", verdict.cases.len())));
    }
    let all = verdict.cases.iter().chain([&verdict]);
    let output = all.map(|own| own.stdout.len().max(own.stderr.len()) as u64).max().unwrap_or_default();
    match output > longest {
        true => Err(refuse(format!("it has an output of {output} bytes"))),
        false => Ok(verdict),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_that_no_sandbox_gives_are_refused() {
        let encode = |verdict: &Verdict| postcard::to_allocvec(verdict).unwrap();
        let sound = Verdict { stdout: "1\n".to_owned(), exit: Some(0), ..Verdict::default() };
        assert_eq!(check(&encode(&sound), 0, 2).unwrap(), sound);
        let with_cases = Verdict { cases: vec![sound.clone()], ..sound.clone() };
        assert_eq!(check(&encode(&with_cases), 1, 2).unwrap(), with_cases);
        let long = Verdict { cases: vec![Verdict { stderr: "123".to_owned(), ..sound.clone() }], ..sound };
        // Cases in cases, as deep as the bytes go.
        let nested = [0, 0, 0, 0, 0, 0, 1].repeat(1_000_000);
        for (name, bytes, cases) in [
            ("a text", b"not a verdict".to_vec(), 0),
            ("nothing", Vec::new(), 0),
            ("an unknown case", encode(&with_cases), 0),
            ("a long output", encode(&long), 1),
            ("cases in cases", nested, 1),
        ] {
            assert!(check(&bytes, cases, 2).is_err(), "{name}");
        }
    }
}
