//! Loading of plugins: compilation, linking and descriptions of items.

use std::sync::Arc;
use std::time::Duration;

use pl_types::erased::{Erased, erased};
use pl_types::{Item, ItemKind};
use pl_wasm::{AllowedHost, Component, Engine, Folders, Guest, Lifetime, Limits};
use wasmtime::component::{HasSelf, InstancePre, Linker};

use crate::bindings::agent::AgentPre;
use crate::bindings::base::BasePre;
use crate::bindings::environment::EnvironmentPre;
use crate::bindings::reward::RewardPre;
use crate::bindings::{agent, base, environment, reward, types};
use crate::contract::{ComponentInterface, Contract, ContractError};
use crate::error::{CallError, CallFailure, Cause, Error, RefusalKind, shortened};
use crate::pool::InstancePool;
use crate::random::RandomStream;
use crate::services::Context;
use crate::stores::StoreFactory;
use crate::{item, section};

/// A `plugin` block of a workflow.
#[derive(Debug, Clone)]
pub struct PluginSpec {
    /// Its name in the workflow.
    pub name: String,
    /// Bytes that the host holds for one instance: linear memory, files, bodies of HTTP, open handles.
    pub memory: u64,
    /// Fuel of one call.
    pub fuel: u64,
    /// Wall-clock backstop of one call. Its waits for HTTP may take 20 times as long.
    pub timeout: Duration,
    /// Folders that the plugin may read.
    pub folders: Option<Folders>,
    /// Hosts to which the plugin may send HTTP requests.
    pub hosts: Arc<[AllowedHost]>,
}

impl PluginSpec {
    /// Creates a specification with the engine's default limits.
    pub fn new(name: impl Into<String>) -> Self {
        let Limits { memory, fuel, timeout, .. } = Limits::default();
        Self { name: name.into(), memory, fuel, timeout, folders: None, hosts: Arc::default() }
    }
}

/// A loaded plugin. Cheap to clone.
#[derive(Clone)]
pub struct Plugin {
    pub(crate) inner: Erased<Inner>,
}

pub(crate) struct Inner {
    pub stores: StoreFactory,
    component: Component,
    items: Vec<Item>,
    pub environments: Option<World<EnvironmentPre<Guest<Context>>, environment::Environment>>,
    pub agents: Option<World<AgentPre<Guest<Context>>, agent::Agent>>,
    pub rewards: Option<World<RewardPre<Guest<Context>>, reward::Reward>>,
}

/// One of the contract's worlds that the plugin exports.
pub(crate) struct World<P, B> {
    pub ready: P,
    /// Instances for stateless calls.
    pub pool: InstancePool<B>,
}

impl<P, B> World<P, B> {
    fn new(ready: wasmtime::Result<P>) -> Option<Self> {
        ready.ok().map(|ready| Self { ready, pool: InstancePool::default() })
    }
}

/// Factor between the limit on a call's waits for HTTP and its `timeout`: with the default `timeout`, the slowest
/// response (120 s) and some others.
const WAIT_FACTOR: u32 = 20;

/// Kind of the engine's cache entry with a plugin's items.
const ITEMS_NOTE: &str = "items-0.1.json";

impl Plugin {
    /// Loads a plugin: compiles it unless the engine's cache has it, links it, and reads its items.
    ///
    /// # Errors
    /// [`Error::Load`] if the bytes are not a valid component, [`Error::Contract`] if it does not fit the
    /// contract, [`Error::Call`] if it can't describe itself.
    pub async fn load(engine: &Engine, spec: PluginSpec, bytes: &[u8]) -> Result<Self, Error> {
        erased(Self::try_load(engine, spec, bytes)).await
    }

