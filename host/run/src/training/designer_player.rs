//! Player of the episodes in which a designer writes, some of whose designs are guided.

use std::sync::Arc;

use async_trait::async_trait;
use pl_rollout::{Attempt, EpisodeSetup, Error, PlayEpisodes, RolloutPlan};

use super::step_weights::StepWeights;
use crate::design::ScenarioDesigner;

/// Returns the player of a designer's episodes with these weights.
pub(super) fn designer_player(designer: &ScenarioDesigner, weights: &StepWeights) -> Arc<dyn PlayEpisodes> {
    let own = weights.setup(&designer.setup);
    match &designer.guided {
        Some(guided) => {
            let (designs, guided) = (designer.designer().guided, weights.setup(guided));
            Arc::new(GuidedDesigns { designs, guided, own })
        }
        None => own,
    }
}

/// Designs of which the first of each task are sampled from the grammar.
struct GuidedDesigns {
    /// Number of guided designs of a task.
    designs: u32,
    guided: Arc<EpisodeSetup>,
    own: Arc<EpisodeSetup>,
}

#[async_trait]
impl PlayEpisodes for GuidedDesigns {
    async fn play(&self, plan: &Arc<RolloutPlan>, task: u32, sample: u32) -> Result<Vec<Attempt>, Error> {
        let setup = if sample < self.designs { &self.guided } else { &self.own };
        setup.play(plan, task, sample).await
    }
}
