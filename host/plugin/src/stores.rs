//! Stores of a plugin's instances, with the limits, folders and hosts that the workflow grants.

use std::sync::Arc;

use pl_wasm::{AllowedHost, Engine, Folders, Lifetime, Limits, Store};

use crate::call_log::CallLog;
use crate::plugin_log::PluginLog;
use crate::random::RandomStream;
use crate::services::{Context, Services};

/// Limit of stdout and of stderr of one call, in bytes: enough for a traceback.
const MAX_CAPTURED_OUTPUT: u64 = 64 << 10;

/// Number of free permits below which idle instances are dropped.
const SCARCE_PERMITS: usize = 32;

/// Creates the stores of one plugin.
pub(crate) struct StoreFactory {
    /// The plugin's name in the workflow.
    pub plugin: Arc<str>,
    pub engine: Engine,
    pub limits: Limits,
    pub folders: Option<Folders>,
    pub hosts: Arc<[AllowedHost]>,
    /// Volume of the log of all instances.
    pub log: Arc<PluginLog>,
}

impl StoreFactory {
    /// Creates a store of an episode, with all granted folders and hosts.
    pub(crate) fn granted(
        &self,
        item: &Arc<str>,
        stream: RandomStream,
        services: Services,
        call_log: Option<CallLog>,
    ) -> Store<Context> {
        let mut store = self.offline(item, stream);
        let context = &mut store.data_mut().data;
        (context.services, context.call_log) = (Some(services), call_log);
        self.allow_hosts(&mut store);
        store
    }

    /// Creates a store with the granted folders, but without the granted hosts.
    pub(crate) fn offline(&self, item: &Arc<str>, stream: RandomStream) -> Store<Context> {
        let mut store = self.isolated(item, stream);
        if let Some(folders) = &self.folders {
            store.data_mut().mount(folders);
        }
        store
    }

    /// Creates a store without the granted folders and hosts.
    pub(crate) fn isolated(&self, item: &Arc<str>, stream: RandomStream) -> Store<Context> {
        let context = Context {
            plugin: Arc::clone(&self.plugin),
            item: Arc::clone(item),
            services: None,
            policies: None,
            stream,
            function: "",
            turns: 0,
            irreproducible: false,
            call_log: None,
            last_warning: String::new(),
            log: Arc::clone(&self.log),
        };
        let mut store = self.engine.store(context, &self.limits);
        store.data_mut().keep_output(MAX_CAPTURED_OUTPUT);
        store
    }

    /// Lets the guest send requests to the granted hosts from now on.
    pub(crate) fn allow_hosts(&self, store: &mut Store<Context>) {
        store.data_mut().allow_hosts(Arc::clone(&self.hosts));
    }

    /// Returns `true` if calls may soon wait for permits of idle instances.
    pub(crate) fn permits_are_scarce(&self) -> bool {
        self.engine.free_permits(Lifetime::Call) < SCARCE_PERMITS
    }
}
