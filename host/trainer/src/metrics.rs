//! Per-policy update metrics.

mod critic;
mod passes;

use std::collections::BTreeMap;

use pl_types::TrainedCompletion;
use serde::{Deserialize, Serialize};

pub use self::critic::CriticMetrics;
pub(crate) use self::critic::CriticSums;
pub(crate) use self::passes::PassSums;

/// Bound below which log-probabilities of sampling and training count as equal.
pub const LOGPROB_TOLERANCE: f64 = 1e-4;

/// Metrics of one policy's update. Means are over tokens; quantities that were not measured are `None`.
///
/// Transitions without a gradient (an advantage of 0, and neither a KL term nor an entropy bonus in the loss) are
/// not computed. They count in the metrics of completions and advantages, in `tokens` and in the divisor of `loss`,
/// and in no other metric. A mini-batch without any gradient has no optimiser step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UpdateMetrics {
    /// Name of the policy in the workflow.
    pub policy: String,
    /// Version of the weights after the update.
    pub version: u64,
    /// Completions of all transitions.
    pub completions: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Completion tokens of transitions with a gradient, without those that a correction dropped.
    pub trained_tokens: u64,
    /// Mean number of tokens of a completion.
    pub completion_length: f64,
    /// Fraction of completions that were cut off at the limit of tokens.
    pub cut_off: f64,
    /// Mean advantage over tokens.
    pub advantage_mean: f64,
    /// Standard deviation of the advantages over tokens.
    pub advantage_std: f64,
    /// Groups left out because all of their returns are equal (`flat_groups = drop`).
    #[serde(default)]
    pub dropped_flat_groups: u64,
    /// Groups left out by `drop_groups`.
    #[serde(default)]
    pub dropped_groups: u64,
    /// Turns left out by `outliers`. A turn with tool calls has several completions.
    #[serde(default)]
    pub outliers: u64,
    /// Optimiser steps taken.
    pub optimizer_steps: u64,
    /// Optimiser steps skipped because the gradient was not finite.
    pub skipped_steps: u64,
    /// Mean over mini-batches of the loss, with its KL term and entropy bonus.
    pub loss: f64,
    /// Mean over optimiser steps of the gradient's global norm before clipping.
    pub grad_norm: f64,
    /// Fraction of tokens whose ratio was clipped, or that the trust region dropped.
    pub clip_fraction: f64,
    /// Fraction of tokens bounded by the dual clip.
    pub dual_clip_fraction: f64,
    /// KL(sampling policy || policy) by the k3 estimator, nats per token, over all passes.
    pub kl: Option<f64>,
    /// 1st, 50th and 99th percentile of the ratio policy / sampling policy of a token, over all passes.
    pub ratio_quantiles: Option<[f64; 3]>,
    /// Shares of the tokens by staleness: at index `n`, those sampled with weights of `n` updates before the present ones.
    #[serde(default)]
    pub staleness: Vec<f64>,
    /// Fraction of tokens in completions that were sampled with several versions.
    #[serde(default)]
    pub mixed_versions: f64,
    /// Effective sample size of the importance weights as a fraction of the tokens, `(Σ w)² / (n Σ w²)`.
    pub effective_sample_size: Option<f64>,
    /// KL(policy || reference) before the update, by the objective's estimator, nats per token.
    pub reference_kl: Option<f64>,
    /// Coefficient of the KL divergence from the reference in this update.
    pub kl_coefficient: Option<f64>,
    /// Entropy of the policy at the sampling temperature, nats per token, over the first pass.
    pub entropy: Option<f64>,
    /// Largest |log-prob in training - log-prob when sampled|, over the mini-batch before the first optimiser
    /// step.
    pub max_logprob_gap: Option<f64>,
    /// Fraction of those tokens with a gap below [`LOGPROB_TOLERANCE`].
    pub close_logprobs: Option<f64>,
    /// Learning rate.
    pub lr: f64,
    /// Metrics of the policy's critic, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critic: Option<CriticMetrics>,
}

/// Metrics of an update of all policies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// Trained policies that had transitions, in the order of the workflow.
    pub policies: Vec<UpdateMetrics>,
    /// Groups of completions that were compared.
    pub groups: u64,
    /// Groups with one member or equal returns, which say nothing about their members.
    pub flat_groups: u64,
    /// Packed batches run.
    pub batches: u64,
    /// Tokens fed to models, prompts included, over all passes.
    pub fed_tokens: u64,
}

/// Result of a learner's update on the transitions of a step.
#[derive(Debug, Serialize, Deserialize)]
pub struct LearnerUpdate {
    /// Metrics of every policy that had transitions.
    pub policies: Vec<UpdateMetrics>,
    /// Number of groups of completions that were compared.
    pub groups: u64,
    /// Those of them without a difference in their returns.
    pub flat_groups: u64,
    /// Packed batches run.
    pub batches: u64,
    /// Tokens fed to the model over all passes.
    pub fed_tokens: u64,
    /// Values that the update computed for each token, by key and epoch. Empty if `train.record_tokens` is off.
    pub completions: Vec<TrainedCompletion>,
    /// Wall-clock seconds.
    pub seconds: f64,
}

