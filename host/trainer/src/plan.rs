//! Plan of an update: epochs, mini-batches and packed batches, complete before the first one runs.
//!
//! The transitions of each policy are split into mini-batches by a random stream of its own, so that the
//! training of one policy does not depend on the others that share its base. Mini-batch `i` of a learner is
//! the union of its policies' mini-batches `i`, packed together.

use pl_types::Transition;
use rand::seq::SliceRandom;

use crate::aggregation::CompletionCounts;
use crate::packing::{PackItem, PackedBatch, pack};
use crate::seeds::mini_batch_rng;

/// A transition with the targets of its tokens.
#[derive(Debug, Clone)]
pub struct Sample<'a> {
    pub transition: &'a Transition,
    pub targets: TokenTargets,
}

impl<'a> Sample<'a> {
    /// A sample with one advantage for all tokens, and the log-probabilities of sampling alone.
    pub fn new(transition: &'a Transition, advantage: f64) -> Self {
        let advantages = vec![advantage as f32; transition.completion.len()];
        Self { transition, targets: TokenTargets { advantages, ..TokenTargets::default() } }
    }
}

/// Quantities of a completion's tokens that the loss needs. Lists have one element per token.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TokenTargets {
    /// Advantages ([`crate::advantage`]).
    pub advantages: Vec<f32>,
    /// Log-probabilities that ratios are relative to. `None` for those of sampling.
    pub old_logprobs: Option<Vec<f32>>,
    /// Log-probabilities under the reference policy, if the loss has a KL term.
    pub reference_logprobs: Option<Vec<f32>>,
    /// Importance weights ([`crate::correction`]), if they are computed before the update.
    pub correction: Option<Vec<f32>>,
    /// Targets of the critic, if the policy has one.
    pub critic: Option<ValueTargets>,
    /// True if none of the tokens is trained on. They count in no mean.
    pub masked: bool,
}

/// Targets of a completion's value estimates, one element per token.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ValueTargets {
    /// Values before the update.
    pub values: Vec<f32>,
    /// Returns that the values are to approach.
    pub returns: Vec<f32>,
}

/// The properties of a transition that planning needs.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedSequence {
    /// Tokens fed to the model, prompt first.
    pub tokens: Vec<u32>,
    /// Number of tokens of the prompt.
    pub prompt: usize,
    /// Index of the policy within the learner.
    pub policy_index: usize,
    /// Number of completion tokens.
    pub targets: usize,
    /// False if no token has a gradient. The sequence then counts in the mean and is not computed.
    pub has_gradient: bool,
    /// True if the sequence does not even count in the mean.
    pub masked: bool,
}

/// Division of an update into epochs, mini-batches and packed batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchPlan {
    /// Number of passes over all sequences.
    pub epochs: u32,
    /// Number of optimiser steps per epoch.
    pub mini_batches: u32,
    /// Maximum number of tokens in a packed batch.
    pub token_budget: usize,
}

/// The work up to one optimiser step.
#[derive(Debug, Clone, PartialEq)]
pub struct MiniBatch {
    /// Index of the epoch.
    pub epoch: u32,
    /// Per policy, the completions and completion tokens with and without a gradient: the divisor of the loss.
    pub counts: Vec<CompletionCounts>,
    /// Per policy, true if it has a gradient.
    pub has_gradient: Vec<bool>,
    /// Packed batches of the sequences with a gradient, as indices into all sequences.
    pub batches: Vec<PackedBatch>,
}

