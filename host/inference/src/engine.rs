//! The handle of the embedded engine: what other threads see of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use async_trait::async_trait;
use pl_model::{Adapter, Config, Tokenizer, Weights};
use tokio::sync::oneshot;

use crate::policies::{Policies, check};
use crate::worker::Worker;
use crate::{Completion, Error, Generate, Request};

/// A base model to generate with.
#[derive(Debug)]
pub struct Base {
    /// Its measures.
    pub config: Config,
    /// Its weights (usually a shallow clone of the learner's).
    pub weights: Weights,
    /// Its tokenizer.
    pub tokenizer: Arc<Tokenizer>,
}

/// A policy: a base model, with an adapter or without.
#[derive(Debug)]
pub struct PolicyWeights {
    /// Index of its base.
    pub base: usize,
    /// Its adapter, where it has one. The engine reads the tensors while it runs: hand it a copy of what is
    /// trained.
    pub adapter: Option<Adapter>,
    /// Version of the weights; completions carry it.
    pub version: u64,
}

/// New weights of a policy.
#[derive(Debug)]
pub enum Update {
    /// A new adapter.
    Adapter(Adapter),
    /// New weights of the policy's base, and so of every policy on that base.
    Weights(Weights),
}

impl From<Adapter> for Update {
    fn from(adapter: Adapter) -> Self {
        Self::Adapter(adapter)
    }
}

impl From<Weights> for Update {
    fn from(weights: Weights) -> Self {
        Self::Weights(weights)
    }
}

/// Settings of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// Completions generated at a time. More wait in line.
    pub slots: usize,
    /// Rows of one decoding step. Steps are padded to it, so that a completion never depends on how many
    /// others run: a larger tile serves more at once, a smaller one wastes less on few.
    pub tile: usize,
    /// Prompt tokens whose keys and values are kept for the next request with the same prompt.
    pub prompt_cache: usize,
}

impl Default for EngineConfig {
    fn default() -> Self {
        // 16 rows cost little more than one where reading the weights is what takes the time; 4,096 tokens of
        // SmolLM2-135M are 190 MB.
        Self { slots: 16, tile: 16, prompt_cache: 4096 }
    }
}

/// What an engine has done since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Prompts that went through the model.
    pub prefills: u64,
    /// Their tokens.
    pub prefilled_tokens: u64,
    /// Tokens sampled.
    pub generated_tokens: u64,
    /// Decoding steps of one tile.
    pub steps: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) prefills: AtomicU64,
    pub(crate) prefilled_tokens: AtomicU64,
    pub(crate) generated_tokens: AtomicU64,
    pub(crate) steps: AtomicU64,
}

/// What the handle sends to the engine's thread.
pub(crate) enum Message {
    Generate { request: Request, reply: oneshot::Sender<Result<Vec<Completion>, Error>> },
    Publish { policy: usize, update: Update, version: u64, reply: mpsc::SyncSender<Result<(), Error>> },
}

/// The embedded engine. One thread of its own serves all bases and policies; handles are cheap to clone, and
/// the thread ends with the last one.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

struct Shared {
    // Taken on drop, which is what tells the thread to end.
    sender: Option<mpsc::Sender<Message>>,
    counters: Arc<Counters>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Engine {
    /// Starts an engine.
    ///
    /// # Errors
    /// [`Error::Setup`] when a policy names a base that is not there or an adapter does not fit, when a setting
    /// is zero, or when no thread can be started.
    pub fn start(
        bases: Vec<Base>,
        policies: Vec<PolicyWeights>,
        config: EngineConfig,
    ) -> Result<Self, Error> {
        if config.slots == 0 || config.tile == 0 {
            return Err(Error::Setup("`slots` and `tile` must be at least 1".into()));
        }
        check(&bases, &policies)?;
        let counters = Arc::new(Counters::default());
        let (sender, receiver) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("inference".into())
            .spawn({
                let counters = Arc::clone(&counters);
                move || Worker::new(Policies::new(bases, policies), config, counters, receiver).run()
            })
            .map_err(|e| Error::Setup(format!("no thread for it: {e}")))?;
        let shared = Shared { sender: Some(sender), counters, thread: Mutex::new(Some(thread)) };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Gives a policy new weights. Requests that come after use them; those under way end on the old ones.
    /// Returns when the engine has taken them in.
    ///
    /// # Errors
    /// [`Error::Setup`] when the policy is not there or the weights don't fit it; [`Error::Stopped`].
    pub fn publish(&self, policy: usize, update: impl Into<Update>, version: u64) -> Result<(), Error> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.send(Message::Publish { policy, update: update.into(), version, reply })?;
        answer.recv().map_err(|_| Error::Stopped)?
    }

    /// What the engine has done so far.
    pub fn stats(&self) -> Stats {
        let counters = &self.shared.counters;
        Stats {
            prefills: counters.prefills.load(Ordering::Relaxed),
            prefilled_tokens: counters.prefilled_tokens.load(Ordering::Relaxed),
            generated_tokens: counters.generated_tokens.load(Ordering::Relaxed),
            steps: counters.steps.load(Ordering::Relaxed),
        }
    }

    fn send(&self, message: Message) -> Result<(), Error> {
        let sender = self.shared.sender.as_ref().ok_or(Error::Stopped)?;
        sender.send(message).map_err(|_| Error::Stopped)
    }
}

#[async_trait]
impl Generate for Engine {
    async fn generate(&self, request: Request) -> Result<Vec<Completion>, Error> {
        let (reply, answer) = oneshot::channel();
        self.send(Message::Generate { request, reply })?;
        answer.await.map_err(|_| Error::Stopped)?
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.sender = None;
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // The engine's own thread never holds a handle, but a thread must not wait for itself.
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
