//! The coordinator's side of a learner in a process of its own.

use std::sync::Arc;

use pl_cluster::{Lease, LeaseQueue};
use pl_trainer::{LearnerUpdate, ServedPolicy, Trainer};

use crate::error::Error;
use crate::error::cluster::ClusterError;
use crate::update_source::UpdateSource;

use super::message;
use super::options::learner_id;
use super::run::ClusterRun;
use super::update_task::{self, History, LearnerTask, LeaseKind, SourceRef, UpdateRef, UpdateResult};
use super::weights::LearnerWeights;

/// A learner that another process trains. This process has its state as of the last checkpoint.
pub(crate) struct RemoteLearner {
    cluster: Arc<ClusterRun>,
    learner: usize,
    /// Names of its policies, for messages.
    policies: String,
    history: History,
    /// Hashes of transitions that no update names after the next checkpoint.
    transitions: Vec<String>,
}

impl RemoteLearner {
    /// The learner at a position among those of `trainer`, after `step` finished steps.
    ///
    /// # Errors
    /// If its state can't be sent.
    pub async fn start(
        cluster: &Arc<ClusterRun>,
        trainer: &Trainer,
        learner: usize,
        step: u64,
    ) -> Result<RemoteLearner, Error> {
        let saved = match step {
            0 => None,
            _ => {
                let state = update_task::state_of(trainer, learner, step).map_err(Error::cluster)?;
                Some(cluster.put(&state).await?)
            }
        };
        let own = trainer.learners().get(learner).map(|learner| learner.policies());
        let names = own.into_iter().flatten().map(|policy| policy.name.clone());
        Ok(RemoteLearner {
            cluster: Arc::clone(cluster),
            learner,
            policies: names.collect::<Vec<_>>().join(", "),
            history: History { saved, updates: Vec::new() },
            transitions: Vec::new(),
        })
    }

    /// Has the process do the update after a step. Returns its result, and what `served` are after it if the update changes
    /// them.
    ///
    /// # Errors
    /// If the update fails, or no process does it.
    pub async fn update(
        &mut self,
        step: u64,
        sources: &[UpdateSource],
        shuffle: Option<[u8; 32]>,
        served: Vec<ServedPolicy>,
    ) -> Result<(LearnerUpdate, Option<Vec<ServedPolicy>>), Error> {
        let mut references = Vec::new();
        for UpdateSource { step, transitions, left_out } in sources {
            let bytes = message::pack("transitions", transitions.as_slice()).map_err(Error::cluster)?;
            let hash = self.cluster.put(&bytes).await?;
            self.transitions.push(hash.clone());
            references.push(SourceRef { step: *step, transitions: hash, left_out: left_out.clone() });
        }
        self.history.updates.push(UpdateRef { step, sources: references, shuffle });
        let UpdateResult { update, weights } =
            self.lease(step, LeaseKind::Update, UpdateResult::decode).await?;
        let Some(weights) = weights else { return Ok((update, None)) };
        let weights = self.cluster.sent_weights(self.learner, weights).await?;
        let weights = LearnerWeights::decode(&weights).map_err(Error::cluster)?;
        let served = weights.serve(served, self.cluster.formats()).map_err(Error::cluster)?;
        Ok((update, Some(served)))
    }

    /// Gives the learner of `trainer` the state after the updates so far, from which later ones go on. Returns hashes
    /// that can be deleted once a checkpoint has the state of all learners.
    ///
    /// # Errors
    /// If no process has the state, or it doesn't fit.
    pub async fn fetch_state(&mut self, trainer: &mut Trainer, step: u64) -> Result<Vec<String>, Error> {
        if self.history.updates.is_empty() {
            return Ok(Vec::new());
        }
        let bytes = |bytes: &[u8]| Ok::<_, ClusterError>(bytes.to_vec());
        let state: Vec<u8> = self.lease(step, LeaseKind::State, bytes).await?;
        update_task::restore(trainer, self.learner, &state).map_err(Error::cluster)?;
        let saved = self.cluster.put(&state).await?;
        let history = History { saved: Some(saved.clone()), updates: Vec::new() };
        let before = std::mem::replace(&mut self.history, history);
        let unused = self.transitions.drain(..).chain(before.saved);
        Ok(unused.filter(|hash| *hash != saved).collect())
    }

    async fn lease<T>(
        &self,
        step: u64,
        kind: LeaseKind,
        check: impl Fn(&[u8]) -> Result<T, ClusterError>,
    ) -> Result<T, Error> {
        let what = match kind {
            LeaseKind::Update => "update",
            LeaseKind::State => "state",
        };
        let task = LearnerTask { history: self.history.clone(), kind };
        let lease = Lease {
            queue: LeaseQueue::Learner(learner_id(self.learner)),
            task: format!("{what} {step} of {}", self.policies),
            step,
            weights: Vec::new(),
            body: message::pack("an update", &task).map_err(Error::cluster)?,
        };
        self.cluster.lease(lease, check).await
    }
}
