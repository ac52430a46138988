//! One server, with its identity and the adapters that it has loaded.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Mutex;

use crate::config::{FleetConfig, ServerKind, SleepLevel};
use crate::dialect::Dialect;
use crate::error::ServerError;
use crate::http::HttpClient;
use crate::identity::Identity;
use crate::llamacpp::LlamaCpp;
use crate::openai::{self, ChatCompletion, ChatRequest, OpenAi};
use crate::probe::Probe;
use crate::request::{RemoteModel, TokenCompletion, TokenRequest};
use crate::sglang::SgLang;
use crate::sleep;
use crate::stats::{ServerStats, StatsCounters};
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
    sleep: SleepLevel,
    stats: StatsCounters,
}

#[derive(Default)]
struct Known {
    /// `None` until the probes have passed.
    identity: Option<Arc<Identity>>,
    /// Names of the adapters that it has loaded.
    adapters: HashSet<String>,
    /// Checksum and version of the weights that a model was given, by its name.
    weights: HashMap<Arc<str>, (String, u64)>,
    asleep: bool,
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
            ServerKind::SgLang => Box::new(SgLang),
            ServerKind::LlamaCpp => Box::new(LlamaCpp),
            ServerKind::OpenAi => Box::new(OpenAi),
        };
        Ok(Self {
            http: HttpClient::new(&config.http(), address)?,
            dialect,
            probes,
            known: Mutex::new(Known::default()),
            takes_seeds: AtomicBool::new(false),
            sleep: config.sleep,
            stats: StatsCounters::default(),
        })
    }

    /// True if a request may have several seeds.
    pub(crate) fn takes_seeds(&self) -> bool {
        self.takes_seeds.load(Ordering::Relaxed)
    }

    /// Probes the server unless it is known, wakes it, and loads the weights of a model unless it has those.
    pub(crate) async fn prepare(&self, model: Option<&RemoteModel>) -> Result<Arc<Identity>, ServerError> {
        let mut known = self.known.lock().await;
        let identity = match &known.identity {
            Some(identity) => {
                if known.asleep {
                    sleep::wake(&self.http, identity, self.sleep).await?;
                }
                Arc::clone(identity)
            }
            None => {
                let identity = Arc::new(self.dialect.identify(&self.http).await?);
                // A run that was killed may have left it asleep.
                sleep::wake(&self.http, &identity, self.sleep).await?;
                for probe in &*self.probes {
                    probe.run(&*self.dialect, &self.http, &identity).await?;
                }
                self.takes_seeds.store(identity.is_pl_host, Ordering::Relaxed);
                known.identity = Some(Arc::clone(&identity));
                identity
            }
        };
        known.asleep = false;
        match model {
            Some(RemoteModel::Adapter(adapter)) if !known.adapters.contains(&adapter.name) => {
                self.dialect.load_adapter(&self.http, &identity, adapter).await?;
                known.adapters.insert(adapter.name.clone());
            }
            Some(RemoteModel::Weights(weights)) => {
                let wanted = (weights.checksum.clone(), weights.version);
                if !identity.is_pl_host && self.probes.len() > 1 {
                    return Err(self.http.unfit(
                        format!(
                            "`{}` would replace the weights of its only model, which other policies use too",
                            weights.name
                        ),
                        "give this policy a server block of its own, or use `pl-host serve`, which has several models",
                    ));
                }
                if known.weights.get(&weights.name) != Some(&wanted) {
                    self.dialect.load_weights(&self.http, &identity, weights).await?;
                    known.weights.insert(Arc::clone(&weights.name), wanted);
                }
            }
            _ => {}
        }
        Ok(identity)
    }

    /// Completes the prompt of a request once per seed of `seeds`.
    pub(crate) async fn complete(
        &self,
        request: &TokenRequest,
        seeds: &[[u8; 32]],
    ) -> Result<Vec<TokenCompletion>, ServerError> {
        let identity = self.prepare(Some(&request.model)).await?;
        let completing = self.dialect.complete(&self.http, &identity, request, seeds);
        let tokens = |completions: &Vec<TokenCompletion>| {
            completions.iter().map(|completion| completion.tokens.len() as u64).sum()
        };
        let result = self.stats.measure(completing, tokens).await;
        match (&result, &request.model) {
            (Err(error), _) if error.may_follow_restart() => self.forget().await,
            (Err(ServerError::NotFound { .. }), RemoteModel::Adapter(adapter)) => {
                self.known.lock().await.adapters.remove(&adapter.name);
            }
            // Another client may have replaced the weights.
            (Err(ServerError::Answer { .. }), RemoteModel::Weights(weights)) => {
                self.known.lock().await.weights.remove(&weights.name);
            }
            (Err(ServerError::NotFound { .. }), _) => self.forget().await,
            _ => {}
        }
        result
    }

    /// Continues a conversation once.
    pub(crate) async fn chat(
        &self,
        request: &ChatRequest,
        seed: &[u8; 32],
    ) -> Result<ChatCompletion, ServerError> {
        self.prepare(None).await?;
        let completing = openai::complete(&self.http, request, seed);
        let result = self.stats.measure(completing, |completion| completion.tokens).await;
        if result.as_ref().is_err_and(ServerError::may_follow_restart) {
            self.forget().await;
        }
        result
    }

    /// Returns the counts since the last call.
    pub(crate) fn take_stats(&self) -> ServerStats {
        self.stats.take(&self.http.address)
    }

    /// Removes an adapter if the server has it.
    pub(crate) async fn unload(&self, name: &str) -> Result<(), ServerError> {
        if self.known.lock().await.adapters.remove(name) {
            self.dialect.unload_adapter(&self.http, name).await?;
        }
        Ok(())
    }

    /// Puts the server to sleep until the next request. None may be in progress.
    ///
    /// # Errors
    /// If the server can't be reached, or doesn't sleep at the level that is set.
    pub(crate) async fn sleep(&self) -> Result<(), ServerError> {
        let mut known = self.known.lock().await;
        let Some(identity) = known.identity.clone() else { return Ok(()) };
        if self.sleep == SleepLevel::DropWeights {
            known.weights.clear();
            for adapter in std::mem::take(&mut known.adapters) {
                self.dialect.unload_adapter(&self.http, &adapter).await?;
            }
        }
        sleep::sleep(&self.http, &identity, self.sleep).await?;
        known.asleep = true;
        Ok(())
    }

    /// Wakes the server if it is asleep.
    pub(crate) async fn wake(&self) -> Result<(), ServerError> {
        let asleep = self.known.lock().await.asleep;
        if asleep { self.prepare(None).await.map(drop) } else { Ok(()) }
    }

    async fn forget(&self) {
        *self.known.lock().await = Known::default();
    }
}
