//! Generation of a session: each policy's requests go to the embedded engine or to the servers of the policy.

mod connect;
mod gate;
mod grammar_checks;
mod hosted;
mod in_flight;
mod layout;
mod pinned;
mod remote;
mod runtime_adapters;
mod runtime_control;
mod store;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::RwLock;
use pl_inference::{DuringUpdate, EngineStats, LlmEngine, WeightUpdate};
use pl_servers::{Fleet, ServerError, ServerStats};
use pl_types::{Completion, Generate, GenerateError, Request};

use crate::error::Error;

pub(crate) use self::connect::connect;
pub use self::connect::is_hosted;
use self::gate::Gate;
use self::hosted::HostedPolicy;
pub(crate) use self::hosted::conversation_template;
pub(crate) use self::in_flight::InFlightTeam;
pub(crate) use self::layout::{EngineLayout, Pool};
pub(crate) use self::pinned::{PinnedTeam, PinnedVersion};
pub(crate) use self::remote::RemotePolicy;
pub use self::runtime_adapters::RuntimeAdapters;
pub(crate) use self::runtime_control::CurrentWeights;
pub use self::runtime_control::{ControlError, RuntimeControl};
pub(crate) use self::store::WeightStore;

/// Longest time that the end of a run waits for servers to remove its adapters.
const LONGEST_RELEASE: Duration = Duration::from_secs(10);

/// Generators of all policies of a workflow.
pub(crate) struct PolicyRouter {
    /// Empty if servers generate for all policies.
    engines: Vec<LlmEngine>,
    /// In the workflow's order of policies. After those, policies that were added at run time.
    routes: RwLock<Vec<Arc<Route>>>,
    fleets: Vec<Arc<Fleet>>,
    store: Arc<WeightStore>,
    /// Closed while a server's engine is paused.
    gate: Gate,
}

/// A policy in an embedded engine.
#[derive(Clone)]
pub(crate) struct EnginePolicy {
    engine: LlmEngine,
    /// Index of its base model in the engine.
    base: usize,
    /// Index in the engine.
    policy: usize,
}

/// Generator of a policy.
pub(crate) enum Route {
    Engine(EnginePolicy),
    Server(Box<RemotePolicy>),
    Hosted(Box<HostedPolicy>),
    /// The policy was removed.
    Removed,
}

impl PolicyRouter {
    pub(crate) fn new(
        engines: Vec<LlmEngine>,
        routes: Vec<Route>,
        fleets: Vec<Arc<Fleet>>,
        store: Arc<WeightStore>,
    ) -> Self {
        let routes = RwLock::new(routes.into_iter().map(Arc::new).collect());
        Self { engines, routes, fleets, store, gate: Gate::default() }
    }

    /// Completes the prompt of a policy's request with weights of an embedded engine.
    async fn generate_embedded(
        &self,
        place: &EnginePolicy,
        request: Request,
        during_update: DuringUpdate,
    ) -> Result<Vec<Completion>, GenerateError> {
        let policy = request.policy;
        let mut passage = self.gate.pass().await;
        let request = Request { policy: place.policy, ..request };
        let generating = place.engine.generate_during_updates(request, during_update);
        tokio::select! {
            result = generating => result.map_err(|error| with_policy(error, policy)),
            () = passage.aborted() => Err(GenerateError::Aborted),
        }
    }

    /// Returns the folder for weights that servers load.
    pub(crate) fn store(&self) -> &WeightStore {
        &self.store
    }

    /// Returns true if servers generate for a policy.
    pub(crate) fn uses_servers(&self) -> bool {
        !self.fleets.is_empty()
    }

    fn route(&self, policy: usize) -> Option<Arc<Route>> {
        self.routes.read().get(policy).cloned()
    }

    /// Gives a policy of the embedded engine new weights, which all later requests use.
    ///
    /// # Errors
    /// If the weights don't fit, or servers generate for the policy.
    pub(crate) fn publish_embedded(
        &self,
        policy: usize,
        update: WeightUpdate,
        version: u64,
    ) -> Result<(), Error> {
        match self.route(policy).as_deref() {
            Some(Route::Engine(place)) => {
                place.engine.publish(place.policy, update, version).map_err(Error::Engine)
            }
            _ => Err(Error::Engine(no_route(policy))),
        }
    }

