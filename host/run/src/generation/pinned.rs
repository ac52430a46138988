//! Versions of adapters that stay usable while later ones are published, so that episodes end with the weights that
//! they began with.

use std::sync::Arc;

use async_trait::async_trait;
use pl_inference::{DuringUpdate, PolicyWeights, WeightUpdate};
use pl_trainer::Trainer;
use pl_types::{Completion, Generate, GenerateError, Request};

use crate::error::Error;

use super::{EnginePolicy, PolicyRouter, Route, no_route};

/// One version of the adapters that a learner trains. They are removed from the engine when the last episode that holds
/// it has ended.
pub(crate) struct PinnedVersion {
    router: Arc<PolicyRouter>,
    /// Place of each policy of the workflow. `None` for policies of others.
    adapters: Vec<Option<EnginePolicy>>,
}

impl PolicyRouter {
    /// Returns true if all trained policies are adapters that the embedded engine generates for: their versions can be
    /// used side by side. Whole models and the adapters of servers are replaced instead.
    pub(crate) fn keeps_versions(&self, trainer: &Trainer) -> bool {
        let is_kept = |policy: usize| matches!(self.route(policy).as_deref(), Some(Route::Engine(_)));
        let mut trained = trainer.policies().into_iter().filter(|served| served.trained);
        trained.all(|served| served.adapter.is_some() && is_kept(served.policy))
    }
}

impl PinnedVersion {
    /// Adds a version of a learner's policies to the engine: for each its index, weights and version.
    ///
    /// # Errors
    /// If an adapter does not fit the engine, or its policy is not in the engine.
    pub(crate) fn new(
        router: Arc<PolicyRouter>,
        updates: Vec<(usize, WeightUpdate, u64)>,
    ) -> Result<PinnedVersion, Error> {
        let mut pinned = PinnedVersion { router, adapters: Vec::new() };
        let mut rest = Vec::new();
        for (policy, update, version) in updates {
            match update {
                WeightUpdate::Adapter(adapter) => {
                    let route = pinned.router.route(policy);
                    let Some(Route::Engine(place)) = route.as_deref() else {
                        return Err(Error::Engine(no_route(policy)));
                    };
                    let weights = PolicyWeights { base: place.base, adapter: Some(adapter), version };
                    let index = place.engine.add_policy(weights).map_err(Error::Engine)?;
                    let length = pinned.adapters.len().max(policy + 1);
                    pinned.adapters.resize(length, None);
                    if let Some(own) = pinned.adapters.get_mut(policy) {
                        *own = Some(EnginePolicy { policy: index, ..place.clone() });
                    }
                }
                other => rest.push((policy, other, version)),
            }
        }
        for (policy, update, version) in rest {
            let Some(place) = pinned.place(policy) else {
                return Err(Error::Engine(no_route(policy)));
            };
            place.engine.publish(place.policy, update, version).map_err(Error::Engine)?;
        }
        Ok(pinned)
    }

    fn place(&self, policy: usize) -> Option<&EnginePolicy> {
        self.adapters.get(policy)?.as_ref()
    }
}

impl Drop for PinnedVersion {
    fn drop(&mut self) {
        for place in self.adapters.iter().flatten() {
            if let Err(error) = place.engine.remove_policy(place.policy) {
                tracing::debug!(%error, "an adapter was not removed from the engine, which has ended");
            }
        }
    }
}

/// Versions of the policies of all learners, and the policies that never change.
pub(crate) struct PinnedTeam {
    pub router: Arc<PolicyRouter>,
    pub versions: Vec<Arc<PinnedVersion>>,
}

#[async_trait]
impl Generate for PinnedTeam {
    async fn generate(&self, request: Request) -> Result<Vec<Completion>, GenerateError> {
        match self.versions.iter().find_map(|version| version.place(request.policy)) {
            Some(place) => self.router.generate_embedded(place, request, DuringUpdate::Finish).await,
            None => self.router.generate(request).await,
        }
    }

    fn is_reproducible(&self, policy: usize) -> bool {
        self.router.is_reproducible(policy)
    }
}
