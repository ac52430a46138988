//! Settings of a server.

use std::time::Duration;

/// Settings of a server.
#[derive(Debug, Clone, Default)]
pub struct ServerConfig {
    /// Key that requests must carry as `Authorization: Bearer KEY`. With `None`, everyone who reaches the
    /// address is served.
    pub key: Option<String>,
    pub limits: ServerLimits,
}

/// Limits of a server.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// Number of requests in progress; further ones get status 429. The engine batches as many sequences as it
    /// has slots and queues the rest.
    pub requests: usize,
    /// Bytes of a request's body.
    pub body: usize,
    /// Completions of one request (`n`, times the number of prompts).
    pub completions: usize,
    /// Adapters that clients have loaded at a time.
    pub adapters: usize,
    /// Time that requests in progress have to end once the server is told to stop.
    pub shutdown: Duration,
}

impl Default for ServerLimits {
    fn default() -> Self {
        // 256 is vLLM's default for sequences in progress; 4 MiB of JSON hold a prompt of 500,000 token ids; 128
        // completions are OpenAI's bound.
        Self {
            requests: 256,
            body: 4 << 20,
            completions: 128,
            adapters: 64,
            shutdown: Duration::from_secs(30),
        }
    }
}
