//! One server, with its identity and the adapters that it has loaded.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Mutex;

use crate::config::{FleetConfig, ServerKind};
use crate::dialect::Dialect;
use crate::error::ServerError;
use crate::http::HttpClient;
use crate::identity::Identity;
use crate::llamacpp::LlamaCpp;
use crate::probe::Probe;
use crate::request::{RemoteAdapter, RemoteModel, TokenCompletion, TokenRequest};
use crate::vllm::Vllm;

/// A server of a fleet.
pub(crate) struct Server {
    http: HttpClient,
    dialect: Box<dyn Dialect>,
    probes: Arc<[Probe]>,
    /// Identity and adapters of the server. Forgotten when it may have been restarted.
    known: Mutex<Known>,
    /// True if a request may have several seeds.
    takes_seeds: AtomicBool,
}

#[derive(Default)]
struct Known {
    /// `None` until the probes have passed.
    identity: Option<Arc<Identity>>,
    /// Names of the adapters that it has loaded.
    adapters: HashSet<String>,
}

impl Server {
    /// # Errors
    /// [`ServerError::Setup`] if the address is not usable.
    pub(crate) fn new(
        config: &FleetConfig,
        address: &str,
        probes: Arc<[Probe]>,
    ) -> Result<Self, ServerError> {
        let dialect: Box<dyn Dialect> = match config.kind {
            ServerKind::Vllm => Box::new(Vllm),
            ServerKind::LlamaCpp => Box::new(LlamaCpp),
        };
        Ok(Self {
            http: HttpClient::new(&config.http(), address)?,
            dialect,
            probes,
            known: Mutex::new(Known::default()),
            takes_seeds: AtomicBool::new(false),
        })
    }

    /// True if a request may have several seeds.
    pub(crate) fn takes_seeds(&self) -> bool {
        self.takes_seeds.load(Ordering::Relaxed)
    }

    /// Probes the server unless it is known, and loads the adapter of a request unless it has that.
    pub(crate) async fn prepare(
        &self,
        adapter: Option<&RemoteAdapter>,
    ) -> Result<Arc<Identity>, ServerError> {
        let mut known = self.known.lock().await;
        let identity = match &known.identity {
            Some(identity) => Arc::clone(identity),
            None => {
                let identity = Arc::new(self.dialect.identify(&self.http).await?);
                for probe in &*self.probes {
                    probe.run(&*self.dialect, &self.http, &identity).await?;
                }
                self.takes_seeds.store(identity.is_pl_host, Ordering::Relaxed);
                known.identity = Some(Arc::clone(&identity));
                identity
            }
        };
        if let Some(adapter) = adapter.filter(|adapter| !known.adapters.contains(&adapter.name)) {
            self.dialect.load_adapter(&self.http, &identity, adapter).await?;
            known.adapters.insert(adapter.name.clone());
        }
        Ok(identity)
    }

    /// Completes the prompt of a request once per seed of `seeds`.
    pub(crate) async fn complete(
        &self,
        request: &TokenRequest,
        seeds: &[[u8; 32]],
    ) -> Result<Vec<TokenCompletion>, ServerError> {
        let adapter = match &request.model {
            RemoteModel::Adapter(adapter) => Some(&**adapter),
            RemoteModel::Base(_) | RemoteModel::Named(_) => None,
        };
        let identity = self.prepare(adapter).await?;
        let result = self.dialect.complete(&self.http, &identity, request, seeds).await;
        match (&result, adapter) {
            (Err(error), _) if error.may_follow_restart() => self.forget().await,
            (Err(ServerError::NotFound { .. }), Some(adapter)) => {
                self.known.lock().await.adapters.remove(&adapter.name);
            }
            (Err(ServerError::NotFound { .. }), None) => self.forget().await,
            _ => {}
        }
        result
    }

    /// Removes an adapter if the server has it.
    pub(crate) async fn unload(&self, name: &str) -> Result<(), ServerError> {
        if self.known.lock().await.adapters.remove(name) {
            self.dialect.unload_adapter(&self.http, name).await?;
        }
        Ok(())
    }

    async fn forget(&self) {
        *self.known.lock().await = Known::default();
    }
}
