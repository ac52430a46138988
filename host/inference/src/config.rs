//! Settings of the engine and the weights that it serves.

use std::sync::Arc;

use pl_model::{Adapter, Config, Tokenizer, Weights};
use pl_types::{Dtype, ValueHeadWeights};

/// A base model to generate with.
#[derive(Debug)]
pub struct BaseModel {
    /// Dimensions of the model.
    pub config: Config,
    /// Weights, usually a shallow clone of the learner's.
    pub weights: Weights,
    /// Tokenizer of the model.
    pub tokenizer: Arc<Tokenizer>,
    /// Storage format of matrices that are tensors; packed ones stay as they are. On a CPU, round the values to it beforehand so
    /// that packing does not change them.
    pub dtype: Dtype,
}

/// A policy: a base model, with or without an adapter.
#[derive(Debug)]
pub struct PolicyWeights {
    /// Index of the base model.
    pub base: usize,
    /// The adapter, if any. The engine copies it.
    pub adapter: Option<Adapter>,
    /// Version of the weights; completions carry it.
    pub version: u64,
}

/// New weights of a policy.
#[derive(Debug)]
pub enum WeightUpdate {
    /// A new adapter.
    Adapter(Adapter),
    /// New weights of the policy's base model, and therefore of every policy on that base.
    Weights(Weights),
    /// A value head on the policy's hidden states. The version of the policy stays.
    ValueHead(ValueHeadWeights),
    /// Another number for the same weights.
    Version,
}

impl From<Adapter> for WeightUpdate {
    fn from(adapter: Adapter) -> Self {
        Self::Adapter(adapter)
    }
}

impl From<Weights> for WeightUpdate {
    fn from(weights: Weights) -> Self {
        Self::Weights(weights)
    }
}

/// Command to an engine as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineCommand {
    /// Stops between two tokens. Requests in progress keep their place, and later ones wait.
    Pause,
    /// Goes on after [`EngineCommand::Pause`].
    Resume,
    /// Forgets the cached prefixes of prompts.
    ClearPrefixes,
    /// Pauses and gives the memory of the KV cache back. No request may be in progress.
    Sleep,
    /// Takes the memory of the KV cache again, and resumes.
    WakeUp,
    /// Keeps this number of earlier versions of each policy from now on, for requests that repeat versions.
    KeepVersions(usize),
}

/// The implementation that runs the models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// This program's CPU kernels. Models on other devices are copied to the CPU.
    Native,
    /// libtorch, on the device that the models are on.
    Libtorch,
}

/// Settings of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LlmEngineConfig {
    /// Number of completions generated at a time. Further completions wait in the queue.
    pub slots: usize,
    /// Size of the KV cache in bytes, split evenly between the base models. When it is full, completions wait
    /// or are preempted and recomputed; none fails, and none changes.
    pub kv_cache: u64,
    /// Number of threads of the native backend.
    pub threads: usize,
    /// Numbers of the cores that it runs on. Empty for all.
    pub cores: Vec<u32>,
    /// The backend. `None` chooses native on a CPU and libtorch elsewhere.
    pub backend: Option<Backend>,
    /// Runs every step operation by operation, as CPUs do, instead of replaying CUDA graphs.
    pub enforce_eager: bool,
}

impl Default for LlmEngineConfig {
    fn default() -> Self {
        Self {
            // On two cores 64 rows bring a third more tokens a second than 16; a token of SmolLM2-135M waits
            // 70 ms instead of 25.
            slots: 64,
            // 23,000 tokens of SmolLM2-135M in f32. Memory is taken as it is needed.
            kv_cache: 1 << 30,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            cores: Vec::new(),
            backend: None,
            enforce_eager: false,
        }
    }
}
