//! Plan of an update: epochs, mini-batches and packed batches, complete before the first one runs.
//!
//! The transitions of each policy are split into mini-batches by a random stream of its own, so that the
//! training of one policy does not depend on the others that share its base. Mini-batch `i` of a learner is
//! the union of its policies' mini-batches `i`, packed together.

use std::cmp::Reverse;

use pl_dsl::workflow::Train;
use pl_model::{Checkpointing, Config};
use pl_types::{Credit, Dtype, Transition};
use rand::seq::SliceRandom;
use tch::Device;

use crate::aggregation::CompletionCounts;
use crate::memory::{PassShape, activation_bytes};
use crate::packing::{PackItem, PackedBatch, pack_for_ranks};
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
    /// Log-probabilities under the reference policy, if the loss has a KL term or the reward a penalty for the divergence.
    pub reference_logprobs: Option<Vec<f32>>,
    /// Importance weights ([`crate::correction`]), if they are computed before the update.
    pub correction: Option<Vec<f32>>,
    /// Targets of the critic, if the policy has one.
    pub critic: Option<ValueTargets>,
    /// Return that the advantages were computed from. `None` if the completion as a whole has none.
    pub credit: Option<Credit>,
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
    pub value_pass: ValuePass,
}

/// Pass that computes the hidden states of a policy's critic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValuePass {
    /// The policy's own pass, also if the policy has no critic.
    Policy,
    /// A second sequence in the passes of the learner, with the adapter of this index.
    Adapter(usize),
    /// A pass of the critic's own model.
    Model,
}

/// Largest activations of a pass that a budget chosen for a CPU takes, in bytes.
const PASS_MEMORY: u64 = 2 << 30;

/// Returns the largest number of tokens of a packed batch: the one that the block states, or else one that keeps the device busy
/// and fits the memory of most. What sequences of different passes have in common is fed in each of them, so short passes cost
/// time where prompts have long common beginnings; the memory of a long one grows with the model.
pub fn token_budget(train: &Train, config: &Config, device: Device) -> usize {
    if let Some(stated) = train.token_budget {
        return stated as usize;
    }
    if device.is_cuda() {
        return 4096;
    }
    let fits = |tokens: &usize| {
        let pass = PassShape { tokens: *tokens, targets: *tokens, ranks: 0 };
        activation_bytes(config, &pass, Checkpointing::Off, Dtype::F32) <= PASS_MEMORY
    };
    [2048, 1024].into_iter().find(fits).unwrap_or(512)
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
    /// Number of ranks that the work up to an optimiser step is divided among.
    pub ranks: usize,
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
    /// Packed batches of the sequences with a gradient, by rank.
    pub shares: Vec<Share>,
}

impl MiniBatch {
    /// Numbers of tokens fed in each packed batch, of all ranks.
    pub fn fed_tokens(&self) -> impl Iterator<Item = usize> {
        self.shares.iter().flat_map(|share| {
            let batches = share.batches.iter().map(|batch| batch.fed_tokens);
            batches.chain(share.critic_batches.iter().map(|(_, batch)| batch.fed_tokens))
        })
    }
}

/// Packed batches of a rank.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Share {
    /// Those that go through the learner's model.
    pub batches: Vec<PlannedBatch>,
    /// Those of the critics with models of their own, as indices into all sequences, with the index of the policy.
    pub critic_batches: Vec<(usize, PackedBatch)>,
}

/// Sequences that go through the learner's model in one pass, as indices into all sequences.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlannedBatch {
    /// Sequences with the adapters of their policies, by policy, then by tokens.
    pub sequences: Vec<usize>,
    /// Sequences with the adapters of their policies' critics, likewise.
    pub value_sequences: Vec<usize>,
    /// Number of tokens fed to the model; shared prefixes count once.
    pub fed_tokens: usize,
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
            let batches = joint_batches(sequences, &indices, batch_plan);
            if batches.is_empty() {
                continue;
            }
            let mut shares = vec![Share::default(); batch_plan.ranks.max(1)];
            for (rank, batch) in divided(batches, batch_plan.ranks, |batch| batch.fed_tokens) {
                shares[rank].batches.push(batch);
            }
            for policy in 0..policies.len() {
                let batches = critic_batches(sequences, &indices, policy, batch_plan);
                for (rank, batch) in divided(batches, batch_plan.ranks, |batch| batch.fed_tokens) {
                    shares[rank].critic_batches.push((policy, batch));
                }
            }
            plan.push(MiniBatch { epoch, counts, has_gradient, shares });
        }
    }
    plan
}

