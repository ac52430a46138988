//! Measurements of an update: the sums of its metrics and, if they are recorded, the numbers of each token.

use std::collections::BTreeSet;

use pl_types::{Clipping, TrainedCompletion};
use serde::{Deserialize, Serialize};
use tch::{Kind, TchError, Tensor};

use super::planning::PlannedUpdate;
use crate::metrics::PassSums;
use crate::plan::Sample;
use crate::token_columns::{TokenColumns, TokenMeasurements};

/// Measurements of the passes of a rank.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Measured {
    /// One per policy of the learner.
    pub sums: Vec<PassSums>,
    /// Number of optimiser steps that each policy has taken.
    pub optimizer_steps: Vec<u32>,
    /// Indices of the sequences that had a gradient in some pass: those that a correction did not drop in all of them.
    pub trained: BTreeSet<usize>,
    /// Passes over completions, in the order in which they ran. `None` if they are not recorded.
    passes: Option<Vec<Pass>>,
}

/// A pass over a completion. Lists have one element per token.
#[derive(Debug, Serialize, Deserialize)]
struct Pass {
    /// Index among the sequences of the update.
    sequence: usize,
    epoch: u32,
    optimizer_steps: u32,
    loss_weight: f32,
    logprobs: Vec<f32>,
    entropies: Option<Vec<f32>>,
    clipped: Vec<Clipping>,
    importance_weights: Option<Vec<f32>>,
}

impl Measured {
    /// Creates the measurements of an update of some policies that has not begun. With `record_tokens`, the numbers of each
    /// token are kept.
    pub fn new(policies: usize, record_tokens: bool) -> Measured {
        Measured {
            sums: vec![PassSums::default(); policies],
            optimizer_steps: vec![0; policies],
            trained: BTreeSet::new(),
            passes: record_tokens.then(Vec::new),
        }
    }

    /// Adds the measurements of another rank.
    pub fn merge(&mut self, other: Measured) {
        for (sums, other) in self.sums.iter_mut().zip(&other.sums) {
            sums.merge(other);
        }
        self.trained.extend(other.trained);
        if let (Some(passes), Some(other)) = (&mut self.passes, other.passes) {
            passes.extend(other);
        }
    }

    /// Adds the tokens of a packed batch of an epoch. `is_trained` is false for policies that the pass does not change, and
    /// `trains_dropped` true for those that completions dropped by a correction train, too.
    pub fn add(
        &mut self,
        epoch: u32,
        columns: &TokenColumns,
        measurements: &TokenMeasurements,
        is_trained: impl Fn(usize) -> bool,
        trains_dropped: impl Fn(usize) -> bool,
    ) -> Result<(), TchError> {
        let weights = measurements.importance_weights(columns.policy_indices.len())?;
        for (&sequence, rows) in columns.sequences.iter().zip(&columns.completions) {
            let has_gradient = |row: usize| columns.advantages[row] != 0.0 && weights[row] != Some(0.0);
            if trains_dropped(columns.policy_indices[rows.start]) || rows.clone().any(has_gradient) {
                self.trained.insert(sequence);
            }
        }
        if let Some(passes) = &mut self.passes {
            let tokens = TokenNumbers::new(measurements, &weights)?;
            for (&sequence, rows) in columns.sequences.iter().zip(&columns.completions) {
                let policy = columns.policy_indices[rows.start];
                let weights: Option<Vec<f32>> = tokens.weights[rows.clone()].iter().copied().collect();
                passes.push(Pass {
                    sequence,
                    epoch,
                    optimizer_steps: self.optimizer_steps[policy],
                    loss_weight: if is_trained(policy) { columns.loss_weights[rows.start] } else { 0.0 },
                    logprobs: tokens.logprobs[rows.clone()].to_vec(),
                    entropies: tokens.entropies.as_ref().map(|all| all[rows.clone()].to_vec()),
                    clipped: tokens.clipped[rows.clone()].to_vec(),
                    importance_weights: weights,
                });
            }
        }
        measurements.add_to(&columns.policy_indices, &weights, &self.optimizer_steps, &mut self.sums)
    }

