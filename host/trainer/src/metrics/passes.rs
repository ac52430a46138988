//! Sums over the tokens that went through the model. Each rank has its own; they are merged in the order of ranks.

use serde::{Deserialize, Serialize};

use super::critic::CriticPassSums;
use super::{LOGPROB_TOLERANCE, Moments};

/// Sums over the tokens of a policy that went through the model.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct PassSums {
    pub tokens: u64,
    pub loss: f64,
    pub clipped: u64,
    pub dual_clipped: u64,
    pub kl: f64,
    /// Logarithms of the ratios to the sampling policy.
    pub log_ratios: Vec<f32>,
    pub weights: Moments,
    pub entropy: Mean,
    pub gap: LogprobGap,
    pub critic: CriticPassSums,
}

impl PassSums {
    /// Adds the sums of another rank.
    pub fn merge(&mut self, other: &PassSums) {
        self.tokens += other.tokens;
        self.loss += other.loss;
        self.clipped += other.clipped;
        self.dual_clipped += other.dual_clipped;
        self.kl += other.kl;
        self.log_ratios.extend_from_slice(&other.log_ratios);
        self.weights.merge(&other.weights);
        self.entropy.merge(&other.entropy);
        self.gap.merge(&other.gap);
        self.critic.merge(&other.critic);
    }

    /// 1st, 50th and 99th percentile of the ratios. `None` without any.
    pub fn ratio_quantiles(&self) -> Option<[f64; 3]> {
        let last = self.log_ratios.len().checked_sub(1)?;
        let mut sorted = self.log_ratios.clone();
        sorted.sort_unstable_by(f32::total_cmp);
        Some([0.01, 0.5, 0.99].map(|share| f64::from(sorted[(share * last as f64).round() as usize]).exp()))
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Mean {
    sum: f64,
    count: u64,
}

impl Mean {
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1;
    }

    fn merge(&mut self, other: &Mean) {
        self.sum += other.sum;
        self.count += other.count;
    }

    pub fn value(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
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

    fn merge(&mut self, other: &LogprobGap) {
        self.max = self.max.max(other.max);
        self.within_tolerance.merge(&other.within_tolerance);
    }

    /// Largest gap. `None` if none was measured.
    pub fn max(&self) -> Option<f64> {
        self.close().map(|_| self.max)
    }

    /// Fraction of gaps within the tolerance. `None` if none was measured.
    pub fn close(&self) -> Option<f64> {
        self.within_tolerance.value()
    }
}