/// Divides batches among ranks: the largest first, each to the rank with the fewest tokens so far. Returns them in their
/// order, each with its rank.
fn divided<T>(
    batches: Vec<T>,
    ranks: usize,
    tokens: impl Fn(&T) -> usize,
) -> impl Iterator<Item = (usize, T)> {
    let mut order: Vec<usize> = (0..batches.len()).collect();
    order.sort_by_key(|&index| Reverse(tokens(&batches[index])));
    let (mut loads, mut owners) = (vec![0; ranks.max(1)], vec![0; batches.len()]);
    for index in order {
        let least = (0..loads.len()).min_by_key(|&rank| loads[rank]).unwrap_or_default();
        loads[least] += tokens(&batches[index]);
        owners[index] = least;
    }
    owners.into_iter().zip(batches)
}

/// Packs sequences for the learner's model, those with a critic's adapter a second time.
fn joint_batches(
    sequences: &[PlannedSequence],
    indices: &[usize],
    batch_plan: BatchPlan,
) -> Vec<PlannedBatch> {
    let policy_items = indices.iter().map(|&index| (index, sequences[index].policy_index));
    let value_items = indices.iter().filter_map(|&index| match sequences[index].value_pass {
        ValuePass::Adapter(adapter) => Some((index, adapter)),
        ValuePass::Policy | ValuePass::Model => None,
    });
    let items: Vec<(usize, usize)> = policy_items.chain(value_items).collect();
    pack_items(sequences, &items, batch_plan)
        .into_iter()
        .map(|PackedBatch { sequences: packed, fed_tokens }| {
            // The adapters of critics come after those of policies.
            let (own, values): (Vec<usize>, Vec<usize>) =
                packed.into_iter().partition(|&item| item < indices.len());
            let sequences_of = |packed: Vec<usize>| packed.into_iter().map(|item| items[item].0).collect();
            PlannedBatch { sequences: sequences_of(own), value_sequences: sequences_of(values), fed_tokens }
        })
        .collect()
}

/// Packs the sequences of a policy whose critic has a model of its own.
fn critic_batches(
    sequences: &[PlannedSequence],
    indices: &[usize],
    policy_index: usize,
    batch_plan: BatchPlan,
) -> Vec<PackedBatch> {
    let is_own = |sequence: &PlannedSequence| {
        sequence.policy_index == policy_index && sequence.value_pass == ValuePass::Model
    };
    let own = indices.iter().filter(|&&index| is_own(&sequences[index]));
    let items: Vec<(usize, usize)> = own.map(|&index| (index, 0)).collect();
    let mut batches = pack_items(sequences, &items, batch_plan);
    for index in batches.iter_mut().flat_map(|batch| &mut batch.sequences) {
        *index = items[*index].0;
    }
    batches
}

