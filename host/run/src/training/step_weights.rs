//! Weights of a step's episodes.

use std::sync::Arc;

use pl_rollout::{EpisodeSetup, PlayEpisodes};
use pl_types::Generate;

use crate::cluster::{ClusterRun, LeasedWeights, TeamRef};

/// Weights that the episodes of a step use.
#[derive(Clone)]
pub(super) struct StepWeights {
    /// Versions of all policies, in the workflow's order.
    pub versions: Vec<u64>,
    pub source: WeightSource,
}

/// Source of the completions of a step.
#[derive(Clone)]
pub(super) enum WeightSource {
    /// The generator of the session, whose weights they are.
    Session,
    /// A generator of these versions.
    Generator(Arc<dyn Generate>),
    /// Workers, by the weights of each learner in the object store of their cluster.
    Cluster { cluster: Arc<ClusterRun>, weights: Vec<Arc<LeasedWeights>> },
}

impl StepWeights {
    /// Returns a setup whose completions come from these weights.
    pub fn setup(&self, setup: &Arc<EpisodeSetup>) -> Arc<EpisodeSetup> {
        match &self.source {
            WeightSource::Generator(generator) => {
                let generator = Arc::clone(generator);
                Arc::new(EpisodeSetup { generator, ..EpisodeSetup::clone(setup) })
            }
            WeightSource::Session | WeightSource::Cluster { .. } => Arc::clone(setup),
        }
    }

    /// Returns what plays the episodes of a team with these weights: its setup in this process, or workers.
    pub fn player(&self, team: TeamRef, setup: &Arc<EpisodeSetup>) -> Arc<dyn PlayEpisodes> {
        match &self.source {
            WeightSource::Cluster { cluster, weights } => cluster.player(team, weights.clone()),
            WeightSource::Session | WeightSource::Generator(_) => self.setup(setup),
        }
    }
}