    async fn try_load(engine: &Engine, spec: PluginSpec, bytes: &[u8]) -> Result<Self, Error> {
        check_contract(bytes).map_err(|reason| Error::Contract {
            plugin: spec.name.clone(),
            version: version(&blake3::hash(bytes).to_hex()),
            reason: reason.to_string(),
        })?;
        let component = compile(engine, &spec.name, bytes).await?;
        let name: Arc<str> = spec.name.into();
        let contract = |reason: String| Error::Contract {
            plugin: name.to_string(),
            version: version(&component.hash()),
            reason: format!("{reason}; build it against `wit/v{}`", Contract::NEWEST),
        };
        let limits = Limits {
            memory: spec.memory,
            fuel: spec.fuel,
            timeout: spec.timeout,
            wait: spec.timeout.saturating_mul(WAIT_FACTOR),
            ..Limits::default()
        };
        let mut linker = linker(engine, &component, &spec.hosts)
            .map_err(|source| Error::Load { plugin: name.to_string(), source })?;
        base::Base::add_to_linker::<_, HasSelf<Guest<Context>>>(&mut linker, |guest| guest)
            .map_err(|error| contract(format!("{error:#}")))?;
        let ready =
            linker.instantiate_pre(component.inner()).map_err(|error| contract(format!("{error:#}")))?;
        let catalog = BasePre::new(ready.clone()).map_err(|error| contract(format!("{error:#}")))?;
        let mut inner = Inner {
            stores: StoreFactory {
                plugin: Arc::clone(&name),
                engine: engine.clone(),
                limits,
                folders: spec.folders,
                hosts: spec.hosts,
                log: Arc::default(),
            },
            component: component.clone(),
            items: Vec::new(),
            environments: World::new(EnvironmentPre::new(ready.clone())),
            agents: World::new(AgentPre::new(ready.clone())),
            rewards: World::new(RewardPre::new(ready.clone())),
        };
        inner.items = match cached_items(engine, &component) {
            Some(items) => items,
            None => {
                let items = inner.describe(&catalog).await?;
                if let Ok(note) = serde_json::to_vec(&items) {
                    engine.write_note(&component, ITEMS_NOTE, &note);
                }
                items
            }
        };
        inner.check_worlds(&ready).map_err(|missing| contract(missing.to_string()))?;
        if section::items(bytes).is_some_and(|copy| copy != inner.items) {
            let section = section::NAME;
            return Err(contract(format!(
                "its section {section} differs from the description that it returns"
            )));
        }
        Ok(Self { inner: Erased::new(inner) })
    }

    /// Returns its name in the workflow.
    pub fn name(&self) -> &str {
        &self.inner.stores.plugin
    }

    /// Returns its items.
    pub fn items(&self) -> &[Item] {
        &self.inner.items
    }

    /// Returns name and hash of each folder that it may read.
    pub fn folders(&self) -> impl Iterator<Item = (&String, &String)> {
        self.inner.stores.folders.iter().flat_map(|folders| folders.hashes())
    }

    /// Returns the BLAKE3 of the component, in hexadecimal.
    pub fn hash(&self) -> String {
        self.inner.component.hash()
    }

    /// Finds an item by kind and name.
    ///
    /// # Errors
    /// [`Error::UnknownItem`], which lists the available items.
    pub fn item(&self, kind: ItemKind, name: &str) -> Result<&Item, Error> {
        let of_kind = || self.items().iter().filter(move |item| item.kind == kind);
        of_kind().find(|item| item.name == name).ok_or_else(|| {
            let names: Vec<&str> = of_kind().map(|item| item.name.as_str()).collect();
            let offered = match names.as_slice() {
                [] => format!("it has no {kind}"),
                names => format!("it has {}", names.join(", ")),
            };
            Error::UnknownItem {
                plugin: self.name().to_owned(),
                version: version(&self.inner.component.hash()),
                kind,
                item: name.to_owned(),
                offered,
            }
        })
    }
}

/// A described item without its interface.
#[derive(Debug, thiserror::Error)]
#[error("it describes the {kind} {name}, but {reason:#}")]
struct MissingInterface {
    kind: ItemKind,
    name: String,
    reason: wasmtime::Error,
}

impl Inner {
    async fn describe(&self, catalog: &BasePre<Guest<Context>>) -> Result<Vec<Item>, Error> {
        let item: Arc<str> = "".into();
        let _permit = self.stores.engine.permit(Lifetime::Call).await;
        // A description is part of the component: it depends on no granted folder and no host.
        let mut store = self.stores.isolated(&item, RandomStream::from_parts(&[]));
        let described = pl_wasm::call(&mut store, async |store| {
            let instance = catalog.instantiate_async(&mut *store).await?;
            instance.pl_host_plugin_catalog().call_describe(&mut *store).await
        })
        .await;
        described
            .map_err(|fault| CallFailure::fault(fault, &mut store))
            .and_then(|items| item::read(items).map_err(CallFailure::invalid))
            .map_err(|failed| self.error("", "describe", failed))
    }

