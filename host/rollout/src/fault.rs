//! Why an episode could not go on.

use serde::{Deserialize, Serialize};

use crate::trace::{EpisodeId, Trace};

/// A fault within an episode: it costs that episode (or that candidate) alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{stage}: {cause}", agent.as_ref().map(|a| format!("agent {a}, ")).unwrap_or_default())]
pub struct Fault {
    /// The workflow's name of the agent in play, where one was.
    pub agent: Option<String>,
    /// What was being done, in a few words.
    pub stage: &'static str,
    pub cause: String,
    /// False where a wall clock, not the code, decided.
    pub reproducible: bool,
}

impl Fault {
    pub fn new(stage: &'static str, cause: impl ToString) -> Fault {
        Fault { agent: None, stage, cause: cause.to_string(), reproducible: true }
    }

    pub fn of(agent: &str, stage: &'static str, cause: impl ToString) -> Fault {
        Fault { agent: Some(agent.to_owned()), ..Fault::new(stage, cause) }
    }
}

/// A line of the run folder's `failures.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Failure {
    /// By which `pl-host replay` finds the attempt.
    pub episode: EpisodeId,
    pub step: u64,
    pub task: u32,
    pub task_id: String,
    pub sample: u32,
    pub attempt: u32,
    /// Stops of the turn cursor before the fault.
    pub node_visit: u32,
    /// Tree: the candidate that failed alone; the tree went on.
    pub branch: Option<u32>,
    pub agent: Option<String>,
    pub stage: String,
    pub cause: String,
    /// False where a wall clock, not the code, decided: another run may differ.
    pub reproducible: bool,
}

impl Failure {
    /// For people: what was being played, and why it could not go on.
    pub fn in_words(&self) -> String {
        let agent = self.agent.as_ref().map(|agent| format!(", agent {agent}")).unwrap_or_default();
        format!("task {}{agent}, {}: {}", self.task_id, self.stage, self.cause)
    }
}

/// Why a whole batch could not be played.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("none of the {episodes} episodes of step {step} could be played; the first failed with: {cause}")]
    NoEpisode { episodes: usize, step: u64, cause: String, traces: Vec<Trace> },
    #[error("{}:{line}: {message}", path.display())]
    Record { path: std::path::PathBuf, line: usize, message: String },
    #[error("cannot read tasks from {}: {source}", path.display())]
    Tasks { path: std::path::PathBuf, source: std::io::Error },
    #[error("{} has no tasks", path.display())]
    NoTasks { path: std::path::PathBuf },
    #[error("environment {environment}: {cause}")]
    Generator { environment: String, cause: String },
    #[error("an episode's worker died: {0}")]
    Worker(#[from] tokio::task::JoinError),
}
