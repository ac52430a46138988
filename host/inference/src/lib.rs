//! Generation: continuous batching over the embedded engine.
//!
//! Rollouts request completions through [`pl_types::Generate`]; [`LlmEngine`] implements it on this machine.
//! Completions carry token ids and log-probabilities under exactly the distribution that the tokens were
//! drawn from, so that training sees what was sampled.
//!
//! On a CPU the engine runs its own kernels ([`pl_kernels::cpu`]), on other devices libtorch. Scheduling, the
//! prefix cache and preemption are the same on both.

mod block_pool;
mod completion;
mod config;
mod during_update;
mod engine;
mod executor;
mod grammars;
mod libtorch;
mod logits;
mod message;
mod native;
mod policies;
mod requests;
mod sampler;
mod scheduler;
mod sequence;
mod sequence_weights;
mod stats;
mod validate;
mod worker;

pub use config::{Backend, BaseModel, EngineCommand, LlmEngineConfig, PolicyWeights, WeightUpdate};
pub use during_update::{DuringUpdate, OldCache, PlannedVersions};
pub use engine::LlmEngine;
pub use libtorch::graph_bytes;
pub use stats::{EngineStats, PassCount};
