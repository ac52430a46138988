//! Versions of adapters that stay usable while later ones are published, so that episodes end with the weights that
//! they began with.

use std::sync::Arc;

use async_trait::async_trait;
use pl_inference::{PolicyWeights, WeightUpdate};
use pl_trainer::Trainer;
use pl_types::{Completion, Generate, GenerateError, Request};

use crate::error::Error;

use super::{PolicyRouter, Route, no_route};

/// One version of the adapters that a learner trains. They are removed from the engine when the last episode that holds
/// it has ended.
pub(crate) struct PinnedVersion {
    router: Arc<PolicyRouter>,
    /// Index in the engine of each policy of the workflow. `None` for policies of others.
    adapters: Vec<Option<usize>>,
}

impl PolicyRouter {
    /// Returns true if all trained policies are adapters that the embedded engine generates for: their versions can be
    /// used side by side. Whole models and the adapters of servers are replaced instead.
    pub(crate) fn keeps_versions(&self, trainer: &Trainer) -> bool {
        let is_kept = |policy: usize| matches!(self.route(policy).as_deref(), Some(Route::Engine { .. }));
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
                    let (Some(Route::Engine { base, .. }), Some(engine)) =
                        (route.as_deref(), &pinned.router.engine)
                    else {
                        return Err(Error::Engine(no_route(policy)));
                    };
                    let weights = PolicyWeights { base: *base, adapter: Some(adapter), version };
                    let index = engine.add_policy(weights).map_err(Error::Engine)?;
                    let length = pinned.adapters.len().max(policy + 1);
                    pinned.adapters.resize(length, None);
                    if let Some(own) = pinned.adapters.get_mut(policy) {
                        *own = Some(index);
                    }
                }
                other => rest.push((policy, other, version)),
            }
        }
        for (policy, update, version) in rest {
            let (Some(index), Some(engine)) = (pinned.index(policy), &pinned.router.engine) else {
                return Err(Error::Engine(no_route(policy)));
            };
            engine.publish(index, update, version).map_err(Error::Engine)?;
        }
        Ok(pinned)
    }

    fn index(&self, policy: usize) -> Option<usize> {
        self.adapters.get(policy).copied().flatten()
    }
}

impl Drop for PinnedVersion {
    fn drop(&mut self) {
        let Some(engine) = &self.router.engine else { return };
        for index in self.adapters.iter().flatten() {
            if let Err(error) = engine.remove_policy(*index) {
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
        match self.versions.iter().find_map(|version| version.index(request.policy)) {
            Some(index) => self.router.generate_embedded(index, request).await,
            None => self.router.generate(request).await,
        }
    }

    fn is_reproducible(&self, policy: usize) -> bool {
        self.router.is_reproducible(policy)
    }
}
