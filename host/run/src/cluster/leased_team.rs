//! A team that plays on workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use parking_lot::Mutex;
use pl_cluster::{Coordinator, Lease, LeaseQueue};
use pl_rollout::{Attempt, PlayEpisodes, RolloutPlan};

use crate::error::cluster::ClusterError;

use super::leased_weights::LeasedWeights;
use super::message;
use super::results::{self, TrainedModels};
use super::task::{TaskToPlay, TeamRef};

/// A team whose tasks are leased to workers. The first episode of a task that is asked for publishes the lease of all.
pub(super) struct LeasedTeam {
    coordinator: Arc<Coordinator>,
    team: TeamRef,
    weights: Vec<Arc<LeasedWeights>>,
    models: Arc<TrainedModels>,
    /// Tasks in progress, by their number within the step.
    playing: Mutex<BTreeMap<u32, TaskInProgress>>,
}

type SharedResult = Shared<BoxFuture<'static, Result<Arc<[Attempt]>, Arc<ClusterError>>>>;

struct TaskInProgress {
    result: SharedResult,
    /// Episodes that were not asked for yet.
    left: usize,
}

impl LeasedTeam {
    pub fn new(
        coordinator: Arc<Coordinator>,
        team: TeamRef,
        weights: Vec<Arc<LeasedWeights>>,
        models: Arc<TrainedModels>,
    ) -> LeasedTeam {
        LeasedTeam { coordinator, team, weights, models, playing: Mutex::default() }
    }

    /// Returns the result of a task, which is leased if it was not yet.
    fn result_of(&self, plan: &RolloutPlan, task: u32) -> Option<SharedResult> {
        let mut playing = self.playing.lock();
        let known = playing.remove(&task);
        let TaskInProgress { result, left } = match known {
            Some(known) => known,
            None => {
                let to_play = TaskToPlay::of_plan(self.team, plan, task)?;
                let left = to_play.plan().size();
                TaskInProgress { result: self.lease(to_play), left }
            }
        };
        if left > 1 {
            playing.insert(task, TaskInProgress { result: result.clone(), left: left - 1 });
        }
        Some(result)
    }

    fn lease(&self, task: TaskToPlay) -> SharedResult {
        let (coordinator, weights) = (Arc::clone(&self.coordinator), self.weights.clone());
        let models = Arc::clone(&self.models);
        let playing = async move {
            let name = task.name();
            let body = message::encode(&format!("task {name}"), &task)?;
            let references = weights.iter().map(|weights| weights.reference.clone()).collect();
            let lease =
                Lease { queue: LeaseQueue::Workers, task: name, step: task.step, weights: references, body };
            let decode = |bytes: &[u8]| results::decode(&task, &models, bytes).map(Arc::from);
            Ok(coordinator.play(lease, decode).await?)
        };
        playing.map(|result: Result<_, ClusterError>| result.map_err(Arc::new)).boxed().shared()
    }
}

#[async_trait]
impl PlayEpisodes for LeasedTeam {
    async fn play(
        &self,
        plan: &Arc<RolloutPlan>,
        task: u32,
        sample: u32,
    ) -> Result<Vec<Attempt>, pl_rollout::Error> {
        let Some(result) = self.result_of(plan, task) else { return Ok(Vec::new()) };
        let attempts = result.await.map_err(|error| pl_rollout::Error::Player(Box::new(error)))?;
        Ok(attempts.iter().filter(|attempt| attempt.trace.key.sample == sample).cloned().collect())
    }
}
