//! Settings of a fleet.

use std::time::Duration;

use backon::ExponentialBuilder;

/// Settings of a fleet.
#[derive(Clone)]
pub struct FleetConfig {
    /// Name in the workflow, for messages.
    pub name: String,
    /// Addresses of the servers, such as `http://10.0.0.1:8000`.
    pub addresses: Vec<String>,
    pub kind: ServerKind,
    /// Key that requests carry as `Authorization: Bearer KEY`.
    pub key: Option<String>,
    /// Longest time from sending a request to the end of its answer.
    pub timeout: Duration,
    /// Number of requests in progress per server.
    pub connections: usize,
    /// Number of times that a request is sent again after a wrong answer, an error of a server or a timeout.
    /// Servers that can't be reached or are busy don't count.
    pub retries: u32,
    /// Time after which a request that has no answer is also sent to another server. `None`: never.
    pub hedge_after: Option<Duration>,
    /// Level at which servers sleep between rollouts.
    pub sleep: SleepLevel,
    /// Waiting times after failures of a server.
    pub backoff: Backoff,
}

impl FleetConfig {
    pub(crate) fn http(&self) -> HttpSettings {
        HttpSettings { key: self.key.clone(), timeout: self.timeout, connections: self.connections }
    }
}

/// Settings of the connections to a server.
#[derive(Clone)]
pub struct HttpSettings {
    /// Key that requests carry as `Authorization: Bearer KEY`.
    pub key: Option<String>,
    /// Longest time from sending a request to the end of its answer.
    pub timeout: Duration,
    /// Number of idle connections that are kept.
    pub connections: usize,
}

impl std::fmt::Debug for FleetConfig {
    /// Leaves out the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FleetConfig")
            .field("name", &self.name)
            .field("addresses", &self.addresses)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// API of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerKind {
    /// vLLM, or another program with its `/inference/v1/generate`, such as `pl-host serve`.
    Vllm,
    /// SGLang.
    SgLang,
    /// llama.cpp's `llama-server`.
    LlamaCpp,
    /// A hosted model with OpenAI's API.
    OpenAi,
}

/// Memory that servers give back while they are asleep, as vLLM numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SleepLevel {
    /// Servers never sleep.
    Never,
    /// Level 1: the KV cache is freed, and weights move to the memory of the host.
    KeepWeights,
    /// Level 2: the weights are dropped too, and loaded again at the next request.
    DropWeights,
}

/// Waiting times after failures of a server: doubled from failure to failure, with jitter.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    /// After the first failure.
    pub shortest: Duration,
    /// Upper bound, before jitter.
    pub longest: Duration,
}

impl Backoff {
    /// Returns the waiting times, without an end.
    pub(crate) fn delays(self) -> ExponentialBuilder {
        let delays = ExponentialBuilder::new().with_min_delay(self.shortest).with_max_delay(self.longest);
        delays.with_factor(2.0).with_jitter().without_max_times()
    }
}

impl Default for Backoff {
    fn default() -> Self {
        // A restarted process answers within seconds; a server that is gone is asked about once a minute.
        Self { shortest: Duration::from_millis(500), longest: Duration::from_secs(60) }
    }
}
