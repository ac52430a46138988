//! A job on its way through the pool, as the supervisor understands it.

use pl_supervisor::{Entry, Task};
use tokio::sync::oneshot;

use super::DockerSettings;
use crate::{Job, Verdict};

/// Bytes of the files that a case hands back: a compiler's listing or a plot, not a data set.
const KEPT: u64 = 8 << 20;

/// A job that waits for its verdict.
pub struct Errand {
    pub task: Task,
    /// Whether its verdict is one of cases.
    pub many: bool,
    /// Why it lost the container that it was on before.
    pub lost: Option<String>,
    verdict: oneshot::Sender<Verdict>,
}

impl Errand {
    /// The errand and where its verdict will come; or why the job can't be run.
    pub fn new(job: &Job, settings: &DockerSettings) -> Result<(Self, oneshot::Receiver<Verdict>), String> {
        let (verdict, receiver) = oneshot::channel();
        let task = task(job, settings)?;
        Ok((Self { task, many: !job.cases.is_empty(), lost: None, verdict }, receiver))
    }

    /// Nobody waits for it any more.
    pub fn is_forgotten(&self) -> bool {
        self.verdict.is_closed()
    }

    pub fn answer(self, verdict: Verdict) {
        // Nobody may be waiting any more.
        let _ = self.verdict.send(verdict);
    }
}

fn task(job: &Job, settings: &DockerSettings) -> Result<Task, String> {
    let (file, usual): (&str, &[&str]) = match job.language.as_str() {
        "python" => ("main.py", &["python3", "{file}"]),
        "shell" => ("main.sh", &["sh", "{file}"]),
        _ => ("main", &[]),
    };
    let usual: Vec<String> = usual.iter().map(|&part| part.to_owned()).collect();
    let command = [&job.run, &settings.run, &usual].into_iter().find(|line| !line.is_empty());
    let Some(command) = command else {
        return Err(format!(
            "it does not know how to run {:?}: say it with `run = [\"PROGRAM\", \"{{file}}\"]`",
            job.language
        ));
    };
    let bytes: u64 =
        job.files.iter().map(|file| file.bytes.len() as u64).sum::<u64>() + job.source.len() as u64;
    if bytes > settings.limits.memory {
        return Err(format!("its files take {bytes} bytes, and it may have {}", settings.limits.memory));
    }
    let filled = |line: &[String]| line.iter().map(|part| part.replace("{file}", file)).collect();
    let entry =
        |path: &str, bytes: &[u8]| Entry { path: path.to_owned(), bytes: bytes.to_vec(), executable: false };
    let files = job.files.iter().map(|file| entry(&file.path, &file.bytes));
    let cases = if job.cases.is_empty() { std::slice::from_ref(&job.stdin) } else { &job.cases };
    Ok(Task {
        files: files.chain([entry(file, job.source.as_bytes())]).collect(),
        compile: filled(&job.compile),
        run: filled(command),
        cases: cases.iter().map(|stdin| stdin.as_bytes().to_vec()).collect(),
        keep: job.keep.clone(),
        timeout: u64::try_from(settings.limits.timeout.as_millis()).unwrap_or(u64::MAX),
        output: settings.limits.output,
        kept: KEPT,
    })
}

impl DockerSettings {
    /// Bytes of the longest message of a supervisor.
    pub(super) fn longest_message(&self) -> usize {
        usize::try_from(2 * self.limits.output + KEPT + (1 << 20)).unwrap_or(usize::MAX)
    }
}