/// Packs sequences, given by index and adapter.
fn pack_items(
    sequences: &[PlannedSequence],
    items: &[(usize, usize)],
    batch_plan: BatchPlan,
) -> Vec<PackedBatch> {
    let items: Vec<PackItem<'_>> = items
        .iter()
        .map(|&(index, policy_index)| {
            let PlannedSequence { tokens, prompt, .. } = &sequences[index];
            PackItem { tokens, prompt: *prompt, policy_index }
        })
        .collect();
    pack_for_ranks(&items, batch_plan.token_budget, batch_plan.ranks)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures::{config, train};

    fn sequence(policy_index: usize, length: usize, has_gradient: bool) -> PlannedSequence {
        let (tokens, prompt) = (vec![7; length], length - length / 2);
        let targets = length / 2;
        let value_pass = ValuePass::Policy;
        PlannedSequence { tokens, prompt, policy_index, targets, has_gradient, masked: false, value_pass }
    }

    #[test]
    fn a_budget_that_is_not_stated_fits_the_model_and_the_device() {
        let train = Train { token_budget: None, ..train() };
        // Of SmolLM2's 135 million parameters, 360 million and Qwen2.5's 1.5 billion.
        let sizes =
            [(576, 30, 9, 3, 1536, 49_152), (960, 32, 15, 5, 2560, 49_152), (1536, 28, 12, 2, 8960, 151_936)];
        let budgets = sizes.map(|(hidden, layers, heads, kv_heads, ffn, vocab)| {
            let head_dim = hidden / heads;
            let config = Config { hidden, layers, heads, kv_heads, head_dim, ffn, vocab, ..config(true) };
            let stated = Train { token_budget: Some(100), ..train.clone() };
            assert_eq!(token_budget(&stated, &config, Device::Cpu), 100);
            assert_eq!(token_budget(&train, &config, Device::Cuda(0)), 4096);
            token_budget(&train, &config, Device::Cpu)
        });
        assert_eq!(budgets, [2048, 1024, 512]);
    }

    /// Indices of a mini-batch's sequences, in the order of its batches.
    fn sequence_indices(mini_batch: &MiniBatch) -> impl Iterator<Item = usize> {
        let batches = mini_batch.shares.iter().flat_map(|share| &share.batches);
        batches.flat_map(|batch| batch.sequences.iter().copied())
    }

    #[test]
    fn sequences_without_a_gradient_count_only_in_the_mean_and_masked_ones_nowhere() {
        let masked = PlannedSequence { masked: true, ..sequence(0, 8, false) };
        let sequences = [sequence(0, 10, true), sequence(0, 20, false), sequence(1, 30, false), masked];
        let batch_plan = BatchPlan { epochs: 1, mini_batches: 1, token_budget: 100, ranks: 1 };
        let plan = plan_update(1, 0, &["a", "b"], &sequences, batch_plan);
        assert_eq!(plan.len(), 1);
        let counts = |completions, tokens| CompletionCounts { completions, tokens };
        assert_eq!(plan[0].counts, [counts(2, 15), counts(1, 15)]);
        assert_eq!(plan[0].has_gradient, [true, false]);
        assert_eq!(
            plan[0].shares[0].batches,
            [PlannedBatch { sequences: vec![0], fed_tokens: 10, ..Default::default() }]
        );
    }

    #[test]
    fn every_epoch_and_step_is_shuffled_differently() {
        let sequences = vec![sequence(0, 10, true); 32];
        let batch_plan = BatchPlan { epochs: 2, mini_batches: 4, token_budget: 1000, ranks: 1 };
        let first = plan_update(1, 0, &["a"], &sequences, batch_plan);
        assert_eq!(first, plan_update(1, 0, &["a"], &sequences, batch_plan));
        assert_ne!(first[0].shares, first[4].shares);
        assert_ne!(first[0].shares, plan_update(1, 1, &["a"], &sequences, batch_plan)[0].shares);
        assert_ne!(first[0].shares, plan_update(2, 0, &["a"], &sequences, batch_plan)[0].shares);
    }

    #[test]
    fn ranks_get_like_numbers_of_tokens_in_like_numbers_of_batches() {
        let sequences: Vec<PlannedSequence> = (0..24)
            .map(|index| PlannedSequence { tokens: vec![index; 20], ..sequence(0, 20, true) })
            .collect();
        let batch_plan = |ranks| BatchPlan { epochs: 1, mini_batches: 1, token_budget: 200, ranks };
        let tokens = |share: &Share| share.batches.iter().map(|batch| batch.fed_tokens).sum::<usize>();
        let shares = |ranks| plan_update(1, 0, &["a"], &sequences, batch_plan(ranks)).remove(0).shares;
        let of = |ranks| shares(ranks).iter().map(tokens).collect::<Vec<_>>();
        assert_eq!((of(1), of(2), of(3)), (vec![480], vec![240, 240], vec![160, 160, 160]));
        // Three batches of at most 200 tokens are one too few for two ranks, which take two each.
        assert_eq!(shares(1)[0].batches.len(), 3);
        assert!(shares(2).iter().all(|share| share.batches.len() == 2));
    }

    proptest! {
        #[test]
        fn each_epoch_has_each_sequence_with_a_gradient_once(
            parts in prop::collection::vec((0usize..3, 2usize..40, prop::bool::weighted(0.8)), 0..40),
            epochs in 1u32..3,
            mini_batches in 1u32..5,
            token_budget in 1usize..100,
            ranks in 1usize..4,
        ) {
            let sequences: Vec<PlannedSequence> = parts.iter().map(|&(l, n, a)| sequence(l, n, a)).collect();
            let batch_plan = BatchPlan { epochs, mini_batches, token_budget, ranks };
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
            let batch_plan = BatchPlan { epochs: 2, mini_batches: 3, token_budget: 10_000, ranks: 1 };
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
