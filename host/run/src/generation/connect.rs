//! Connections to the servers of a workflow.

use std::collections::BTreeSet;
use std::sync::Arc;

use pl_dsl::workflow::{Policy, Server, ServerKind, Workflow};
use pl_inference::WeightUpdate;
use pl_model::Model;
use pl_servers::{Backoff, Fleet, FleetConfig, Probe, RemoteModel};
use pl_trainer::{ServedPolicy, Trainer};

use crate::error::Error;
use crate::host::Host;
use crate::progress::Notice;
use crate::server_key::server_key;

use super::remote::RemoteSettings;
use super::{AdapterStore, PolicyRouter, RemotePolicy, Route};

/// Text whose tokens probes send.
const PROBE_TEXT: &str = "The capital of France is Paris. The capital of Italy is";

/// Connects to the servers that policies name, and loads the adapters of policies that are not trained. `engine`
/// has the other policies in order, and their base models in order.
///
/// # Errors
/// If a server is not usable, or all of a fleet can't be reached.
pub(crate) fn connect(
    host: &Host,
    workflow: &Workflow,
    trainer: &Trainer,
    engine: Option<pl_inference::LlmEngine>,
) -> Result<PolicyRouter, Error> {
    let fleets = workflow
        .servers
        .iter()
        .enumerate()
        .map(|(index, server)| {
            let used = || workflow.policies.iter().any(|policy| policy.server == Some(index));
            if used() { fleet(host, workflow, trainer, index, server).map(Some) } else { Ok(None) }
        })
        .collect::<Result<Vec<Option<Arc<Fleet>>>, Error>>()?;
    let (mut in_engine, bases) = (0, embedded_bases(workflow, trainer));
    let mut routes = Vec::new();
    let mut adapters = Vec::new();
    for (served, policy) in trainer.policies().into_iter().zip(&workflow.policies) {
        let fleet = policy.server.and_then(|server| fleets.get(server)?.clone());
        let Some(fleet) = fleet else {
            let base = bases.iter().position(|base| *base == served.base).unwrap_or_default();
            routes.push(Route::Engine { base, policy: in_engine });
            in_engine += 1;
            continue;
        };
        routes.push(Route::Server(Box::new(remote(policy, &served, &trainer.bases()[served.base], fleet))));
        // The adapters of trained policies are published before their first requests.
        if let (Some(adapter), false, None) = (served.adapter, served.trained, &policy.served) {
            adapters.push((served.policy, adapter, served.version));
        }
    }
    let store = Arc::new(AdapterStore::default());
    let router = PolicyRouter::new(engine, routes, fleets.into_iter().flatten().collect(), store);
    for (policy, adapter, version) in adapters {
        host.block_on(router.publish(policy, WeightUpdate::Adapter(adapter), version))?;
    }
    Ok(router)
}

/// Returns the indices of the base models that the embedded engine needs.
pub(crate) fn embedded_bases(workflow: &Workflow, trainer: &Trainer) -> Vec<usize> {
    let policies = trainer.policies();
    let served = policies.iter().zip(&workflow.policies).filter(|(_, policy)| policy.server.is_none());
    let used: BTreeSet<usize> = served.map(|(served, _)| served.base).collect();
    used.into_iter().collect()
}

fn fleet(
    host: &Host,
    workflow: &Workflow,
    trainer: &Trainer,
    index: usize,
    server: &Server,
) -> Result<Arc<Fleet>, Error> {
    let mut probes: Vec<Probe> = Vec::new();
    for (served, policy) in trainer.policies().iter().zip(&workflow.policies) {
        let base = &trainer.bases()[served.base];
        let model = base_or_named(policy, base);
        if policy.server != Some(index) || probes.iter().any(|probe| probe.model == model) {
            continue;
        }
        let prompt = base
            .tokenizer
            .encode(PROBE_TEXT)
            .map_err(|error| Error::Model { model: policy.name.clone(), source: Box::new(error) })?;
        probes.push(Probe { model, prompt: prompt.into(), vocab: vocab(base) });
    }
    let config = FleetConfig {
        name: server.name.clone(),
        addresses: server.addresses.clone(),
        kind: match server.kind {
            ServerKind::Vllm => pl_servers::ServerKind::Vllm,
            ServerKind::LlamaCpp => pl_servers::ServerKind::LlamaCpp,
        },
        key: server.key_variable.as_deref().map(|variable| server_key(&server.name, variable)).transpose()?,
        timeout: server.timeout,
        connections: server.connections as usize,
        retries: server.retries,
        backoff: Backoff::default(),
    };
    let progress = Arc::clone(host.progress());
    let observer = Arc::new(move |event| progress.notice(&Notice::Fleet(event)));
    host.block_on(Fleet::connect(config, probes, observer)).map(Arc::new).map_err(Error::server)
}

fn vocab(base: &Model) -> u32 {
    u32::try_from(base.config.vocab).unwrap_or(u32::MAX)
}

/// Returns the model that a policy without an adapter asks for.
fn base_or_named(policy: &Policy, base: &Model) -> RemoteModel {
    match &policy.served {
        Some(name) => RemoteModel::Named(name.as_str().into()),
        None => RemoteModel::Base(base.hash.as_str().into()),
    }
}

fn remote(policy: &Policy, served: &ServedPolicy, base: &Model, fleet: Arc<Fleet>) -> RemotePolicy {
    RemotePolicy::new(RemoteSettings {
        policy: served.policy,
        name: policy.name.clone(),
        fleet,
        tokenizer: Arc::clone(&base.tokenizer),
        vocab: vocab(base),
        max_positions: base.config.max_positions,
        base: base.hash.as_str().into(),
        trained: served.trained,
        model: base_or_named(policy, base),
        version: served.version,
    })
}
