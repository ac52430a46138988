//! The parameters of one attempt at an episode.

use std::sync::Arc;

use pl_dsl::workflow::Rollout;
use pl_plugin::Task;
use pl_types::{EpisodeId, StreamKey};

use crate::error::EpisodeFailure;
use crate::fault::Fault;
use crate::trace::answers::RecordedAnswers;

/// The parameters of one attempt at an episode (flat) or a tree; constant while it is played.
#[derive(Debug, Clone)]
pub struct EpisodeContext {
    pub key: StreamKey,
    pub task: Arc<Task>,
    /// Versions of all policies when the episode started.
    pub versions: Arc<[u64]>,
    pub mode: Rollout,
    /// Tree: candidates per node visit. Flat: ignored.
    pub candidates: u32,
    /// Flat: true if the environment is suspended while a model generates. Tree: ignored, since states are
    /// snapshots between calls.
    pub suspends: bool,
    /// Replay: the recorded answers to jobs and requests of plugins.
    pub answers: Option<Arc<RecordedAnswers>>,
}

impl EpisodeContext {
    pub(crate) fn failure(&self, fault: &Fault, node_visit: u32, branch: Option<u32>) -> EpisodeFailure {
        EpisodeFailure {
            episode: EpisodeId::from_key(&self.key),
            step: self.key.step,
            task: self.key.task,
            task_id: self.task.id.clone(),
            sample: self.key.sample,
            attempt: self.key.attempt,
            node_visit,
            branch,
            agent: fault.agent.clone(),
            stage: fault.stage.to_owned(),
            cause: fault.cause.clone(),
            reproducible: fault.reproducible,
            is_task_refused: fault.is_task_refused,
        }
    }
}