/// Plans the mini-batches of an update, in the order in which they run.
///
/// `policies` are the names of the learner's policies. `sequences` must be in the order of the transitions'
/// keys. Mini-batches without any gradient are omitted.
pub fn plan_update(
    seed: u64,
    step: u64,
    policies: &[&str],
    sequences: &[PlannedSequence],
    batch_plan: BatchPlan,
) -> Vec<MiniBatch> {
    let count = batch_plan.mini_batches.max(1) as usize;
    let mut plan = Vec::new();
    for epoch in 0..batch_plan.epochs {
        let mut mini_batches = vec![Vec::new(); count];
        for (policy_index, name) in policies.iter().enumerate() {
            let is_own = |i: &usize| sequences[*i].policy_index == policy_index && !sequences[*i].masked;
            let mut own: Vec<usize> = (0..sequences.len()).filter(is_own).collect();
            own.shuffle(&mut mini_batch_rng(seed, name, step, u64::from(epoch)));
            for (part, indices) in mini_batches.iter_mut().enumerate() {
                let boundary = |part: usize| own.len() * part / count;
                indices.extend_from_slice(&own[boundary(part)..boundary(part + 1)]);
            }
        }
        for mut indices in mini_batches {
            indices.sort_unstable();
            let mut counts = vec![CompletionCounts::default(); policies.len()];
            let mut has_gradient = vec![false; policies.len()];
            for &index in &indices {
                let sequence = &sequences[index];
                counts[sequence.policy_index].completions += 1;
                counts[sequence.policy_index].tokens += sequence.targets;
                has_gradient[sequence.policy_index] |= sequence.has_gradient;
            }
            indices.retain(|&index| sequences[index].has_gradient);
            let items: Vec<PackItem<'_>> = indices
                .iter()
                .map(|&index| {
                    let PlannedSequence { tokens, prompt, policy_index, .. } = &sequences[index];
                    PackItem { tokens, prompt: *prompt, policy_index: *policy_index }
                })
                .collect();
            let mut batches = pack(&items, batch_plan.token_budget);
            for index in batches.iter_mut().flat_map(|batch| &mut batch.sequences) {
                *index = indices[*index];
            }
            if !batches.is_empty() {
                plan.push(MiniBatch { epoch, counts, has_gradient, batches });
            }
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sequence(policy_index: usize, length: usize, has_gradient: bool) -> PlannedSequence {
        let (tokens, prompt) = (vec![7; length], length - length / 2);
        PlannedSequence { tokens, prompt, policy_index, targets: length / 2, has_gradient, masked: false }
    }

    /// Indices of a mini-batch's sequences, in the order of its batches.
    fn sequence_indices(mini_batch: &MiniBatch) -> impl Iterator<Item = usize> {
        mini_batch.batches.iter().flat_map(|batch| batch.sequences.iter().copied())
    }

    #[test]
    fn sequences_without_a_gradient_count_only_in_the_mean_and_masked_ones_nowhere() {
        let masked = PlannedSequence { masked: true, ..sequence(0, 8, false) };
        let sequences = [sequence(0, 10, true), sequence(0, 20, false), sequence(1, 30, false), masked];
        let batch_plan = BatchPlan { epochs: 1, mini_batches: 1, token_budget: 100 };
        let plan = plan_update(1, 0, &["a", "b"], &sequences, batch_plan);
        assert_eq!(plan.len(), 1);
        let counts = |completions, tokens| CompletionCounts { completions, tokens };
        assert_eq!(plan[0].counts, [counts(2, 15), counts(1, 15)]);
        assert_eq!(plan[0].has_gradient, [true, false]);
        assert_eq!(plan[0].batches, [PackedBatch { sequences: vec![0], fed_tokens: 10 }]);
    }

    #[test]
    fn every_epoch_and_step_is_shuffled_differently() {
        let sequences = vec![sequence(0, 10, true); 32];
        let batch_plan = BatchPlan { epochs: 2, mini_batches: 4, token_budget: 1000 };
        let first = plan_update(1, 0, &["a"], &sequences, batch_plan);
        assert_eq!(first, plan_update(1, 0, &["a"], &sequences, batch_plan));
        assert_ne!(first[0].batches, first[4].batches);
        assert_ne!(first[0].batches, plan_update(1, 1, &["a"], &sequences, batch_plan)[0].batches);
        assert_ne!(first[0].batches, plan_update(2, 0, &["a"], &sequences, batch_plan)[0].batches);
    }

    proptest! {
        #[test]
        fn each_epoch_has_each_sequence_with_a_gradient_once(
            parts in prop::collection::vec((0usize..3, 2usize..40, prop::bool::weighted(0.8)), 0..40),
            epochs in 1u32..3,
            mini_batches in 1u32..5,
            token_budget in 1usize..100,
        ) {
            let sequences: Vec<PlannedSequence> = parts.iter().map(|&(l, n, a)| sequence(l, n, a)).collect();
            let batch_plan = BatchPlan { epochs, mini_batches, token_budget };
            let plan = plan_update(9, 4, &["a", "b", "c"], &sequences, batch_plan);
            for epoch in 0..epochs {
                let mut seen: Vec<usize> = plan
                    .iter()
                    .filter(|m| m.epoch == epoch)
                    .flat_map(sequence_indices)
                    .collect();
                seen.sort_unstable();
                let expected: Vec<usize> =
                    (0..sequences.len()).filter(|&i| sequences[i].has_gradient).collect();
                prop_assert_eq!(seen, expected);
            }
            for mini_batch in &plan {
                for policy_index in 0..3 {
                    let computed = sequence_indices(mini_batch).any(|i| sequences[i].policy_index == policy_index);
                    prop_assert_eq!(mini_batch.has_gradient[policy_index], computed);
                }
            }
        }

        #[test]
        fn the_mini_batches_of_a_policy_do_not_depend_on_other_policies(
            own in prop::collection::vec(2usize..40, 1..20),
            other in prop::collection::vec(2usize..40, 0..20),
        ) {
            let batch_plan = BatchPlan { epochs: 2, mini_batches: 3, token_budget: 10_000 };
            let alone: Vec<PlannedSequence> = own.iter().map(|&n| sequence(0, n, true)).collect();
            let mut both: Vec<PlannedSequence> = other.iter().map(|&n| sequence(1, n, true)).collect();
            both.extend(alone.iter().cloned());
            let lengths = |plan: &[MiniBatch], sequences: &[PlannedSequence]| -> Vec<Vec<usize>> {
                plan.iter()
                    .map(|m| {
                        let mut own: Vec<usize> = sequence_indices(m)
                            .filter(|&i| sequences[i].policy_index == 0)
                            .map(|i| sequences[i].tokens.len())
                            .collect();
                        own.sort_unstable();
                        own
                    })
                    .filter(|own: &Vec<usize>| !own.is_empty())
                    .collect()
            };
            let separate = plan_update(3, 5, &["a"], &alone, batch_plan);
            let joint = plan_update(3, 5, &["a", "b"], &both, batch_plan);
            prop_assert_eq!(lengths(&separate, &alone), lengths(&joint, &both));
        }
    }
}
