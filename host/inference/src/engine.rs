//! The handle of the embedded engine, used from other threads.

use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use async_trait::async_trait;
use parking_lot::Mutex;
use pl_kernels::cpu::affinity;
use pl_types::{Completion, Generate, GenerateError, Request, Sampling};
use tch::Device;
use tokio::sync::oneshot;

use crate::config::{Backend, BaseModel, EngineCommand, LlmEngineConfig, PolicyWeights, WeightUpdate};
use crate::during_update::DuringUpdate;
use crate::executor::Executor;
use crate::grammars::Grammars;
use crate::libtorch::Libtorch;
use crate::message::{NewRequest, WorkerMessage};
use crate::native::Native;
use crate::policies::{Policies, check_shapes};
use crate::stats::{Counters, EngineStats};
use crate::worker::Worker;

/// The embedded engine. One thread serves all base models and policies; handles are cheap to clone, and the
/// thread ends when the last one is dropped.
#[derive(Clone)]
pub struct LlmEngine {
    shared: Arc<EngineThread>,
}

struct EngineThread {
    /// `None` once dropped, which ends the thread.
    sender: Option<mpsc::Sender<WorkerMessage>>,
    counters: Arc<Counters>,
    grammars: Grammars,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl LlmEngine {
    /// Starts an engine. Returns when the weights are loaded.
    ///
    /// # Errors
    /// [`GenerateError::Setup`] if a policy names a missing base, an adapter does not fit its base, a setting
    /// is zero, or no thread can be started.
    pub fn start(
        bases: Vec<BaseModel>,
        policies: Vec<PolicyWeights>,
        config: LlmEngineConfig,
    ) -> Result<Self, GenerateError> {
        if config.slots == 0 || config.kv_cache == 0 {
            return Err(GenerateError::Setup("`slots` and `kv_cache` must be more than 0".into()));
        }
        check_shapes(&bases, &policies)?;
        let counters = Arc::new(Counters::default());
        let grammars = Grammars::new(&bases, &policies);
        let (sender, receiver) = mpsc::channel();
        let (started, ready) = mpsc::sync_channel(1);
        let startup = Startup { bases, policies, config, counters: Arc::clone(&counters), receiver, started };
        let thread = std::thread::Builder::new()
            .name("inference".into())
            .spawn(move || startup.run())
            .map_err(|e| GenerateError::Setup(format!("cannot start its thread: {e}")))?;
        ready
            .recv()
            .map_err(|_| GenerateError::Setup("its thread ended while it loaded the weights".into()))??;
        let shared =
            EngineThread { sender: Some(sender), counters, grammars, thread: Mutex::new(Some(thread)) };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the log-probability of each token of `completion`, given `prompt` and the tokens before it, at
    /// a temperature (0 counts as 1).
    ///
    /// # Errors
    /// [`GenerateError`], as for a request to complete the prompt.
    pub async fn score(
        &self,
        policy: usize,
        prompt: Arc<[u32]>,
        completion: Arc<[u32]>,
        temperature: f64,
    ) -> Result<Vec<f32>, GenerateError> {
        if completion.is_empty() {
            return Ok(Vec::new());
        }
        let max_tokens = u32::try_from(completion.len()).unwrap_or(u32::MAX);
        // Validation requires a seed, but no token is drawn. As stop ids, the tokens are checked against the
        // vocabulary.
        let request = Request {
            policy,
            prompt,
            seeds: vec![[0; 32]],
            max_tokens,
            sampling: Sampling::with_temperature(temperature),
            stop: Arc::new([]),
            stop_ids: Arc::clone(&completion),
            top_logprobs: 0,
            listener: None,
        };
        let (reply, response) = oneshot::channel();
        self.send(WorkerMessage::Score { request, targets: completion, reply })?;
        response.await.map_err(|_| GenerateError::Stopped)?
    }

    /// Completes a prompt, as [`Generate::generate`] does, with other weights than at first if the policy gets new ones
    /// meanwhile.
    ///
    /// # Errors
    /// Those of [`Generate::generate`]; [`GenerateError::Failed`] if a version to repeat is no longer kept.
    pub async fn generate_during_updates(
        &self,
        request: Request,
        during_update: DuringUpdate,
    ) -> Result<Vec<Completion>, GenerateError> {
        let grammar = self.shared.grammars.of_request(&request).await?;
        let request = NewRequest { request, during_update, grammar };
        let (reply, response) = oneshot::channel();
        self.send(WorkerMessage::Generate { request, reply })?;
        response.await.map_err(|_| GenerateError::Stopped)?
    }

    /// Gives a policy new weights. Later requests use them; those in progress do what their [`DuringUpdate`] says.
    /// Returns when the engine has copied them.
    ///
    /// # Errors
    /// [`GenerateError::Setup`] if the policy is missing or the weights don't fit it;
    /// [`GenerateError::Stopped`].
    pub fn publish(
        &self,
        policy: usize,
        update: impl Into<WeightUpdate>,
        version: u64,
    ) -> Result<(), GenerateError> {
        let (reply, response) = mpsc::sync_channel(1);
        self.send(WorkerMessage::Publish { policy, update: update.into(), version, reply })?;
        response.recv().map_err(|_| GenerateError::Stopped)?
    }

    /// Adds a policy. Returns its index, by which requests name it, when the engine has copied its weights.
    ///
    /// # Errors
    /// [`GenerateError::Setup`] if the base is missing or the adapter does not fit it;
    /// [`GenerateError::Stopped`].
    pub fn add_policy(&self, weights: PolicyWeights) -> Result<usize, GenerateError> {
        let base = weights.base;
        let (reply, response) = mpsc::sync_channel(1);
        self.send(WorkerMessage::Add { weights, reply })?;
        let policy = response.recv().map_err(|_| GenerateError::Stopped)??;
        self.shared.grammars.add(policy, base);
        Ok(policy)
    }

    /// Removes a policy. Requests in progress finish; later ones are refused.
    ///
    /// # Errors
    /// [`GenerateError::Setup`] if there is no such policy; [`GenerateError::Stopped`].
    pub fn remove_policy(&self, policy: usize) -> Result<(), GenerateError> {
        let (reply, response) = mpsc::sync_channel(1);
        self.send(WorkerMessage::Remove { policy, reply })?;
        response.recv().map_err(|_| GenerateError::Stopped)?
    }

    /// Carries out a command. Returns when it has taken effect.
    ///
    /// # Errors
    /// [`GenerateError::Setup`] if requests are in progress that must not be, or memory runs out;
    /// [`GenerateError::Stopped`].
    pub fn command(&self, command: EngineCommand) -> Result<(), GenerateError> {
        let (reply, response) = mpsc::sync_channel(1);
        self.send(WorkerMessage::Command { command, reply })?;
        response.recv().map_err(|_| GenerateError::Stopped)?
    }

    /// Returns the counters of the engine's work so far.
    pub fn stats(&self) -> EngineStats {
        self.shared.counters.snapshot()
    }

    fn send(&self, message: WorkerMessage) -> Result<(), GenerateError> {
        let sender = self.shared.sender.as_ref().ok_or(GenerateError::Stopped)?;
        sender.send(message).map_err(|_| GenerateError::Stopped)
    }
}

/// Everything the engine's thread needs to start.
struct Startup {
    bases: Vec<BaseModel>,
    policies: Vec<PolicyWeights>,
    config: LlmEngineConfig,
    counters: Arc<Counters>,
    receiver: mpsc::Receiver<WorkerMessage>,
    /// Receives the result of loading the weights.
    started: mpsc::SyncSender<Result<(), GenerateError>>,
}

impl Startup {
    /// Body of the engine's thread.
    fn run(self) {
        if !self.config.cores.is_empty()
            && let Err(error) = affinity::confine_thread(&self.config.cores)
        {
            let reason = format!("it can't run on the cores {:?}: {error}", self.config.cores);
            return drop(self.started.send(Err(GenerateError::Setup(reason))));
        }
        let device = self.bases.first().map_or(Device::Cpu, |base| base.weights.device());
        let backend = self.config.backend.unwrap_or(match device {
            Device::Cpu => Backend::Native,
            _ => Backend::Libtorch,
        });
        match backend {
            Backend::Native => match Native::new(self.config.threads) {
                Ok(native) => self.run_on(native),
                Err(error) => drop(self.started.send(Err(GenerateError::Setup(error.to_string())))),
            },
            Backend::Libtorch => {
                let counters = Arc::clone(&self.counters);
                let libtorch = Libtorch::new(device, self.config.enforce_eager, counters);
                self.run_on(libtorch);
            }
        }
    }

    fn run_on<E: Executor>(self, executor: E) {
        let Self { bases, policies, config, counters, receiver, started } = self;
        match Policies::new(&executor, bases, policies, config.kv_cache) {
            Ok(policies) => {
                // If the receiver is gone, the handle is being dropped, which ends the thread.
                let _ = started.send(Ok(()));
                Worker::new(executor, policies, config.slots, counters, receiver).run();
            }
            Err(error) => drop(started.send(Err(error))),
        }
    }
}

#[async_trait]
impl Generate for LlmEngine {
    async fn generate(&self, request: Request) -> Result<Vec<Completion>, GenerateError> {
        self.generate_during_updates(request, DuringUpdate::Finish).await
    }
}

impl Drop for EngineThread {
    fn drop(&mut self) {
        self.sender = None;
        let thread = self.thread.get_mut().take();
        // The engine's own thread never holds a handle, but a thread must not wait for itself.
        if let Some(thread) = thread.filter(|t| t.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for LlmEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("stats", &self.stats()).finish_non_exhaustive()
    }
}
