//! Weights of a step's episodes.

use std::sync::Arc;

use pl_rollout::EpisodeSetup;
use pl_types::Generate;

/// Weights that the episodes of a step use.
#[derive(Clone)]
pub(super) struct StepWeights {
    /// Versions of all policies, in the workflow's order.
    pub versions: Vec<u64>,
    /// Generator with these versions. `None` for the session's, which has them.
    pub generator: Option<Arc<dyn Generate>>,
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
}
