//! What an update says of itself, per policy.

use serde::{Deserialize, Serialize};

/// Log-probabilities of sampling and training that differ by less than this count as the same.
pub const GAP: f64 = 1e-4;

/// One policy's part of an update. Means are over tokens; what was not measured is none.
///
/// Transitions whose advantage is 0 have no gradient and are not computed: they are in `tokens` and in the
/// divisor of `loss`, and in nothing else.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateMetrics {
    /// Its name in the workflow.
    pub policy: String,
    /// Version of the weights after the update.
    pub version: u64,
    /// Completion tokens handed in.
    pub tokens: u64,
    /// Completion tokens of transitions with an advantage other than 0.
    pub trained_tokens: u64,
    /// Optimiser steps taken.
    pub optimizer_steps: u64,
    /// Optimiser steps left out because the gradient was not finite.
    pub skipped_steps: u64,
    /// Mean over mini-batches of the token-mean loss.
    pub loss: f64,
    /// Mean over optimiser steps of the gradient's global norm before clipping.
    pub grad_norm: f64,
    /// Share of tokens whose ratio the clip range bounded.
    pub clip_fraction: f64,
    /// Share of tokens that the dual clip bounded.
    pub dual_clip_fraction: f64,
    /// KL(sampling policy || policy) by the k3 estimator, nats per token, over all passes.
    pub kl: Option<f64>,
    /// Entropy of the policy at the sampling temperature, nats per token, over the first pass.
    pub entropy: Option<f64>,
    /// Largest |log-prob in training - log-prob when sampled|, over the mini-batch before the first optimiser step.
    pub max_logprob_gap: Option<f64>,
    /// Share of those tokens with a gap below [`GAP`].
    pub close_logprobs: Option<f64>,
    /// Learning rate.
    pub lr: f64,
}

/// All policies' parts of an update.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// Trained policies that had transitions, in the order of the workflow.
    pub policies: Vec<UpdateMetrics>,
    /// Packed batches run.
    pub batches: u64,
    /// Tokens fed to models, prompts included, over all passes.
    pub fed_tokens: u64,
}

/// Sums behind [`UpdateMetrics`].
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    pub tokens: u64,
    pub trained_tokens: u64,
    pub mini_batches: u64,
    pub steps: u64,
    pub skipped: u64,
    pub norms: f64,
    pub loss: f64,
    pub passed: u64,
    pub clipped: u64,
    pub dual_clipped: u64,
    pub kl: f64,
    pub entropy: Mean,
    pub gap: Gap,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn get(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Gap {
    max: f64,
    close: Mean,
}

impl Gap {
    pub fn add(&mut self, gap: f64) {
        // `max` would drop a NaN; a gap that is no number is as large as can be.
        self.max = if gap.is_nan() { f64::INFINITY } else { self.max.max(gap) };
        self.close.add(if gap < GAP { 1.0 } else { 0.0 });
    }
}

impl Tally {
    pub fn finish(self, policy: &str, version: u64, lr: f64) -> UpdateMetrics {
        let per = |sum: f64, count: u64| if count == 0 { 0.0 } else { sum / count as f64 };
        let close_logprobs = self.gap.close.get();
        UpdateMetrics {
            policy: policy.to_owned(),
            version,
            tokens: self.tokens,
            trained_tokens: self.trained_tokens,
            optimizer_steps: self.steps,
            skipped_steps: self.skipped,
            loss: per(self.loss, self.mini_batches),
            grad_norm: per(self.norms, self.steps),
            clip_fraction: per(self.clipped as f64, self.passed),
            dual_clip_fraction: per(self.dual_clipped as f64, self.passed),
            kl: (self.passed > 0).then(|| self.kl / self.passed as f64),
            entropy: self.entropy.get(),
            max_logprob_gap: close_logprobs.map(|_| self.gap.max),
            close_logprobs,
            lr,
        }
    }
}