impl StepMetrics {
    /// Puts the updates of all learners together. `names` are those of the workflow's policies.
    pub fn new<'u>(updates: impl Iterator<Item = &'u LearnerUpdate>, names: &[String]) -> StepMetrics {
        let mut all =
            StepMetrics { policies: Vec::new(), groups: 0, flat_groups: 0, batches: 0, fed_tokens: 0 };
        for update in updates {
            all.policies.extend(update.policies.iter().cloned());
            all.groups += update.groups;
            all.flat_groups += update.flat_groups;
            all.batches += update.batches;
            all.fed_tokens += update.fed_tokens;
        }
        all.policies.sort_by_key(|metrics| names.iter().position(|name| *name == metrics.policy));
        all
    }
}

/// Sums from which [`UpdateMetrics`] are computed.
#[derive(Debug, Clone, Default)]
pub(crate) struct MetricSums {
    pub completions: u64,
    pub cut_off: u64,
    pub tokens: u64,
    pub trained_tokens: u64,
    /// Tokens by the number of updates since they were sampled.
    pub staleness: BTreeMap<u64, u64>,
    /// Tokens in completions with several versions.
    pub mixed_tokens: u64,
    pub dropped_flat_groups: u64,
    pub dropped_groups: u64,
    pub outliers: u64,
    pub mini_batches: u64,
    pub optimizer_steps: u64,
    pub skipped_steps: u64,
    pub grad_norms: f64,
    pub advantages: Moments,
    pub reference_kl: Option<f64>,
    pub kl_coefficient: Option<f64>,
    pub passes: PassSums,
    pub critic: CriticSums,
}

/// Count, sum and sum of squares.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Moments {
    count: u64,
    sum: f64,
    squares: f64,
}

impl Moments {
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.squares += value * value;
    }

    fn merge(&mut self, other: &Moments) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    fn deviation(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        (self.squares / self.count as f64 - self.mean().powi(2)).max(0.0).sqrt()
    }

    fn effective_sample_size(&self) -> Option<f64> {
        match self.count {
            0 => None,
            _ if self.squares == 0.0 => Some(0.0),
            count => Some(self.sum * self.sum / (count as f64 * self.squares)),
        }
    }
}

/// Returns the shares of counts by index, from 0 to the largest index.
fn shares(counts: &BTreeMap<u64, u64>) -> Vec<f64> {
    let (all, last) = (counts.values().sum::<u64>(), counts.keys().max());
    let share = |index: u64| counts.get(&index).map_or(0.0, |count| *count as f64 / all as f64);
    last.map_or_else(Vec::new, |last| (0..=*last).map(share).collect())
}

impl MetricSums {
    /// The metrics. `critic_lr` is the learning rate of the policy's critic, if it has one.
    pub fn into_metrics(self, policy: &str, version: u64, lr: f64, critic_lr: Option<f64>) -> UpdateMetrics {
        let mean = |sum: f64, count: u64| if count == 0 { 0.0 } else { sum / count as f64 };
        let passes = self.passes;
        UpdateMetrics {
            policy: policy.to_owned(),
            version,
            completions: self.completions,
            completion_length: mean(self.tokens as f64, self.completions),
            cut_off: mean(self.cut_off as f64, self.completions),
            advantage_mean: self.advantages.mean(),
            advantage_std: self.advantages.deviation(),
            ratio_quantiles: passes.ratio_quantiles(),
            staleness: shares(&self.staleness),
            mixed_versions: mean(self.mixed_tokens as f64, self.tokens),
            effective_sample_size: passes.weights.effective_sample_size(),
            reference_kl: self.reference_kl,
            kl_coefficient: self.kl_coefficient,
            tokens: self.tokens,
            trained_tokens: self.trained_tokens,
            dropped_flat_groups: self.dropped_flat_groups,
            dropped_groups: self.dropped_groups,
            outliers: self.outliers,
            optimizer_steps: self.optimizer_steps,
            skipped_steps: self.skipped_steps,
            loss: mean(passes.loss, self.mini_batches),
            grad_norm: mean(self.grad_norms, self.optimizer_steps),
            clip_fraction: mean(passes.clipped as f64, passes.tokens),
            dual_clip_fraction: mean(passes.dual_clipped as f64, passes.tokens),
            kl: (passes.tokens > 0).then(|| passes.kl / passes.tokens as f64),
            entropy: passes.entropy.value(),
            max_logprob_gap: passes.gap.max(),
            close_logprobs: passes.gap.close(),
            lr,
            critic: critic_lr.map(|lr| self.critic.into_metrics(&passes.critic, lr)),
        }
    }
}
