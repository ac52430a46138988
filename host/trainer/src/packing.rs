//! Packing of sequences into batches.
//!
//! A batch is one row of tokens. Sequences of one policy share their common prefixes in it
//! ([`pl_model::Packed::forest`]). The number of tokens in a batch is limited, which bounds memory; sequences
//! with the same prompt stay in one batch if they fit, so that the prompt is fed once.

use pl_model::{Sequence, common, segments};

/// A sequence to pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackItem<'a> {
    /// Tokens, prompt first.
    pub tokens: &'a [u32],
    /// Number of tokens of the prompt.
    pub prompt: usize,
    /// Index of the policy (its adapter). Sequences of one policy are adjacent in a batch, and only they
    /// share prefixes.
    pub policy_index: usize,
}

/// Sequences that go through the model in one pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackedBatch {
    /// Indices of the sequences, by policy, then by tokens.
    pub sequences: Vec<usize>,
    /// Number of tokens fed to the model; shared prefixes count once.
    pub fed_tokens: usize,
}

/// Packs sequences into batches of at most `budget` fed tokens each. A sequence longer than the budget is in a batch of its
/// own, or with others that begin with its prompt: up to `budget` tokens after the prompt, which is fed once for them.
///
/// First fit, in the order of policies and tokens: each family (sequences that begin with each other's
/// prompts) goes to the first batch with room for the tokens it adds. A family larger than the budget is
/// split, and its prompt is fed once per part. The result is deterministic.
pub fn pack(items: &[PackItem<'_>], budget: usize) -> Vec<PackedBatch> {
    let sorted = SortedItems::new(items);
    let mut batches: Vec<PackedBatch> = Vec::new();
    for unit in sorted.units(budget) {
        let alone = sorted.fed_tokens(&unit);
        // No sequence shares a longer prefix with a unit than its neighbours in the order.
        let common = |rank: usize| sorted.common.get(rank).copied().unwrap_or(0);
        let most_shared = common(unit[0]).max(common(unit[unit.len() - 1] + 1));
        let fit = batches.iter_mut().find_map(|batch| {
            if batch.fed_tokens + (alone - most_shared.min(alone)) > budget {
                return None;
            }
            let mut joined = [batch.sequences.as_slice(), &unit].concat();
            joined.sort_unstable();
            let fed_tokens = sorted.fed_tokens(&joined);
            (fed_tokens <= budget).then_some((batch, joined, fed_tokens))
        });
        match fit {
            Some((batch, sequences, fed_tokens)) => *batch = PackedBatch { sequences, fed_tokens },
            None => batches.push(PackedBatch { sequences: unit, fed_tokens: alone }),
        }
    }
    for batch in &mut batches {
        batch.sequences = batch.sequences.iter().map(|&rank| sorted.order[rank]).collect();
    }
    batches
}

/// Packs sequences into batches of at most `budget` fed tokens each, as many for each of some ranks (processes that share the
/// work) as can be, and of like sizes.
pub fn pack_for_ranks(items: &[PackItem<'_>], budget: usize, ranks: usize) -> Vec<PackedBatch> {
    let batches = pack(items, budget);
    if ranks <= 1 {
        return batches;
    }
    let all: usize = batches.iter().map(|batch| batch.fed_tokens).sum();
    let rounds = all.div_ceil(ranks * budget.max(1)).max(1);
    pack(items, budget.min(all.div_ceil(ranks * rounds)))
}

/// Items in the order of policies and tokens. An item's rank is its index in this order.
struct SortedItems {
    /// Original indices, by rank.
    order: Vec<usize>,
    /// Numbers of tokens, by rank.
    lengths: Vec<usize>,
    /// Numbers of prompt tokens, by rank.
    prompts: Vec<usize>,
    /// Lengths of the prefix in common with the previous item, by rank.
    common: Vec<usize>,
}

impl SortedItems {
    fn new(items: &[PackItem<'_>]) -> Self {
        let sequence = |i: usize| Sequence { tokens: items[i].tokens, adapter: Some(items[i].policy_index) };
        let mut order: Vec<usize> = (0..items.len()).collect();
        order.sort_by(|&a, &b| sequence(a).order(&sequence(b)).then(a.cmp(&b)));
        let sequences: Vec<Sequence<'_>> = order.iter().map(|&i| sequence(i)).collect();
        Self {
            lengths: order.iter().map(|&i| items[i].tokens.len()).collect(),
            prompts: order.iter().map(|&i| items[i].prompt).collect(),
            common: common(&sequences),
            order,
        }
    }

    /// Largest number of tokens fed for a family. One with a sequence over the budget may have as many tokens after its prompt
    /// as the budget, so that a long prompt is not fed once per completion.
    fn limit(&self, family: &[usize], budget: usize) -> usize {
        let is_over = family.iter().any(|&rank| self.lengths[rank] > budget);
        if is_over { self.prompts[family[0]] + budget } else { budget }
    }

    /// Families in ranks, split to fit the budget.
    fn units(&self, budget: usize) -> Vec<Vec<usize>> {
        let mut units: Vec<Vec<usize>> = Vec::new();
        for rank in 0..self.order.len() {
            let related = rank > 0
                && (self.common[rank] >= self.prompts[rank].max(self.prompts[rank - 1])
                    // A later model call of the turn.
                    || self.common[rank] == self.lengths[rank - 1]);
            match units.last_mut().filter(|_| related) {
                Some(unit) => {
                    unit.push(rank);
                    if self.fed_tokens(unit) > self.limit(unit, budget) {
                        unit.pop();
                        units.push(vec![rank]);
                    }
                }
                None => units.push(vec![rank]),
            }
        }
        units
    }

    /// Number of tokens fed for the items of some ranks (ascending).
    fn fed_tokens(&self, ranks: &[usize]) -> usize {
        let lengths: Vec<usize> = ranks.iter().map(|&rank| self.lengths[rank]).collect();
        let common_between =
            |pair: &[usize]| self.common[pair[0] + 1..=pair[1]].iter().copied().min().unwrap_or(0);
        let common: Vec<usize> = std::iter::once(0).chain(ranks.windows(2).map(common_between)).collect();
        segments(&lengths, &common).iter().map(|segment| segment.tokens.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use pl_model::Packed;
    use proptest::prelude::*;

    use super::*;

    /// Tokens of a sequence that has no token in common with other numbers.
    fn text(number: u32, length: usize) -> Vec<u32> {
        (0..length as u32).map(|i| number * 1000 + i).collect()
    }

    fn batches(texts: &[Vec<u32>], prompt: usize, budget: usize) -> Vec<(Vec<usize>, usize)> {
        let items: Vec<PackItem<'_>> =
            texts.iter().map(|tokens| PackItem { tokens, prompt, policy_index: 0 }).collect();
        pack(&items, budget).into_iter().map(|batch| (batch.sequences, batch.fed_tokens)).collect()
    }

    fn batches_of_unrelated(lengths: &[usize], budget: usize) -> Vec<(Vec<usize>, usize)> {
        let texts: Vec<Vec<u32>> =
            lengths.iter().enumerate().map(|(i, length)| text(i as u32, *length)).collect();
        batches(&texts, 1, budget)
    }

    #[test]
    fn batches_are_filled_first_fit() {
        assert_eq!(batches_of_unrelated(&[6, 5, 4, 3, 2], 10), [(vec![0, 2], 10), (vec![1, 3, 4], 10)]);
        assert_eq!(batches_of_unrelated(&[], 10), []);
    }

    #[test]
    fn a_sequence_over_the_budget_is_alone() {
        assert_eq!(batches_of_unrelated(&[3, 20, 4], 10), [(vec![0, 2], 7), (vec![1], 20)]);
    }

    #[test]
    fn siblings_stay_together_and_feed_their_prompt_once() {
        // Two prompts of 40 tokens with four completions of 10 each, alternating.
        let texts: Vec<Vec<u32>> = (0..8).map(|i| [text(i % 2, 40), text(10 + i, 10)].concat()).collect();
        assert_eq!(batches(&texts, 40, 80), [(vec![0, 2, 4, 6], 80), (vec![1, 3, 5, 7], 80)]);
        assert_eq!(batches(&texts, 40, 160), [(vec![0, 2, 4, 6, 1, 3, 5, 7], 160)]);
        // A budget too small for a family: the prompt is fed once per part.
        let parts = [(vec![0, 2], 60), (vec![4, 6], 60), (vec![1, 3], 60), (vec![5, 7], 60)];
        assert_eq!(batches(&texts, 40, 69), parts);
    }

    #[test]
    fn a_prompt_over_the_budget_is_fed_once_for_as_many_tokens_after_it() {
        let texts: Vec<Vec<u32>> = (0..5).map(|i| [text(0, 40), text(10 + i, 10)].concat()).collect();
        assert_eq!(batches(&texts, 40, 20), [(vec![0, 1], 60), (vec![2, 3], 60), (vec![4], 50)]);
    }

    proptest! {
        #[test]
        fn every_sequence_is_packed_once_within_the_budget(
            parts in prop::collection::vec((0u32..4, 1usize..40, 1usize..30, 0usize..3), 0..50),
            budget in 1usize..200,
        ) {
            let texts: Vec<Vec<u32>> = parts
                .iter()
                .enumerate()
                .map(|(i, &(family, prompt, length, _))| {
                    [text(family, prompt), text(10 + i as u32 / 2, length)].concat()
                })
                .collect();
            let items: Vec<PackItem<'_>> = texts
                .iter()
                .zip(&parts)
                .map(|(tokens, &(_, prompt, _, policy_index))| PackItem { tokens, prompt, policy_index })
                .collect();
            let batches = pack(&items, budget);
            let mut seen: Vec<usize> = batches.iter().flat_map(|b| b.sequences.iter().copied()).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..items.len()).collect::<Vec<_>>());
            for batch in &batches {
                let first = &items[batch.sequences[0]];
                let of_one_prompt = batch.sequences.iter().all(|&i| {
                    items[i].policy_index == first.policy_index
                        && items[i].tokens.starts_with(&first.tokens[..first.prompt])
                });
                prop_assert!(
                    batch.fed_tokens <= budget
                        || batch.sequences.len() == 1
                        || of_one_prompt && batch.fed_tokens <= first.prompt + budget
                );
                let policies: Vec<usize> = batch.sequences.iter().map(|&i| items[i].policy_index).collect();
                prop_assert!(policies.is_sorted());
                // The counted tokens are those of the packed row.
                let sequences: Vec<Sequence<'_>> = batch
                    .sequences
                    .iter()
                    .map(|&i| Sequence { tokens: items[i].tokens, adapter: Some(items[i].policy_index) })
                    .collect();
                prop_assert_eq!(Packed::forest(&sequences).0.tokens.len(), batch.fed_tokens);
            }
        }
    }
}
