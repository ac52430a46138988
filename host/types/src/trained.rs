//! Records of an update: what a pass computed of each token of a completion.

use serde::{Deserialize, Serialize};

use crate::transition::Key;

/// A pass of an update over a completion. Lists have one element per completion token.
///
/// A completion without a gradient does not go through the model: its record has advantages alone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainedCompletion {
    pub key: Key,
    /// Number of earlier passes over the step's completions.
    pub epoch: u32,
    /// Number of optimiser steps of its policy in the update before this pass.
    pub optimizer_steps: u32,
    /// Weight of each token in the loss; 0 if the completion was not computed.
    pub loss_weight: f32,
    /// Coefficient of the KL divergence from the reference.
    pub kl_coefficient: f64,
    /// True if none of the tokens is trained on, whatever their advantages are.
    pub masked: bool,
    /// Return that the advantage was computed from. `None` with a critic, whose returns differ by token.
    pub credit: Option<Credit>,
    pub advantages: Vec<f32>,
    /// Natural logarithms of the tokens' probabilities under the policy in training. `None` if the completion was not
    /// computed.
    pub logprobs: Option<Vec<f32>>,
    /// Entropies of the distributions that the tokens are from, in nats. `None` after the first pass.
    pub entropies: Option<Vec<f32>>,
    pub clipped: Option<Vec<Clipping>>,
    /// Log-probabilities that ratios are relative to. `None` for those of sampling.
    pub old_logprobs: Option<Vec<f32>>,
    /// Log-probabilities under the reference policy. `None` without a KL term and a penalty for the divergence.
    pub reference_logprobs: Option<Vec<f32>>,
    /// Importance weights. `None` if nothing is corrected.
    pub importance_weights: Option<Vec<f32>>,
}

/// Return of a completion with those of the group that it is compared with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Credit {
    /// Return of the completion, after penalties.
    pub value: f64,
    /// Number of completions in the group; 0 if the advantage compares none.
    pub group_size: u32,
    /// Mean of the group's returns.
    pub group_mean: f64,
    /// Sample standard deviation of the group's returns (divisor n - 1).
    pub group_deviation: f64,
}

/// Bound of the loss that a token has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Clipping {
    #[default]
    None,
    /// The range of ratios: it has removed the token's gradient, or bounded its weight.
    Range,
    /// The bound of negative advantages, which has removed the token's gradient.
    Dual,
}
