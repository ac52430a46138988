//! Weights that take over while completions are in progress.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use pl_inference::{DuringUpdate, EngineCommand, LlmEngine, OldCache, PlannedVersions};
use pl_record::versions::CompletionVersions;
use pl_types::{Completion, Generate, GenerateError, Request};

use crate::error::Error;

use super::{PolicyRouter, Route};

/// Generator of rollouts whose trained policies may be updated at any time. It records the versions of each completion, and
/// repeats recorded ones.
pub(crate) struct InFlightTeam {
    router: Arc<PolicyRouter>,
    /// Indices of the trained policies.
    trained: BTreeSet<usize>,
    cache: OldCache,
    /// Versions of an earlier run, by [`CompletionVersions::key`]. `None` for the newest.
    repeated: Option<HashMap<u64, PlannedVersions>>,
    recorded: Mutex<Vec<CompletionVersions>>,
}

impl InFlightTeam {
    pub(crate) fn new(
        router: Arc<PolicyRouter>,
        trained: BTreeSet<usize>,
        cache: OldCache,
        repeated: Option<HashMap<u64, PlannedVersions>>,
    ) -> InFlightTeam {
        InFlightTeam { router, trained, cache, repeated, recorded: Mutex::default() }
    }

    /// Takes the versions of the completions since the last call.
    pub(crate) fn take_recorded(&self) -> Vec<CompletionVersions> {
        std::mem::take(&mut *self.recorded.lock())
    }

    fn during_update(&self, request: &Request) -> DuringUpdate {
        let Some(repeated) = &self.repeated else { return DuringUpdate::TakeOver(self.cache) };
        let planned = |seed| repeated.get(&CompletionVersions::key(seed)).cloned();
        match request.seeds.iter().map(planned).collect() {
            Some(planned) => DuringUpdate::Repeat(self.cache, planned),
            None => {
                let policy = request.policy;
                tracing::warn!(
                    policy,
                    "a completion is not in the recorded schedule; it has the newest weights"
                );
                DuringUpdate::TakeOver(self.cache)
            }
        }
    }

    fn record(&self, seeds: &[[u8; 32]], completions: &[Completion]) {
        let versions = seeds.iter().zip(completions).map(|(seed, completion)| CompletionVersions {
            seed: CompletionVersions::key(seed),
            version: completion.version,
            changes: completion.version_changes.clone(),
        });
        self.recorded.lock().extend(versions);
    }
}

#[async_trait]
impl Generate for InFlightTeam {
    async fn generate(&self, request: Request) -> Result<Vec<Completion>, GenerateError> {
        let route = self.router.route(request.policy);
        let place = match route.as_deref() {
            Some(Route::Engine(place)) if self.trained.contains(&request.policy) => place,
            _ => return self.router.generate(request).await,
        };
        let (seeds, during_update) = (request.seeds.clone(), self.during_update(&request));
        let completions = self.router.generate_embedded(place, request, during_update).await?;
        self.record(&seeds, &completions);
        Ok(completions)
    }

    fn is_reproducible(&self, policy: usize) -> bool {
        self.router.is_reproducible(policy)
    }
}

impl PolicyRouter {
    /// Keeps earlier versions of all policies in the embedded engines, to be repeated.
    ///
    /// # Errors
    /// If an engine has ended.
    pub(crate) fn keep_versions(&self, count: usize) -> Result<(), Error> {
        let keep = |engine: &LlmEngine| engine.command(EngineCommand::KeepVersions(count));
        self.engines.iter().try_for_each(keep).map_err(Error::Engine)
    }
}
