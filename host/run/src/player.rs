//! A team that plays single episodes.

use std::sync::Arc;

use pl_plugin::Task;
use pl_rollout::{
    EpisodeEvent, EpisodeFailure, EpisodeSetup, EpisodeSummary, RolloutPlan, Trace, play_batch,
};
use pl_types::Phase;
use tokio::sync::mpsc::UnboundedSender;

use crate::error::Error;

/// The team of a session, which plays single episodes from any thread.
#[derive(Clone)]
pub struct Player {
    setup: Arc<EpisodeSetup>,
    versions: Arc<[u64]>,
}

/// An episode that was played for a person.
#[derive(Debug)]
pub struct PlayedEpisode {
    /// `None` if it failed in every attempt.
    pub summary: Option<EpisodeSummary>,
    /// Attempts that failed.
    pub failures: Vec<EpisodeFailure>,
    /// The last attempt.
    pub trace: Option<Trace>,
}

impl Player {
    pub(crate) fn new(setup: Arc<EpisodeSetup>, versions: Arc<[u64]>) -> Player {
        Player { setup, versions }
    }

    /// Plays one episode whose events go to `events`. Dropping the future ends the episode.
    ///
    /// # Errors
    /// [`Error::Task`] if the environment refuses the task; others if the episode can't be played.
    pub async fn play(
        &self,
        seed: u64,
        task: Task,
        events: UnboundedSender<EpisodeEvent>,
    ) -> Result<PlayedEpisode, Error> {
        let tasks = vec![Arc::new(task)];
        let plan = RolloutPlan::flat(seed, Phase::Play, tasks, Arc::clone(&self.versions));
        // The events end when the last owner of the sender is dropped.
        // A person who watches wants to see an episode, not a penalty.
        let setup =
            EpisodeSetup { observer: Some(events), fault_penalty: None, ..EpisodeSetup::clone(&self.setup) };
        let mut batch = play_batch(Arc::new(setup), &plan, |_| {}).await.map_err(Error::rollout)?;
        if let (true, Some(failure)) = (batch.episodes.is_empty(), batch.failures.first()) {
            return Err(failed(failure));
        }
        let trace = batch.traces.pop();
        Ok(PlayedEpisode { summary: batch.episodes.into_iter().next(), failures: batch.failures, trace })
    }
}

/// Returns the error about an episode that failed in every attempt.
fn failed(failure: &EpisodeFailure) -> Error {
    let EpisodeFailure { agent, stage, cause, is_task_refused, .. } = failure;
    if *is_task_refused {
        return Error::Task { stage: stage.clone(), cause: cause.clone() };
    }
    let agent = agent.as_ref().map(|agent| format!("agent {agent}, ")).unwrap_or_default();
    Error::Episode { cause: format!("{agent}{stage}: {cause}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_failures::failure;

    #[test]
    fn a_refused_task_names_the_function_that_refused_it() {
        let failure = EpisodeFailure {
            stage: "apply".to_owned(),
            cause: "the record is bad".to_owned(),
            is_task_refused: true,
            ..failure(Phase::Play, 0, 0, "given")
        };
        assert_eq!(failed(&failure).to_string(), "the episode failed: apply: the record is bad");
    }
}
