//! Metrics of a critic's update.

use serde::{Deserialize, Serialize};

use super::Moments;

/// Metrics of a critic. Means are over the completion tokens of its policy that were trained on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CriticMetrics {
    /// Mean over mini-batches of the value loss.
    pub value_loss: f64,
    /// Fraction of the variance of the value targets that the values before the update explain,
    /// `1 - Var(R - V) / Var(R)`. `None` if all targets are equal.
    pub explained_variance: Option<f64>,
    /// Fraction of tokens whose clipped value had the larger loss.
    pub value_clip_fraction: f64,
    /// Mean value before the update.
    pub mean_value: f64,
    /// Mean value target.
    pub mean_return: f64,
    /// Mean over optimiser steps of the gradient's global norm before clipping.
    pub grad_norm: f64,
    /// Learning rate.
    pub lr: f64,
}

/// Sums from which [`CriticMetrics`] are computed.
#[derive(Debug, Clone, Default)]
pub(crate) struct CriticSums {
    values: Moments,
    returns: Moments,
    errors: Moments,
    mini_batches: u64,
    optimizer_steps: u64,
    grad_norms: f64,
}

impl CriticSums {
    /// Adds the value of a token before the update and its target.
    pub fn add_target(&mut self, value: f64, target: f64) {
        self.values.add(value);
        self.returns.add(target);
        self.errors.add(target - value);
    }

    /// Adds a mini-batch. `grad_norm` is `None` if its optimiser step was skipped.
    pub fn add_step(&mut self, grad_norm: Option<f64>) {
        self.mini_batches += 1;
        self.optimizer_steps += u64::from(grad_norm.is_some());
        self.grad_norms += grad_norm.unwrap_or(0.0);
    }

    pub fn into_metrics(self, passes: &CriticPassSums, lr: f64) -> CriticMetrics {
        let mean = |sum: f64, count: u64| if count == 0 { 0.0 } else { sum / count as f64 };
        let spread = self.returns.deviation().powi(2);
        CriticMetrics {
            value_loss: mean(passes.loss, self.mini_batches),
            explained_variance: (spread > 0.0).then(|| 1.0 - self.errors.deviation().powi(2) / spread),
            value_clip_fraction: mean(passes.clipped as f64, passes.tokens),
            mean_value: self.values.mean(),
            mean_return: self.returns.mean(),
            grad_norm: mean(self.grad_norms, self.optimizer_steps),
            lr,
        }
    }
}

/// Sums over the tokens that went through the value loss.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct CriticPassSums {
    loss: f64,
    tokens: u64,
    clipped: u64,
}

impl CriticPassSums {
    /// Adds a token.
    pub fn add(&mut self, loss: f64, clipped: bool) {
        self.tokens += 1;
        self.loss += loss;
        self.clipped += u64::from(clipped);
    }

    /// Adds the sums of another rank.
    pub fn merge(&mut self, other: &CriticPassSums) {
        self.loss += other.loss;
        self.tokens += other.tokens;
        self.clipped += other.clipped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explained_variance_of_worked_examples() {
        let metrics = |pairs: &[(f64, f64)]| {
            let mut sums = CriticSums::default();
            pairs.iter().for_each(|&(value, target)| sums.add_target(value, target));
            sums.into_metrics(&CriticPassSums::default(), 0.1)
        };
        // Errors 0.5, -0.5, 0.5, -0.5 have a variance of 0.25; the targets 0, 1, 2, 3 one of 1.25.
        let some = metrics(&[(-0.5, 0.0), (1.5, 1.0), (1.5, 2.0), (3.5, 3.0)]);
        assert!((some.explained_variance.unwrap() - 0.8).abs() < 1e-12, "{some:?}");
        assert!((some.mean_value - 1.5).abs() < 1e-12 && (some.mean_return - 1.5).abs() < 1e-12);
        // A constant error is no loss of explained variance, and worse than the mean is below 0.
        assert_eq!(metrics(&[(3.0, 1.0), (4.0, 2.0)]).explained_variance, Some(1.0));
        assert_eq!(metrics(&[(2.0, 1.0), (1.0, 2.0)]).explained_variance, Some(-3.0));
        assert_eq!(metrics(&[(2.0, 1.0), (1.0, 1.0)]).explained_variance, None);
        assert_eq!(metrics(&[]).explained_variance, None);
    }
}
