//! Errors of whole batches, and the failures of single episodes that a run reports.

use std::path::PathBuf;

use pl_types::EpisodeId;
use serde::{Deserialize, Serialize};

use crate::trace::Trace;

/// A failed episode or candidate: a line of the run folder's `failures.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EpisodeFailure {
    /// The id under which `pl-host replay` finds the attempt.
    pub episode: EpisodeId,
    pub step: u64,
    pub task: u32,
    pub task_id: String,
    pub sample: u32,
    pub attempt: u32,
    /// Number of node visits before the fault.
    pub node_visit: u32,
    /// Tree: the candidate that failed, if the tree continued without it.
    pub branch: Option<u32>,
    pub agent: Option<String>,
    pub stage: String,
    pub cause: String,
    /// False if a wall clock, not the code, caused it: another run may differ.
    pub reproducible: bool,
    /// True if the environment refuses the task. Neither recorded nor sent by workers: it is for the caller who plays one task.
    #[serde(skip)]
    pub is_task_refused: bool,
}

impl EpisodeFailure {
    /// A sentence for people: the task, the agent, the stage and the cause.
    pub fn describe(&self) -> String {
        let agent = self.agent.as_ref().map(|agent| format!(", agent {agent}")).unwrap_or_default();
        format!("task {}{agent}, {}: {}", self.task_id, self.stage, self.cause)
    }
}

/// Errors of a batch or of its tasks.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Every episode failed in every attempt.
    #[error("all {episodes} episodes of step {step} failed; the first cause: {cause}")]
    NoEpisode { episodes: usize, step: u64, cause: String, failures: Vec<EpisodeFailure>, traces: Vec<Trace> },
    /// An environment refuses a record of a task file.
    #[error("{}:{line}: {message}", path.display())]
    Record { path: PathBuf, line: usize, message: String },
    /// A task file can't be read.
    #[error(transparent)]
    TaskFile(#[from] pl_data::Error),
    /// A task file is empty.
    #[error("{} has no tasks", path.display())]
    NoTasks { path: PathBuf },
    /// An environment's task generator failed.
    #[error("environment {environment}: {cause}")]
    TaskGenerator { environment: String, cause: String },
    /// The task of an episode panicked or was cancelled.
    #[error("the worker of an episode ended early: {0}")]
    Worker(#[from] tokio::task::JoinError),
    /// Other processes could not play an episode.
    #[error(transparent)]
    Player(Box<dyn std::error::Error + Send + Sync>),
}
