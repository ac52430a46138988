//! What an update will run: epochs, mini-batches and packed batches, known in full before the first one runs.
//!
//! Each lane (policy) deals its own transitions into mini-batches, by a stream of its own, so that what is done
//! to one policy does not depend on which others share its base. Mini-batch `i` of a learner is then the union
//! of its lanes' mini-batches `i`, packed together.

use rand::seq::SliceRandom;

use crate::packing::{Batch, Item, pack};
use crate::stream;

/// A transition, as far as planning goes.
#[derive(Debug, Clone, PartialEq)]
pub struct Sequence {
    /// Tokens fed to the model, prompt first.
    pub tokens: Vec<u32>,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Position of the policy within the learner.
    pub lane: usize,
    /// Completion tokens, which the loss is a mean over.
    pub targets: usize,
    /// A sequence with an advantage of 0 has no gradient: it counts in the mean, and is not computed.
    pub advantaged: bool,
}

/// How an update is cut up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Passes over all sequences.
    pub epochs: u32,
    /// Optimiser steps per pass.
    pub mini_batches: u32,
    /// Tokens in one packed batch.
    pub token_budget: usize,
}

/// The work up to one optimiser step.
#[derive(Debug, Clone, PartialEq)]
pub struct MiniBatch {
    /// Which pass, counted from 0.
    pub epoch: u32,
    /// Completion tokens per lane, with and without advantage: the divisors of the loss.
    pub targets: Vec<usize>,
    /// Per lane: whether there is a gradient at all.
    pub trains: Vec<bool>,
    /// What goes through the model together: indices into the sequences, advantaged ones only.
    pub batches: Vec<Batch>,
}