    /// Checks that the component exports the interface of each described item.
    fn check_worlds(&self, ready: &InstancePre<Guest<Context>>) -> Result<(), MissingInterface> {
        for item in &self.items {
            let missing = match item.kind {
                ItemKind::Environment if self.environments.is_none() => {
                    EnvironmentPre::new(ready.clone()).err()
                }
                ItemKind::Agent if self.agents.is_none() => AgentPre::new(ready.clone()).err(),
                ItemKind::Reward if self.rewards.is_none() => RewardPre::new(ready.clone()).err(),
                _ => None,
            };
            if let Some(reason) = missing {
                return Err(MissingInterface { kind: item.kind, name: item.name.clone(), reason });
            }
        }
        Ok(())
    }

    pub(crate) fn error(&self, item: &str, function: &'static str, failed: CallFailure) -> Error {
        Error::Call(Box::new(CallError {
            plugin: self.stores.plugin.to_string(),
            version: version(&self.component.hash()),
            item: item.to_owned(),
            function,
            cause: failed.cause,
            stack: failed.stack,
            output: failed.output,
        }))
    }
}

/// Creates a linker with WASI. It has `wasi:http` only for a plugin that may call a host.
fn linker(
    engine: &Engine,
    component: &Component,
    hosts: &[AllowedHost],
) -> Result<Linker<Guest<Context>>, pl_wasm::Error> {
    let mut linker = engine.linker::<Context>()?;
    if hosts.is_empty() {
        pl_wasm::deny_http(&mut linker, component)?;
    } else {
        pl_wasm::link_http(&mut linker)?;
    }
    Ok(linker)
}

/// Takes the component from the cache, or compiles it on a thread that may block.
async fn compile(engine: &Engine, name: &str, bytes: &[u8]) -> Result<Component, Error> {
    if let Some(found) = engine.find(bytes) {
        return Ok(found);
    }
    let work = {
        let (engine, name, bytes) = (engine.clone(), name.to_owned(), bytes.to_vec());
        move || engine.load(&name, &bytes)
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(loaded) => loaded.map_err(|source| Error::Load { plugin: name.to_owned(), source }),
        Err(lost) => std::panic::resume_unwind(lost.into_panic()),
    }
}

fn cached_items(engine: &Engine, component: &Component) -> Option<Vec<Item>> {
    serde_json::from_slice(&engine.note(component, ITEMS_NOTE)?).ok()
}

/// Returns the items of a component without compiling it, from its custom section or from the engine's cache.
/// Returns `None` if neither has them.
pub fn known_items(engine: &Engine, bytes: &[u8]) -> Option<Vec<Item>> {
    section::items(bytes).or_else(|| serde_json::from_slice(&engine.note_for_bytes(bytes, ITEMS_NOTE)?).ok())
}

/// Returns the first digits of the component's hash, which messages show as its version.
fn version(hash: &str) -> String {
    hash[..12].to_owned()
}

/// Checks by names that a component uses a supported contract and imports nothing unknown. A component that
/// can't be parsed passes, because the compiler reports the reason.
fn check_contract(bytes: &[u8]) -> Result<(), ContractError> {
    let Some(interface) = ComponentInterface::read(bytes) else { return Ok(()) };
    match interface.contract()? {
        // The newest version needs no adapter.
        Contract::V0_1 => {}
    }
    let unknown = interface.unknown_imports();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(ContractError::UnknownImports { names: unknown.join(", ") })
}

/// Converts the contract's error.
pub(crate) fn refused(error: types::Error) -> CallFailure {
    let kind = match error.kind {
        types::ErrorKind::Settings => RefusalKind::Settings,
        types::ErrorKind::Task => RefusalKind::Task,
        types::ErrorKind::Internal => RefusalKind::Internal,
    };
    Cause::Refused { kind, message: shortened(error.message) }.into()
}
