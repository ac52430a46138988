//! Requests and completions as token ids.

use std::path::PathBuf;
use std::sync::Arc;

use pl_types::{Finish, Sampling};

/// A prompt to complete on a server, once per seed.
#[derive(Debug, Clone)]
pub struct TokenRequest {
    pub model: RemoteModel,
    /// Token ids of the prompt.
    pub prompt: Arc<[u32]>,
    /// Seeds, one per completion. pl-host's own server draws from them exactly as the embedded engine does; others
    /// get the first bytes as a number.
    pub seeds: Vec<[u8; 32]>,
    /// Limit on the tokens of a completion.
    pub max_tokens: u32,
    pub sampling: Sampling,
    /// Strings that end a completion. A server may ignore them and return tokens past the string, which the caller
    /// cuts off.
    pub stop: Arc<[String]>,
    /// Tokens that end a completion. As with `stop`, a server may go on.
    pub stop_ids: Arc<[u32]>,
    /// Number of likeliest tokens to report at each position.
    pub top_logprobs: usize,
    /// Number of token ids of the model.
    pub vocab: u32,
    /// True if the ids that each token was drawn from must be returned whenever `sampling` leaves tokens out.
    pub needs_support: bool,
}

/// Model of a server that a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RemoteModel {
    /// The server's base model. pl-host's own server is asked for the model with this hash.
    Base(Arc<str>),
    /// The model that the server offers under this name.
    Named(Arc<str>),
    /// An adapter, which is loaded on a server before its first use.
    Adapter(Arc<RemoteAdapter>),
    /// A model of the server whose weights are replaced before its first use.
    Weights(Arc<RemoteWeights>),
}

/// An adapter with the name under which servers load it. The name stands for the weights: equal names have equal
/// weights, so that a server that has the name needs no new copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteAdapter {
    pub name: String,
    /// PEFT folder, at the same path on the servers' machines.
    pub folder: PathBuf,
    /// Version of the weights.
    pub version: u64,
    /// Hash of the base model, as in [`RemoteModel::Base`].
    pub base: Arc<str>,
    /// BLAKE3 of the folder's file of tensors, which a server that tells its own must have too.
    pub checksum: String,
}

/// Weights of a whole model, for a model of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteWeights {
    /// Name of the server's model.
    pub name: Arc<str>,
    /// Hugging Face folder, at the same path on the servers' machines.
    pub folder: PathBuf,
    /// Checksum of the weights, which the server must have after loading them.
    pub checksum: String,
    /// Path of the difference from other weights, with the checksum of those.
    pub delta: Option<(PathBuf, String)>,
    /// Version of the weights.
    pub version: u64,
}

/// One completion.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenCompletion {
    /// Sampled tokens.
    pub tokens: Vec<u32>,
    /// Natural logarithm of each token's probability under the distribution that it was drawn from.
    pub logprobs: Vec<f32>,
    /// Per token, the sorted ids that it was drawn from. `None` if no tokens were left out or the server doesn't
    /// say.
    pub support: Option<Vec<Vec<u32>>>,
    /// Likeliest tokens at each position, likeliest first. Empty if none were requested.
    pub top: Vec<Vec<(u32, f32)>>,
    pub finish: Finish,
}
