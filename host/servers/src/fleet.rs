//! Several servers of one kind as one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use backon::BackoffBuilder;
use futures::future::{join_all, try_join_all};

use crate::balancer::Balancer;
use crate::config::{FleetConfig, SleepLevel};
use crate::error::ServerError;
use crate::event::FleetEvent;
use crate::openai::{ChatCompletion, ChatRequest};
use crate::placement::beginnings;
use crate::probe::Probe;
use crate::request::{RemoteModel, TokenCompletion, TokenRequest};
use crate::server::Server;
use crate::stats::ServerStats;

/// Largest number of seeds in one HTTP request, for servers that take several. `pl-host serve` takes 128.
const SEEDS: usize = 64;

/// Several servers of one kind.
///
/// A request goes to the server that had a prompt with the same beginning last, unless another one has much less
/// to do. If a server fails, its requests move to others; if none works, they wait until one does.
pub struct Fleet {
    pub(crate) config: FleetConfig,
    pub(crate) servers: Vec<Server>,
    pub(crate) balancer: Balancer,
    generated: AtomicU64,
}

impl Fleet {
    /// Connects to the servers and runs the probes. Servers that can't be reached join later; at least one must
    /// answer. Waits while servers say that they are not ready yet.
    ///
    /// # Errors
    /// If a server is not usable, or none can be reached.
    pub async fn connect(
        config: FleetConfig,
        probes: Vec<Probe>,
        observer: Arc<dyn Fn(FleetEvent) + Send + Sync>,
    ) -> Result<Fleet, ServerError> {
        let probes: Arc<[Probe]> = probes.into();
        let new = |address: &String| Server::new(&config, address, Arc::clone(&probes));
        let servers = config.addresses.iter().map(new).collect::<Result<Vec<_>, _>>()?;
        let balancer =
            Balancer::new(&config.name, &config.addresses, config.connections, config.backoff, observer);
        let fleet = Fleet { config, servers, balancer, generated: AtomicU64::new(0) };
        fleet.wait_for_first().await?;
        Ok(fleet)
    }

    /// Waits until one server is usable.
    async fn wait_for_first(&self) -> Result<(), ServerError> {
        for delay in self.config.backoff.delays().build() {
            let results = self.prepare_all(None).await?;
            let Some(last) = results.iter().flatten().last() else { return Ok(()) };
            if results.iter().any(Option::is_none) {
                return Ok(());
            }
            let starting = |error: &ServerError| {
                matches!(error, ServerError::Unavailable { .. } | ServerError::Busy { .. })
            };
            if !results.iter().flatten().any(starting) {
                return Err(ServerError::NoServer {
                    fleet: self.config.name.clone(),
                    last: last.to_string(),
                });
            }
            self.balancer.report_pause();
            tokio::time::sleep(delay).await;
        }
        Ok(())
    }

    /// Prepares all servers. Returns the error of each that can't be reached now.
    ///
    /// # Errors
    /// If a server that can be reached is not usable.
    async fn prepare_all(
        &self,
        model: Option<&RemoteModel>,
    ) -> Result<Vec<Option<ServerError>>, ServerError> {
        let servers = self.servers.iter().enumerate();
        let results = servers.map(|(index, server)| self.prepare(index, server, model));
        join_all(results).await.into_iter().collect()
    }

    async fn prepare(
        &self,
        index: usize,
        server: &Server,
        model: Option<&RemoteModel>,
    ) -> Result<Option<ServerError>, ServerError> {
        let lease = self.balancer.force(index);
        match server.prepare(model).await {
            Ok(_) => {
                lease.succeed();
                Ok(None)
            }
            Err(error) => {
                lease.fail(&error);
                if error.is_permanent() { Err(error) } else { Ok(Some(error)) }
            }
        }
    }

    /// Loads an adapter, or the weights of a model, on every server that can be reached; the others load them before
    /// their next request for them.
    ///
    /// # Errors
    /// If a server refuses them.
    pub async fn load(&self, model: &RemoteModel) -> Result<(), ServerError> {
        self.prepare_all(Some(model)).await.map(drop)
    }

    /// Removes an adapter from every server that can be reached. A server that keeps it has less memory, and no
    /// other weights: failures are only logged.
    pub async fn unload_adapter(&self, name: &str) {
        for (server, result) in
            self.config.addresses.iter().zip(join_all(self.servers.iter().map(|s| s.unload(name))).await)
        {
            if let Err(error) = result {
                tracing::warn!(%server, %error, adapter = name, "an adapter was not unloaded");
            }
        }
    }

    /// Puts all servers to sleep until their next request, if the fleet's settings say so. No request may be in
    /// progress. Servers that can't be reached are left alone.
    ///
    /// # Errors
    /// If a server doesn't sleep at the level that is set.
    pub async fn sleep(&self) -> Result<(), ServerError> {
        if self.config.sleep == SleepLevel::Never {
            return Ok(());
        }
        for result in join_all(self.servers.iter().map(Server::sleep)).await {
            match result {
                Err(error) if error.is_permanent() => return Err(error),
                Err(error) => tracing::warn!(%error, "a server didn't go to sleep"),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Wakes all servers that are asleep, so that other clients can use them. Failures are only logged.
    pub async fn wake(&self) {
        for error in join_all(self.servers.iter().map(Server::wake)).await.into_iter().filter_map(Result::err)
        {
            tracing::warn!(%error, "a server wasn't woken");
        }
    }

    /// Completes a prompt once per seed, in the order of the seeds. Dropping the future cancels the request.
    ///
    /// # Errors
    /// The last error of a request that was sent as often as the fleet's `retries` allow, or that the server
    /// refuses.
    pub async fn generate(&self, request: &TokenRequest) -> Result<Vec<TokenCompletion>, ServerError> {
        let beginnings = beginnings(&request.prompt);
        let size = if self.servers.iter().all(Server::takes_seeds) { SEEDS } else { 1 };
        let beginnings = &beginnings;
        let parts = request
            .seeds
            .chunks(size)
            .map(|seeds| self.attempt(beginnings, move |server| server.complete(request, seeds)));
        let completions: Vec<TokenCompletion> = try_join_all(parts).await?.into_iter().flatten().collect();
        let tokens: usize = completions.iter().map(|completion| completion.tokens.len()).sum();
        self.generated.fetch_add(tokens as u64, Ordering::Relaxed);
        Ok(completions)
    }

    /// Continues a conversation once per seed, in the order of the seeds. Dropping the future cancels the request.
    ///
    /// # Errors
    /// As for [`Self::generate`].
    pub async fn chat(&self, request: &ChatRequest) -> Result<Vec<ChatCompletion>, ServerError> {
        let parts =
            request.seeds.iter().map(|seed| self.attempt(&[], move |server| server.chat(request, seed)));
        let completions = try_join_all(parts).await?;
        let tokens: u64 = completions.iter().map(|completion| completion.tokens).sum();
        self.generated.fetch_add(tokens, Ordering::Relaxed);
        Ok(completions)
    }

    /// Returns true if all servers that have answered so far draw from a request's own seeds, as the embedded engine
    /// does.
    pub fn is_reproducible(&self) -> bool {
        self.servers.iter().all(Server::takes_seeds)
    }

    /// Returns the counts of each server since the last call.
    pub fn take_stats(&self) -> Vec<ServerStats> {
        self.servers.iter().map(Server::take_stats).collect()
    }

    /// Returns the number of tokens generated so far.
    pub fn generated_tokens(&self) -> u64 {
        self.generated.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet").field("config", &self.config).finish_non_exhaustive()
    }
}
