//! Interface of the programs that serve models.

use async_trait::async_trait;

use crate::error::ServerError;
use crate::http::HttpClient;
use crate::identity::Identity;
use crate::request::{RemoteAdapter, RemoteWeights, TokenCompletion, TokenRequest};

/// API of a program that serves models.
#[async_trait]
pub(crate) trait Dialect: Send + Sync {
    /// Asks the server for its program and its models.
    async fn identify(&self, http: &HttpClient) -> Result<Identity, ServerError>;

    /// Completes the prompt of a request once per seed of `seeds`, which are some of the request's.
    /// Completions are validated.
    async fn complete(
        &self,
        http: &HttpClient,
        identity: &Identity,
        request: &TokenRequest,
        seeds: &[[u8; 32]],
    ) -> Result<Vec<TokenCompletion>, ServerError>;

    /// Loads an adapter. An adapter that the server has already is not an error: equal names have equal weights.
    async fn load_adapter(
        &self,
        http: &HttpClient,
        identity: &Identity,
        adapter: &RemoteAdapter,
    ) -> Result<(), ServerError>;

    /// Replaces the weights of a model of the server, unless it has these already.
    async fn load_weights(
        &self,
        http: &HttpClient,
        identity: &Identity,
        weights: &RemoteWeights,
    ) -> Result<(), ServerError>;

    /// Removes an adapter. An adapter that the server doesn't have is not an error.
    async fn unload_adapter(&self, http: &HttpClient, name: &str) -> Result<(), ServerError>;

    /// Flag of the server that makes it return log-probabilities of the distribution that tokens are drawn from.
    fn logprobs_hint(&self) -> &'static str;
}

/// Returns the error of a request with a grammar, for servers that are sent none.
pub(crate) fn no_grammars(http: &HttpClient) -> ServerError {
    http.unfit(
        "an agent has a grammar, which only servers with `kind = vllm` are sent",
        "remove `grammar` or `json_schema`, use such a server, or generate on this machine",
    )
}

/// Returns the name of a request in messages, and for the server's log: the beginning of its first seed.
pub(crate) fn label(seeds: &[[u8; 32]]) -> String {
    let first = seeds.first().and_then(|seed| seed.first_chunk::<8>()).copied().unwrap_or_default();
    hex::encode(first)
}

/// Returns the number that stands for a seed where a server takes numbers: its first bytes.
pub(crate) fn number(seed: &[u8; 32]) -> u64 {
    seed.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
