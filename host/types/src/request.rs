//! Generation requests and completions, and the trait between rollouts and the engines that serve them.

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::UnboundedSender;

use crate::sampling::Sampling;
use crate::version::VersionChange;

/// An engine that completes prompts.
#[async_trait]
pub trait Generate: Send + Sync {
    /// Completes a prompt once per seed. The completions are in the order of `request.seeds`.
    ///
    /// # Errors
    /// [`GenerateError`]; no completion is returned then. Dropping the future cancels the request.
    async fn generate(&self, request: Request) -> Result<Vec<Completion>, GenerateError>;

    /// Returns false if equal seeds may give other completions of a policy.
    fn is_reproducible(&self, _policy: usize) -> bool {
        true
    }
}

/// A prompt to complete, once per seed.
#[derive(Debug, Clone)]
pub struct Request {
    /// Index of the policy.
    pub policy: usize,
    /// Token ids of the prompt.
    pub prompt: Arc<[u32]>,
    /// Seeds, one per completion. Each starts a ChaCha8 stream, from which one number is drawn per token.
    pub seeds: Vec<[u8; 32]>,
    /// Limit on the tokens of a completion.
    pub max_tokens: u32,
    /// Parameters of the distribution that tokens are drawn from.
    pub sampling: Sampling,
    /// Strings that end a completion.
    pub stop: Arc<[String]>,
    /// Tokens that end a completion, in addition to those that end the model's turn.
    pub stop_ids: Arc<[u32]>,
    /// Number of likeliest tokens to report at each position.
    pub top_logprobs: usize,
    /// Receiver of text as it is generated.
    pub listener: Option<UnboundedSender<Chunk>>,
}

/// A piece of a completion in progress.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk {
    /// Index of the completion within its request.
    pub index: usize,
    /// Tokens since the previous chunk.
    pub tokens: Vec<u32>,
    /// Log-probabilities of these tokens, as in [`Completion::logprobs`].
    pub logprobs: Vec<f32>,
    /// Likeliest tokens at each of these positions, as in [`Completion::top`].
    pub top: Vec<Vec<(u32, f32)>>,
    /// Text since the previous chunk. Never revoked: text that may become part of a stop string is held back.
    pub text: String,
    /// True for the completion's last chunk.
    pub last: bool,
}

/// One completion.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// Every sampled token, including those of a stop string and the end of the turn.
    pub tokens: Vec<u32>,
    /// Natural logarithm of each token's probability under exactly the distribution that it was drawn from
    /// (greedy: under the distribution at temperature 1).
    pub logprobs: Vec<f32>,
    /// Sampled support: per token, the sorted ids that it was drawn from. `None` unless tokens were left out
    /// (top-k, top-p, min-p, a grammar).
    pub support: Option<Vec<Vec<u32>>>,
    /// Value of the state before each token, by the policy's value head. `None` if the policy has none.
    pub values: Option<Vec<f32>>,
    /// The likeliest tokens at each position with their log-probabilities, likeliest first: `top_logprobs` of
    /// them.
    pub top: Vec<Vec<(u32, f32)>>,
    /// The text, without special tokens, and cut before the stop string.
    pub text: String,
    /// The reason why it ended.
    pub finish: Finish,
    /// Version of the policy's weights, at the first token.
    pub version: u64,
    /// Later versions, which took over between tokens.
    pub version_changes: Vec<VersionChange>,
}

impl Completion {
    /// Sends all of it to the listener of its request, as one chunk.
    pub fn send_whole(&self, index: usize, listener: Option<&UnboundedSender<Chunk>>) {
        if let Some(listener) = listener {
            let Self { tokens, logprobs, top, text, .. } = self.clone();
            // The listener may have closed the channel: the completion is also returned.
            let _ = listener.send(Chunk { index, tokens, logprobs, top, text, last: true });
        }
    }
}

/// The reason why a completion ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    /// The model ended its turn, or a stop string came up.
    Stop,
    /// The limit on tokens or the model's longest sequence was reached.
    Length,
    /// The model calls tools.
    ToolCalls,
}

/// Errors of generation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// The request is invalid.
    #[error("generation request to policy {policy}: {reason}")]
    Request {
        /// Index of the policy.
        policy: usize,
        /// Name of the parameter that the problem is in. `None` if it is not in one alone.
        parameter: Option<&'static str>,
        /// The problem, and what to do.
        reason: String,
    },
    /// The engine could not be set up, or new weights don't fit it.
    #[error("generation engine: {0}")]
    Setup(String),
    /// The backend failed during generation.
    #[error("generation for policy {policy} failed: {reason}")]
    Failed {
        /// Index of the policy.
        policy: usize,
        /// The backend's message.
        reason: String,
    },
    /// The request was in progress when the engine was paused, with the demand to end all requests.
    #[error("the request was aborted because the engine was paused")]
    Aborted,
    /// The engine has ended.
    #[error("the generation engine has stopped")]
    Stopped,
}
