//! Adapters that clients load while a server runs.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::Mutex;

/// An adapter that was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedAdapter {
    /// Index of the new policy.
    pub policy: usize,
    /// BLAKE3 of the file of tensors that was read, in hexadecimal.
    pub checksum: String,
}

/// An engine that takes adapters while it runs.
#[async_trait]
pub trait AdapterLoader: Send + Sync {
    /// Loads a PEFT folder onto the base model of a policy.
    ///
    /// # Errors
    /// If the folder can't be read, or the adapter does not fit the model.
    async fn load(&self, base: usize, folder: &Path, version: u64) -> Result<LoadedAdapter, AdapterError>;

    /// Removes a policy that was loaded. Requests in progress finish.
    ///
    /// # Errors
    /// If the engine has no such policy.
    async fn unload(&self, policy: usize) -> Result<(), AdapterError>;
}

/// Message of an adapter that can't be loaded or unloaded.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct AdapterError(pub String);

/// Adapters that clients have loaded.
pub(crate) struct LoadedAdapters {
    pub(crate) loader: Arc<dyn AdapterLoader>,
    /// Names. Locked while one is loaded, so that a name has one adapter.
    pub(crate) names: Mutex<BTreeSet<String>>,
}

impl LoadedAdapters {
    pub(crate) fn new(loader: Arc<dyn AdapterLoader>) -> Self {
        Self { loader, names: Mutex::new(BTreeSet::new()) }
    }
}
