//! Counters of the engine's work.

use std::sync::atomic::{AtomicU64, Ordering};

/// Work done by an engine since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineStats {
    /// Prompts prefilled.
    pub prefills: u64,
    /// Prompt tokens that went through the model. Tokens found in the prefix cache are not counted.
    pub prefilled_tokens: u64,
    /// Tokens sampled.
    pub generated_tokens: u64,
    /// Passes through a model.
    pub steps: u64,
    /// Passes that were replayed as a CUDA graph.
    pub replayed_steps: u64,
    /// Passes that began before the tokens of the one before were read.
    pub steps_ahead: u64,
    /// Sequences that gave up their cache blocks for another sequence.
    pub preemptions: u64,
}

/// The counters behind [`EngineStats`], shared by the engine's thread and its handles.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) prefills: AtomicU64,
    pub(crate) prefilled_tokens: AtomicU64,
    pub(crate) generated_tokens: AtomicU64,
    pub(crate) steps: AtomicU64,
    pub(crate) replayed_steps: AtomicU64,
    pub(crate) steps_ahead: AtomicU64,
    pub(crate) preemptions: AtomicU64,
}

impl Counters {
    pub(crate) fn snapshot(&self) -> EngineStats {
        EngineStats {
            prefills: self.prefills.load(Ordering::Relaxed),
            prefilled_tokens: self.prefilled_tokens.load(Ordering::Relaxed),
            generated_tokens: self.generated_tokens.load(Ordering::Relaxed),
            steps: self.steps.load(Ordering::Relaxed),
            replayed_steps: self.replayed_steps.load(Ordering::Relaxed),
            steps_ahead: self.steps_ahead.load(Ordering::Relaxed),
            preemptions: self.preemptions.load(Ordering::Relaxed),
        }
    }
}