    /// Gives a policy new weights. Returns when all later requests use them.
    ///
    /// # Errors
    /// If the weights don't fit the engine, or a server refuses them.
    pub(crate) async fn publish(
        &self,
        policy: usize,
        update: WeightUpdate,
        version: u64,
    ) -> Result<(), Error> {
        match self.route(policy).as_deref() {
            Some(Route::Server(remote)) => match update {
                WeightUpdate::Adapter(adapter) => remote.publish(&self.store, &adapter, version).await,
                WeightUpdate::Weights(weights) => {
                    remote.publish_weights(&self.store, &weights, version).await
                }
                // Servers return no hidden states: the trainer computes the values.
                WeightUpdate::ValueHead(_) | WeightUpdate::Version => Ok(()),
            },
            _ => self.publish_embedded(policy, update, version),
        }
    }

    /// Removes the adapters of trained policies from all servers and wakes these, as far as they answer soon.
    pub(crate) async fn release(&self) {
        let routes = self.routes.read().clone();
        let releasing = async {
            for route in routes {
                if let Route::Server(remote) = &*route {
                    remote.release().await;
                }
            }
            for fleet in &self.fleets {
                fleet.wake().await;
            }
        };
        if tokio::time::timeout(LONGEST_RELEASE, releasing).await.is_err() {
            tracing::warn!("some servers may still be asleep, or have the run's last adapters");
        }
    }

    /// Puts the servers that sleep between rollouts to sleep, until their next requests.
    ///
    /// # Errors
    /// If a server doesn't sleep at the level that is set.
    pub(crate) async fn sleep(&self) -> Result<(), Error> {
        for fleet in &self.fleets {
            fleet.sleep().await.map_err(Error::server)?;
        }
        Ok(())
    }

    /// Returns the counts of each server since the last call.
    pub(crate) fn take_server_stats(&self) -> Vec<ServerStats> {
        self.fleets.iter().flat_map(|fleet| fleet.take_stats()).collect()
    }

    /// Returns the work of the embedded engines so far, added up.
    pub(crate) fn engine_stats(&self) -> EngineStats {
        self.engines.iter().fold(EngineStats::default(), |sum, engine| sum.plus(&engine.stats()))
    }

    /// Returns the number of tokens generated so far.
    pub(crate) fn generated_tokens(&self) -> u64 {
        self.engine_stats().generated_tokens
            + self.fleets.iter().map(|fleet| fleet.generated_tokens()).sum::<u64>()
    }
}

fn no_route(policy: usize) -> GenerateError {
    GenerateError::Request { policy, parameter: None, reason: "there is no such policy".to_owned() }
}

#[async_trait]
impl Generate for PolicyRouter {
    async fn generate(&self, request: Request) -> Result<Vec<Completion>, GenerateError> {
        let policy = request.policy;
        match self.route(policy).as_deref() {
            Some(Route::Engine(place)) => self.generate_embedded(place, request, DuringUpdate::Finish).await,
            Some(Route::Server(remote)) => remote.generate(request).await,
            Some(Route::Hosted(hosted)) => hosted.generate(request).await,
            _ => Err(no_route(policy)),
        }
    }

    fn is_reproducible(&self, policy: usize) -> bool {
        match self.route(policy).as_deref() {
            Some(Route::Server(remote)) => remote.is_reproducible(),
            Some(Route::Hosted(_)) => false,
            _ => true,
        }
    }
}

/// Names the workflow's policy in an error instead of the engine's.
fn with_policy(error: GenerateError, policy: usize) -> GenerateError {
    match error {
        GenerateError::Request { parameter, reason, .. } => {
            GenerateError::Request { policy, parameter, reason }
        }
        GenerateError::Failed { reason, .. } => GenerateError::Failed { policy, reason },
        other => other,
    }
}

/// Turns an error of a server into that of a policy's request.
fn failure(policy: usize, error: ServerError) -> GenerateError {
    let reason = error.to_string();
    match error {
        ServerError::Refused { .. } => GenerateError::Request { policy, parameter: None, reason },
        _ => GenerateError::Failed { policy, reason },
    }
}
