//! Per-policy update metrics.

use serde::{Deserialize, Serialize};

/// Bound below which log-probabilities of sampling and training count as equal.
pub const LOGPROB_TOLERANCE: f64 = 1e-4;

/// Metrics of one policy's update. Means are over tokens; quantities that were not measured are `None`.
///
/// Transitions with an advantage of 0 have no gradient and are not computed. They count in `tokens` and in
/// the divisor of `loss`, and in no other metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateMetrics {
    /// Name of the policy in the workflow.
    pub policy: String,
    /// Version of the weights after the update.
    pub version: u64,
    /// Completion tokens of all transitions.
    pub tokens: u64,
    /// Completion tokens of transitions with an advantage other than 0.
    pub trained_tokens: u64,
    /// Optimiser steps taken.
    pub optimizer_steps: u64,
    /// Optimiser steps skipped because the gradient was not finite.
    pub skipped_steps: u64,
    /// Mean over mini-batches of the token-mean loss.
    pub loss: f64,
    /// Mean over optimiser steps of the gradient's global norm before clipping.
    pub grad_norm: f64,
    /// Fraction of tokens whose ratio was clipped.
    pub clip_fraction: f64,
    /// Fraction of tokens bounded by the dual clip.
    pub dual_clip_fraction: f64,
    /// KL(sampling policy || policy) by the k3 estimator, nats per token, over all passes.
    pub kl: Option<f64>,
    /// Entropy of the policy at the sampling temperature, nats per token, over the first pass.
    pub entropy: Option<f64>,
    /// Largest |log-prob in training - log-prob when sampled|, over the mini-batch before the first optimiser
    /// step.
    pub max_logprob_gap: Option<f64>,
    /// Fraction of those tokens with a gap below [`LOGPROB_TOLERANCE`].
    pub close_logprobs: Option<f64>,
    /// Learning rate.
    pub lr: f64,
}

/// Metrics of an update of all policies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// Trained policies that had transitions, in the order of the workflow.
    pub policies: Vec<UpdateMetrics>,
    /// Packed batches run.
    pub batches: u64,
    /// Tokens fed to models, prompts included, over all passes.
    pub fed_tokens: u64,
}

/// Sums from which [`UpdateMetrics`] are computed.
#[derive(Debug, Clone, Default)]
pub(crate) struct MetricSums {
    pub tokens: u64,
    pub trained_tokens: u64,
    pub mini_batches: u64,
    pub optimizer_steps: u64,
    pub skipped_steps: u64,
    pub grad_norms: f64,
    pub loss: f64,
    /// Tokens that went through the model.
    pub passed_tokens: u64,
    pub clipped: u64,
    pub dual_clipped: u64,
    pub kl: f64,
    pub entropy: Mean,
    pub gap: LogprobGap,
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

    fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct LogprobGap {
    max: f64,
    within_tolerance: Mean,
}

impl LogprobGap {
    pub fn add(&mut self, gap: f64) {
        // `max` would drop a NaN, which counts as an infinite gap.
        self.max = if gap.is_nan() { f64::INFINITY } else { self.max.max(gap) };
        self.within_tolerance.add(if gap < LOGPROB_TOLERANCE { 1.0 } else { 0.0 });
    }
}

impl MetricSums {
    pub fn into_metrics(self, policy: &str, version: u64, lr: f64) -> UpdateMetrics {
        let mean = |sum: f64, count: u64| if count == 0 { 0.0 } else { sum / count as f64 };
        let close_logprobs = self.gap.within_tolerance.value();
        UpdateMetrics {
            policy: policy.to_owned(),
            version,
            tokens: self.tokens,
            trained_tokens: self.trained_tokens,
            optimizer_steps: self.optimizer_steps,
            skipped_steps: self.skipped_steps,
            loss: mean(self.loss, self.mini_batches),
            grad_norm: mean(self.grad_norms, self.optimizer_steps),
            clip_fraction: mean(self.clipped as f64, self.passed_tokens),
            dual_clip_fraction: mean(self.dual_clipped as f64, self.passed_tokens),
            kl: (self.passed_tokens > 0).then(|| self.kl / self.passed_tokens as f64),
            entropy: self.entropy.value(),
            max_logprob_gap: close_logprobs.map(|_| self.gap.max),
            close_logprobs,
            lr,
        }
    }
}