/// The mini-batches of one update, in the order in which they run.
///
/// `lanes` are the names of the policies. Sequences are taken in the order given, which is to be that of the
/// transitions' keys. A mini-batch that has no gradient in any lane is left out.
pub fn plan(seed: u64, step: u64, lanes: &[&str], sequences: &[Sequence], cut: Cut) -> Vec<MiniBatch> {
    let parts = cut.mini_batches.max(1) as usize;
    let mut plan = Vec::new();
    for epoch in 0..cut.epochs {
        let mut members = vec![Vec::new(); parts];
        for (lane, name) in lanes.iter().enumerate() {
            let mut own: Vec<usize> = (0..sequences.len()).filter(|&i| sequences[i].lane == lane).collect();
            own.shuffle(&mut stream::mini_batches(seed, name, step, u64::from(epoch)));
            for (part, members) in members.iter_mut().enumerate() {
                let border = |part: usize| own.len() * part / parts;
                members.extend_from_slice(&own[border(part)..border(part + 1)]);
            }
        }
        for mut members in members {
            members.sort_unstable();
            let mut targets = vec![0; lanes.len()];
            let mut trains = vec![false; lanes.len()];
            for &index in &members {
                let sequence = &sequences[index];
                targets[sequence.lane] += sequence.targets;
                trains[sequence.lane] |= sequence.advantaged;
            }
            members.retain(|&index| sequences[index].advantaged);
            let items: Vec<Item<'_>> = members
                .iter()
                .map(|&index| {
                    let Sequence { tokens, prompt, lane, .. } = &sequences[index];
                    Item { tokens, prompt: *prompt, lane: *lane }
                })
                .collect();
            let mut batches = pack(&items, cut.token_budget);
            for index in batches.iter_mut().flat_map(|batch| &mut batch.members) {
                *index = members[*index];
            }
            if !batches.is_empty() {
                plan.push(MiniBatch { epoch, targets, trains, batches });
            }
        }
    }
    plan
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sequence(lane: usize, length: usize, advantaged: bool) -> Sequence {
        let (tokens, prompt) = (vec![7; length], length - length / 2);
        Sequence { tokens, prompt, lane, targets: length / 2, advantaged }
    }

    /// The sequences of a mini-batch, in the order of its batches.
    fn members(mini_batch: &MiniBatch) -> impl Iterator<Item = usize> {
        mini_batch.batches.iter().flat_map(|batch| batch.members.iter().copied())
    }

    #[test]
    fn zero_advantages_count_in_the_mean_alone() {
        let sequences = [sequence(0, 10, true), sequence(0, 20, false), sequence(1, 30, false)];
        let cut = Cut { epochs: 1, mini_batches: 1, token_budget: 100 };
        let plan = plan(1, 0, &["a", "b"], &sequences, cut);
        assert_eq!(plan.len(), 1);
        assert_eq!(plan[0].targets, [15, 15]);
        assert_eq!(plan[0].trains, [true, false]);
        assert_eq!(plan[0].batches, [Batch { members: vec![0], fed: 10 }]);
    }

    #[test]
    fn epochs_are_dealt_anew_and_steps_too() {
        let sequences = vec![sequence(0, 10, true); 32];
        let cut = Cut { epochs: 2, mini_batches: 4, token_budget: 1000 };
        let first = plan(1, 0, &["a"], &sequences, cut);
        assert_eq!(first, plan(1, 0, &["a"], &sequences, cut));
        assert_ne!(first[0].batches, first[4].batches);
        assert_ne!(first[0].batches, plan(1, 1, &["a"], &sequences, cut)[0].batches);
        assert_ne!(first[0].batches, plan(2, 0, &["a"], &sequences, cut)[0].batches);
    }

    proptest! {
        #[test]
        fn each_epoch_has_each_sequence_once(
            parts in prop::collection::vec((0usize..3, 2usize..40, prop::bool::weighted(0.8)), 0..40),
            epochs in 1u32..3,
            mini_batches in 1u32..5,
            token_budget in 1usize..100,
        ) {
            let sequences: Vec<Sequence> = parts.iter().map(|&(l, n, a)| sequence(l, n, a)).collect();
            let cut = Cut { epochs, mini_batches, token_budget };
            let plan = plan(9, 4, &["a", "b", "c"], &sequences, cut);
            for epoch in 0..epochs {
                let mut seen: Vec<usize> = plan
                    .iter()
                    .filter(|m| m.epoch == epoch)
                    .flat_map(members)
                    .collect();
                seen.sort_unstable();
                let expected: Vec<usize> =
                    (0..sequences.len()).filter(|&i| sequences[i].advantaged).collect();
                prop_assert_eq!(seen, expected);
            }
            for mini_batch in &plan {
                for lane in 0..3 {
                    let computed = members(mini_batch).any(|i| sequences[i].lane == lane);
                    prop_assert_eq!(mini_batch.trains[lane], computed);
                }
            }
        }

        #[test]
        fn a_policy_is_dealt_the_same_with_and_without_neighbours(
            own in prop::collection::vec(2usize..40, 1..20),
            other in prop::collection::vec(2usize..40, 0..20),
        ) {
            let cut = Cut { epochs: 2, mini_batches: 3, token_budget: 10_000 };
            let alone: Vec<Sequence> = own.iter().map(|&n| sequence(0, n, true)).collect();
            let mut both: Vec<Sequence> = other.iter().map(|&n| sequence(1, n, true)).collect();
            both.extend(alone.iter().cloned());
            let lengths = |plan: &[MiniBatch], sequences: &[Sequence]| -> Vec<Vec<usize>> {
                plan.iter()
                    .map(|m| {
                        let mut own: Vec<usize> = members(m)
                            .filter(|&i| sequences[i].lane == 0)
                            .map(|i| sequences[i].tokens.len())
                            .collect();
                        own.sort_unstable();
                        own
                    })
                    .filter(|own: &Vec<usize>| !own.is_empty())
                    .collect()
            };
            let separate = plan(3, 5, &["a"], &alone, cut);
            let joint = plan(3, 5, &["a", "b"], &both, cut);
            prop_assert_eq!(lengths(&separate, &alone), lengths(&joint, &both));
        }
    }
}
