//! A job in the pool, in the form that the supervisor expects.

use pl_supervisor::{FileEntry, SupervisorTask};
use thiserror::Error;
use tokio::sync::oneshot;

use super::settings::DockerSettings;
use crate::job::{Job, Verdict};

/// Bytes of the files that a case returns: enough for a compiler's listing or a plot, not for a data set.
const MAX_OUTPUT_FILES: u64 = 8 << 20;

/// A job that waits for its verdict.
pub struct QueuedJob {
    pub task: SupervisorTask,
    /// True if the job has cases, each with a verdict of its own.
    pub has_cases: bool,
    /// Reason why it lost its previous container.
    pub lost: Option<String>,
    verdict: oneshot::Sender<Verdict>,
}

/// Reason why a job can't run in a container.
#[derive(Debug, Error)]
pub enum JobError {
    #[error(
        "no command line is known for {0:?}: set one in the sandbox block, `run = [\"PROGRAM\", \"{{file}}\"]`"
    )]
    Language(String),
    #[error("its files take {bytes} bytes, more than the limit of {limit}")]
    Files { bytes: u64, limit: u64 },
}

impl QueuedJob {
    /// Returns the job and the receiver of its verdict.
    pub fn new(job: &Job, settings: &DockerSettings) -> Result<(Self, oneshot::Receiver<Verdict>), JobError> {
        let (verdict, receiver) = oneshot::channel();
        let task = to_task(job, settings)?;
        Ok((Self { task, has_cases: !job.cases.is_empty(), lost: None, verdict }, receiver))
    }

    /// Returns true if the receiver of the verdict has been dropped.
    pub fn is_cancelled(&self) -> bool {
        self.verdict.is_closed()
    }

    pub fn finish(self, verdict: Verdict) {
        // The receiver may be dropped.
        let _ = self.verdict.send(verdict);
    }
}

fn to_task(job: &Job, settings: &DockerSettings) -> Result<SupervisorTask, JobError> {
    let (file, default): (&str, &[&str]) = match job.language.as_str() {
        "python" => ("main.py", &["python3", "{file}"]),
        "shell" => ("main.sh", &["sh", "{file}"]),
        _ => ("main", &[]),
    };
    let default: Vec<String> = default.iter().map(|&part| part.to_owned()).collect();
    let command = [&job.run, &settings.run, &default].into_iter().find(|line| !line.is_empty());
    let command = command.ok_or_else(|| JobError::Language(job.language.clone()))?;
    let bytes: u64 =
        job.files.iter().map(|file| file.bytes.len() as u64).sum::<u64>() + job.source.len() as u64;
    if bytes > settings.limits.memory {
        return Err(JobError::Files { bytes, limit: settings.limits.memory });
    }
    let fill_in = |line: &[String]| line.iter().map(|part| part.replace("{file}", file)).collect();
    let entry = |path: &str, bytes: &[u8]| FileEntry {
        path: path.to_owned(),
        bytes: bytes.to_vec(),
        executable: false,
    };
    let files = job.files.iter().map(|file| entry(&file.path, &file.bytes));
    let cases = if job.cases.is_empty() { std::slice::from_ref(&job.stdin) } else { &job.cases };
    Ok(SupervisorTask {
        files: files.chain([entry(file, job.source.as_bytes())]).collect(),
        compile: fill_in(&job.compile),
        run: fill_in(command),
        cases: cases.iter().map(|stdin| stdin.as_bytes().to_vec()).collect(),
        output_files: job.output_files.clone(),
        timeout_ms: u64::try_from(settings.limits.timeout.as_millis()).unwrap_or(u64::MAX),
        max_output: settings.limits.output,
        max_files: MAX_OUTPUT_FILES,
    })
}

impl DockerSettings {
    /// Maximum length of a supervisor's message in bytes.
    pub(super) fn max_message(&self) -> usize {
        usize::try_from(2 * self.limits.output + MAX_OUTPUT_FILES + (1 << 20)).unwrap_or(usize::MAX)
    }
}
