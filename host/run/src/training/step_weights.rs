//! Weights of a step's episodes.

use std::sync::Arc;

use pl_rollout::{EpisodeSetup, PlayEpisodes};
use pl_types::Generate;

use crate::cluster::{ClusterRun, LeasedWeights, Team};

/// Weights that the episodes of a step use.
#[derive(Clone)]
pub(super) struct StepWeights {
    /// Versions of all policies, in the workflow's order.
    pub versions: Vec<u64>,
    /// Generator with these versions. `None` for the session's, which has them.
    pub generator: Option<Arc<dyn Generate>>,
    /// Weights in the object store of a cluster. `None` if this process plays.
    pub leased: Option<WeightLease>,
}

/// Weights for workers, one per learner.
#[derive(Clone)]
pub(super) struct WeightLease {
    pub cluster: Arc<ClusterRun>,
    pub weights: Vec<Arc<LeasedWeights>>,
}

impl StepWeights {
    /// Returns a setup whose completions come from these weights.
    pub fn setup(&self, setup: &Arc<EpisodeSetup>) -> Arc<EpisodeSetup> {
        match &self.generator {
            Some(generator) => {
                let generator = Arc::clone(generator);
                Arc::new(EpisodeSetup { generator, ..EpisodeSetup::clone(setup) })
            }
            None => Arc::clone(setup),
        }
    }

    /// Returns what plays the episodes of a team with these weights: its setup in this process, or workers.
    pub fn player(&self, team: Team, setup: &Arc<EpisodeSetup>) -> Arc<dyn PlayEpisodes> {
        match &self.leased {
            Some(WeightLease { cluster, weights }) => cluster.player(team, weights.clone()),
            None => self.setup(setup),
        }
    }
}