    /// Returns the sums and the records of all completions of the update, by key and epoch. `kl_coefficient` is that of a
    /// policy.
    pub fn finish(
        self,
        planned: &PlannedUpdate<'_>,
        kl_coefficient: impl Fn(usize) -> f64,
    ) -> (Vec<PassSums>, Vec<TrainedCompletion>) {
        let Some(passes) = self.passes else { return (self.sums, Vec::new()) };
        let mut by_sequence: Vec<Vec<Pass>> = planned.samples.iter().map(|_| Vec::new()).collect();
        for pass in passes {
            by_sequence[pass.sequence].push(pass);
        }
        // Passes of several ranks are not in the order of epochs.
        by_sequence.iter_mut().for_each(|passes| passes.sort_by_key(|pass| pass.epoch));
        let mut records = Vec::new();
        for ((sample, sequence), passes) in planned.samples.iter().zip(&planned.sequences).zip(by_sequence) {
            let kl_coefficient = kl_coefficient(sequence.policy_index);
            if passes.is_empty() {
                records.push(record(sample, kl_coefficient, None));
            }
            records.extend(passes.into_iter().map(|pass| record(sample, kl_coefficient, Some(pass))));
        }
        (self.sums, records)
    }
}

/// Returns the record of a pass over a sample. Without a pass, the sample was not computed.
fn record(sample: &Sample<'_>, kl_coefficient: f64, pass: Option<Pass>) -> TrainedCompletion {
    let targets = &sample.targets;
    let mut record = TrainedCompletion {
        key: sample.transition.key.clone(),
        epoch: 0,
        optimizer_steps: 0,
        loss_weight: 0.0,
        kl_coefficient,
        masked: targets.masked,
        credit: targets.credit,
        advantages: targets.advantages.clone(),
        logprobs: None,
        entropies: None,
        clipped: None,
        old_logprobs: None,
        reference_logprobs: None,
        importance_weights: None,
    };
    if let Some(pass) = pass {
        record.epoch = pass.epoch;
        record.optimizer_steps = pass.optimizer_steps;
        record.loss_weight = pass.loss_weight;
        record.logprobs = Some(pass.logprobs);
        record.entropies = pass.entropies;
        record.clipped = Some(pass.clipped);
        record.old_logprobs.clone_from(&targets.old_logprobs);
        record.reference_logprobs.clone_from(&targets.reference_logprobs);
        record.importance_weights = pass.importance_weights;
    }
    record
}

/// Numbers of all tokens of a packed batch.
struct TokenNumbers {
    logprobs: Vec<f32>,
    entropies: Option<Vec<f32>>,
    clipped: Vec<Clipping>,
    /// `None` for tokens of policies without a correction.
    weights: Vec<Option<f32>>,
}

impl TokenNumbers {
    fn new(measurements: &TokenMeasurements, weights: &[Option<f64>]) -> Result<TokenNumbers, TchError> {
        let floats = |tensor: &Tensor| Vec::<f32>::try_from(tensor.f_to_kind(Kind::Float)?);
        let all = |chunks: &[Tensor]| floats(&Tensor::f_cat(chunks, 0)?);
        let (clipped, dual) = (all(&measurements.clipped)?, all(&measurements.dual_clipped)?);
        let bound = |(clipped, dual): (f32, f32)| match (clipped != 0.0, dual != 0.0) {
            (_, true) => Clipping::Dual,
            (true, false) => Clipping::Range,
            (false, false) => Clipping::None,
        };
        Ok(TokenNumbers {
            logprobs: all(&measurements.logp)?,
            entropies: measurements.entropy.as_ref().map(floats).transpose()?,
            clipped: clipped.into_iter().zip(dual).map(bound).collect(),
            weights: weights.iter().map(|weight| weight.map(|weight| weight as f32)).collect(),
        })
    }
}
