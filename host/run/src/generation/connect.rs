//! Connections to the servers of a workflow.

use std::sync::Arc;

use pl_dsl::workflow::{Policy, Server, ServerKind, Workflow};
use pl_inference::WeightUpdate;
use pl_model::{Model, TensorSet};
use pl_servers::{Backoff, Fleet, FleetConfig, Probe, RemoteModel, SleepLevel};
use pl_trainer::{ServedPolicy, Trainer};

use crate::error::Error;
use crate::host::Host;
use crate::progress::Notice;
use crate::server_key::server_key;

use super::hosted::HostedPolicy;
use super::layout::EnginePlace;
use super::remote::RemotePolicyConfig;
use super::{EngineLayout, EnginePolicy, PolicyRouter, RemotePolicy, Route, WeightStore};

/// Text whose tokens probes send.
const PROBE_TEXT: &str = "The capital of France is Paris. The capital of Italy is";

/// Connects to the servers that policies name, and loads the weights that are not published before their first
/// requests. `engines` have the other policies as `layout` says.
///
/// # Errors
/// If a server is not usable, or all of a fleet can't be reached.
pub(crate) fn connect(
    host: &Host,
    workflow: &Workflow,
    trainer: &Trainer,
    engines: Vec<pl_inference::LlmEngine>,
    layout: &EngineLayout,
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
    let mut routes = Vec::new();
    let mut updates = Vec::new();
    for (served, policy) in trainer.policies().into_iter().zip(&workflow.policies) {
        let fleet = policy.server.and_then(|server| fleets.get(server)?.clone());
        let Some(fleet) = fleet else {
            let place = layout.policies.get(served.policy).copied().flatten();
            let found = place.and_then(|place| {
                let EnginePlace { pool, base, policy } = place;
                Some(EnginePolicy { engine: engines.get(pool)?.clone(), base, policy })
            });
            routes.push(found.map_or(Route::Removed, Route::Engine));
            continue;
        };
        let base = &trainer.bases()[served.base];
        if let (true, Some(name)) = (is_hosted(workflow, policy), &policy.served) {
            let (served, tokenizer) = (name.clone(), Arc::clone(&base.tokenizer));
            let hosted = HostedPolicy { policy: routes.len(), served, fleet, tokenizer };
            routes.push(Route::Hosted(Box::new(hosted)));
            continue;
        }
        routes.push(Route::Server(Box::new(remote(policy, &served, base, fleet))));
        match (served.adapter, served.trained, &policy.served) {
            // The adapters of trained policies are published before their first requests.
            (Some(_), true, _) | (Some(_), false, Some(_)) | (None, false, _) => {}
            (Some(adapter), false, None) => {
                updates.push((served.policy, WeightUpdate::Adapter(adapter), served.version));
            }
            // A server may have other weights of an earlier run.
            (None, true, _) => {
                let weights = WeightUpdate::Weights(base.weights.shallow());
                updates.push((served.policy, weights, served.version));
            }
        }
    }
    let store = Arc::new(WeightStore::default());
    let router = PolicyRouter::new(engines, routes, fleets.into_iter().flatten().collect(), store);
    for (policy, update, version) in updates {
        host.block_on(router.publish(policy, update, version))?;
    }
    Ok(router)
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
        let model = base_or_named(policy, served, base);
        if policy.server != Some(index)
            || is_hosted(workflow, policy)
            || probes.iter().any(|probe| probe.model == model)
        {
            continue;
        }
        let prompt = base.tokenizer.encode(PROBE_TEXT).map_err(Error::model(&policy.name))?;
        probes.push(Probe { model, prompt: prompt.into(), vocab: vocab(base) });
    }
    let config = FleetConfig {
        name: server.name.clone(),
        addresses: server.addresses.clone(),
        kind: match server.kind {
            ServerKind::Vllm => pl_servers::ServerKind::Vllm,
            ServerKind::SgLang => pl_servers::ServerKind::SgLang,
            ServerKind::LlamaCpp => pl_servers::ServerKind::LlamaCpp,
            ServerKind::OpenAi => pl_servers::ServerKind::OpenAi,
        },
        key: server.key_variable.as_deref().map(|variable| server_key(&server.name, variable)).transpose()?,
        timeout: server.timeout,
        connections: server.connections as usize,
        retries: server.retries,
        hedge_after: server.hedge_after,
        sleep: match server.sleep {
            0 => SleepLevel::Never,
            1 => SleepLevel::KeepWeights,
            _ => SleepLevel::DropWeights,
        },
        backoff: Backoff::default(),
    };
    let progress = Arc::clone(host.progress());
    let observer = Arc::new(move |event| progress.notice(&Notice::Fleet(event)));
    host.block_on(Fleet::connect(config, probes, observer)).map(Arc::new).map_err(Error::server)
}

/// Returns true if a policy is a hosted model, which takes no token ids.
pub fn is_hosted(workflow: &Workflow, policy: &Policy) -> bool {
    let server = policy.server.and_then(|server| workflow.servers.get(server));
    server.is_some_and(|server| !server.kind.has_token_ids())
}

fn vocab(base: &Model) -> u32 {
    u32::try_from(base.config.vocab).unwrap_or(u32::MAX)
}

/// Returns the model that a policy without an adapter asks for. A whole model that is trained has the policy's name
/// there unless the workflow says otherwise.
fn base_or_named(policy: &Policy, served: &ServedPolicy, base: &Model) -> RemoteModel {
    match (&policy.served, served.trained && served.adapter.is_none()) {
        (Some(name), _) => RemoteModel::Named(name.as_str().into()),
        (None, true) => RemoteModel::Named(policy.name.as_str().into()),
        (None, false) => RemoteModel::Base(base.hash.as_str().into()),
    }
}

fn remote(policy: &Policy, served: &ServedPolicy, base: &Model, fleet: Arc<Fleet>) -> RemotePolicy {
    let config = RemotePolicyConfig {
        policy: served.policy,
        name: policy.name.clone(),
        fleet,
        tokenizer: Arc::clone(&base.tokenizer),
        vocab: vocab(base),
        max_positions: base.config.max_positions,
        base: base.hash.as_str().into(),
        model_config: base.config.clone(),
        template: Arc::clone(&base.template),
        trained: served.trained,
    };
    RemotePolicy::new(config, base_or_named(policy, served, base), served.version)
}
