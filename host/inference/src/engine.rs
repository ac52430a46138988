//! The handle of the embedded engine: what other threads see of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use async_trait::async_trait;
use pl_model::{Adapter, Config, Dtype, Tokenizer, Weights};
use tch::Device;
use tokio::sync::oneshot;

use crate::executor::Executor;
use crate::libtorch::Libtorch;
use crate::native::Native;
use crate::policies::{Policies, check};
use crate::worker::Worker;
use crate::{Completion, Error, Generate, Request, Sampling};

/// A base model to generate with.
#[derive(Debug)]
pub struct Base {
    /// Its measures.
    pub config: Config,
    /// Its weights (usually a shallow clone of the learner's).
    pub weights: Weights,
    /// Its tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// How matrices are kept. On a processor the values should be rounded to it already, so that nothing changes.
    pub dtype: Dtype,
}

/// A policy: a base model, with an adapter or without.
#[derive(Debug)]
pub struct PolicyWeights {
    /// Index of its base.
    pub base: usize,
    /// Its adapter, where it has one. It is copied.
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

/// What runs the models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// The processor's own kernels. Models on other devices are copied to it.
    Native,
    /// libtorch, on the device that the models are on.
    Libtorch,
}

/// Settings of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// Completions generated at a time. More wait in line.
    pub slots: usize,
    /// Bytes of keys and values, shared evenly by the bases. Where they run out, completions wait or are computed
    /// again; none fails, and none comes out differently.
    pub kv_cache: u64,
    /// Threads of the native backend.
    pub threads: usize,
    /// What runs the models; none: native on a processor, libtorch elsewhere.
    pub backend: Option<Backend>,
}

impl Default for EngineConfig {
    fn default() -> Self {
        Self {
            // On two cores 64 rows bring a third more tokens a second than 16; a token of SmolLM2-135M waits 70 ms
            // instead of 25.
            slots: 64,
            // 23,000 tokens of SmolLM2-135M in f32. Memory is taken as it is needed.
            kv_cache: 1 << 30,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            backend: None,
        }
    }
}

/// What an engine has done since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Prompts that were taken in.
    pub prefills: u64,
    /// Their tokens that went through the model: those that no sequence before had in common.
    pub prefilled_tokens: u64,
    /// Tokens sampled.
    pub generated_tokens: u64,
    /// Passes through a model.
    pub steps: u64,
    /// Times that a sequence had to give up its keys and values for another.
    pub pauses: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) prefills: AtomicU64,
    pub(crate) prefilled_tokens: AtomicU64,
    pub(crate) generated_tokens: AtomicU64,
    pub(crate) steps: AtomicU64,
    pub(crate) pauses: AtomicU64,
}

/// What the handle sends to the engine's thread.
pub(crate) enum Message {
    Generate { request: Request, reply: oneshot::Sender<Result<Vec<Completion>, Error>> },
    Score { request: Request, targets: Arc<[u32]>, reply: oneshot::Sender<Result<Vec<f32>, Error>> },
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
        if config.slots == 0 || config.kv_cache == 0 {
            return Err(Error::Setup("`slots` and `kv_cache` must be more than 0".into()));
        }
        check(&bases, &policies)?;
        let counters = Arc::new(Counters::default());
        let (sender, receiver) = mpsc::channel();
        let (ready, started) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("inference".into())
            .spawn({
                let counters = Arc::clone(&counters);
                move || serve(bases, policies, config, counters, receiver, &ready)
            })
            .map_err(|e| Error::Setup(format!("no thread for it: {e}")))?;
        started.recv().map_err(|_| Error::Setup("its thread ended while it loaded the weights".into()))??;
        let shared = Shared { sender: Some(sender), counters, thread: Mutex::new(Some(thread)) };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Log-probabilities of the tokens of `completion`, each after `prompt` and those before it, at a temperature
    /// (0 counts as 1).
    ///
    /// # Errors
    /// [`Error`], as for a request to complete the prompt.
    pub async fn score(
        &self,
        policy: usize,
        prompt: Arc<[u32]>,
        completion: Arc<[u32]>,
        temperature: f64,
    ) -> Result<Vec<f32>, Error> {
        if completion.is_empty() {
            return Ok(Vec::new());
        }
        let max_tokens = u32::try_from(completion.len()).unwrap_or(u32::MAX);
        // One seed, which nothing is drawn with.
        let request = Request {
            policy,
            prompt,
            seeds: vec![[0; 32]],
            max_tokens,
            sampling: Sampling::at(temperature),
            stop: Arc::new([]),
            stop_ids: Arc::clone(&completion),
            top_logprobs: 0,
            listener: None,
        };
        let (reply, answer) = oneshot::channel();
        self.send(Message::Score { request, targets: completion, reply })?;
        answer.await.map_err(|_| Error::Stopped)?
    }

    /// Gives a policy new weights. Requests that come after use them; those under way end on the old ones.
    /// Returns when the engine has taken in a copy of them.
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
            pauses: counters.pauses.load(Ordering::Relaxed),
        }
    }

    fn send(&self, message: Message) -> Result<(), Error> {
        let sender = self.shared.sender.as_ref().ok_or(Error::Stopped)?;
        sender.send(message).map_err(|_| Error::Stopped)
    }
}

/// What tells the engine's maker how its thread has started.
type Ready = mpsc::SyncSender<Result<(), Error>>;

/// The engine's thread.
fn serve(
    bases: Vec<Base>,
    policies: Vec<PolicyWeights>,
    config: EngineConfig,
    counters: Arc<Counters>,
    receiver: mpsc::Receiver<Message>,
    ready: &Ready,
) {
    let device = bases.first().map_or(Device::Cpu, |base| base.weights.device());
    let backend = config.backend.unwrap_or(match device {
        Device::Cpu => Backend::Native,
        _ => Backend::Libtorch,
    });
    match backend {
        Backend::Native => match Native::new(config.threads) {
            Ok(native) => serve_with(native, bases, policies, config, counters, receiver, ready),
            Err(reason) => drop(ready.send(Err(Error::Setup(reason)))),
        },
        Backend::Libtorch => {
            serve_with(Libtorch::new(device), bases, policies, config, counters, receiver, ready);
        }
    }
}

fn serve_with<E: Executor>(
    executor: E,
    bases: Vec<Base>,
    policies: Vec<PolicyWeights>,
    config: EngineConfig,
    counters: Arc<Counters>,
    receiver: mpsc::Receiver<Message>,
    ready: &Ready,
) {
    match Policies::new(&executor, bases, policies, config.kv_cache) {
        Ok(policies) => {
            // A maker that went away drops its handle next, which ends the thread.
            let _ = ready.send(Ok(()));
            Worker::new(executor, policies, config, counters, receiver).run();
        }
        Err(error) => drop(ready.send(Err(error))),
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
