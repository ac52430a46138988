//! Failures of episodes for unit tests.

use pl_rollout::EpisodeFailure;
use pl_types::{EpisodeId, Phase, StreamKey};

/// Returns the failure of an attempt at a task.
pub(crate) fn failure(phase: Phase, task: u32, attempt: u32, task_id: &str) -> EpisodeFailure {
    let key = StreamKey { seed: 0, phase, step: 0, task, sample: 0, attempt };
    EpisodeFailure {
        episode: EpisodeId::from_key(&key),
        step: 0,
        task,
        task_id: task_id.to_owned(),
        sample: 0,
        attempt,
        node_visit: 0,
        branch: None,
        agent: None,
        stage: String::new(),
        cause: String::new(),
        reproducible: true,
        is_task_refused: false,
    }
}
