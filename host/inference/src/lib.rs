//! Generation: continuous batching over the embedded engine.
//!
//! [`Generate`] is what rollouts ask for completions; [`Engine`] answers it on this machine. What comes back is
//! token ids with their log-probabilities under exactly the distribution that they were drawn from, so that
//! what is trained on is what was sampled.
//!
//! On a processor the engine runs on kernels of its own ([`pl_kernels::cpu`]), elsewhere on libtorch; prompts,
//! completions under way and their shared beginnings are scheduled alike on both.

mod blocks;
mod completing;
mod draw;
mod engine;
mod executor;
mod libtorch;
mod native;
mod policies;
mod sampling;
mod sequence;
mod stop;
mod worker;

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::mpsc::UnboundedSender;

pub use engine::{Backend, Base, Engine, EngineConfig, PolicyWeights, Stats, Update};
pub use sampling::Sampling;

/// Something that completes prompts.
#[async_trait]
pub trait Generate: Send + Sync {
    /// The completions of a prompt, in the order of `request.seeds`.
    ///
    /// # Errors
    /// [`Error`]; none of the completions is returned then. Dropping the future gives the request up.
    async fn generate(&self, request: Request) -> Result<Vec<Completion>, Error>;
}

/// A prompt to complete, once per seed.
#[derive(Debug, Clone)]
pub struct Request {
    /// Index of the policy.
    pub policy: usize,
    /// Token ids of the prompt.
    pub prompt: Arc<[u32]>,
    /// One completion each: the seed of its ChaCha8 stream, of which it takes one number per token.
    pub seeds: Vec<[u8; 32]>,
    /// Most tokens of a completion.
    pub max_tokens: u32,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Strings that end a completion.
    pub stop: Arc<[String]>,
    /// Tokens that end a completion, beside those that end the model's turn.
    pub stop_ids: Arc<[u32]>,
    /// How many of the likeliest tokens to tell at each place.
    pub top_logprobs: usize,
    /// Hears of text as it comes.
    pub listener: Option<UnboundedSender<Chunk>>,
}

/// A piece of a completion under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Which of the request's completions.
    pub index: usize,
    /// Tokens since the last piece.
    pub tokens: Vec<u32>,
    /// Text since the last piece. It will stay: what might become part of a stop string is held back.
    pub text: String,
    /// Whether it is the completion's last.
    pub last: bool,
}

/// One completion.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// Every sampled token, the ones of a stop string or the end of the turn included.
    pub tokens: Vec<u32>,
    /// Natural logarithm of each token's probability under exactly the distribution that it was drawn from
    /// (greedy: under that of temperature 1).
    pub logprobs: Vec<f32>,
    /// Where tokens were left out (top-k, top-p, min-p): for each token, the sorted ids that it was drawn among.
    pub kept: Option<Vec<Vec<u32>>>,
    /// The likeliest tokens at each place with their log-probabilities, likeliest first, as many as were asked for.
    pub top: Vec<Vec<(u32, f32)>>,
    /// The text, without special tokens and without the stop string and what follows it.
    pub text: String,
    /// Why it ended.
    pub finish: Finish,
    /// Version of the policy's weights.
    pub version: u64,
}

/// Why a completion ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// The model ended its turn, or a stop string came up.
    Stop,
    /// `max_tokens` or the model's longest sequence was reached.
    Length,
}

/// Errors of generation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request can't be served as it is.
    #[error("generation request to policy {policy}: {reason}")]
    Request {
        /// The policy asked.
        policy: usize,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The engine could not be set up, or new weights don't fit it.
    #[error("generation engine: {0}")]
    Setup(String),
    /// libtorch failed in the middle of the work.
    #[error("generation for policy {policy} failed: {reason}")]
    Failed {
        /// The policy asked.
        policy: usize,
        /// What libtorch said.
        reason: String,
    },
    /// The engine has ended.
    #[error("the generation engine has stopped")]
    Stopped,
}
