//! Which sequences go through the model together.
//!
//! Sequences are laid end to end in one row, those of one lane with their common beginnings there once
//! ([`pl_model::Packed::forest`]). A batch holds at most a budget of tokens, which is what bounds memory, and
//! sequences with one prompt are kept in one batch where they fit, so that the prompt is fed once.

use pl_model::{Sequence, common, segments};

/// A sequence to be packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// Its tokens.
    pub tokens: &'a [u32],
    /// How many of them are its prompt.
    pub prompt: usize,
    /// Sequences of one lane (one adapter) stand side by side in a batch, and only they share beginnings.
    pub lane: usize,
}

/// Sequences that go through the model together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Their indices, by lane, then by tokens.
    pub members: Vec<usize>,
    /// Tokens that are fed for them.
    pub fed: usize,
}

/// Batches of at most `budget` fed tokens each; a sequence longer than the budget gets a batch to itself.
///
/// First fit, by lane and tokens: each family (sequences that begin with one another's prompts) goes to the first
/// batch that has room for what it adds; one that is larger than the budget is cut, and its prompt is fed once per
/// part. Equal inputs give equal batches.
pub fn pack(items: &[Item<'_>], budget: usize) -> Vec<Batch> {
    let sorted = Sorted::new(items);
    let mut batches: Vec<Batch> = Vec::new();
    for unit in sorted.units(budget) {
        let alone = sorted.fed(&unit);
        // Nothing shares more with a unit than its neighbours in the order do.
        let border = |at: usize| sorted.common.get(at).copied().unwrap_or(0);
        let most_shared = border(unit[0]).max(border(unit[unit.len() - 1] + 1));
        let fit = batches.iter_mut().find_map(|batch| {
            if batch.fed + (alone - most_shared.min(alone)) > budget {
                return None;
            }
            let mut joined = [batch.members.as_slice(), &unit].concat();
            joined.sort_unstable();
            let fed = sorted.fed(&joined);
            (fed <= budget).then_some((batch, joined, fed))
        });
        match fit {
            Some((batch, members, fed)) => *batch = Batch { members, fed },
            None => batches.push(Batch { members: unit, fed: alone }),
        }
    }
    for batch in &mut batches {
        batch.members = batch.members.iter().map(|&at| sorted.order[at]).collect();
    }
    batches
}

/// Items by lane and tokens. Below, an item is its place in this order.
struct Sorted {
    order: Vec<usize>,
    lengths: Vec<usize>,
    prompts: Vec<usize>,
    common: Vec<usize>,
}

impl Sorted {
    fn new(items: &[Item<'_>]) -> Self {
        let sequence = |i: usize| Sequence { tokens: items[i].tokens, adapter: Some(items[i].lane) };
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

    /// Families, cut to the budget.
    fn units(&self, budget: usize) -> Vec<Vec<usize>> {
        let mut units: Vec<Vec<usize>> = Vec::new();
        for at in 0..self.order.len() {
            let related = at > 0 && self.common[at] >= self.prompts[at].max(self.prompts[at - 1]);
            match units.last_mut().filter(|_| related) {
                Some(unit) => {
                    unit.push(at);
                    if self.fed(unit) > budget {
                        unit.pop();
                        units.push(vec![at]);
                    }
                }
                None => units.push(vec![at]),
            }
        }
        units
    }

    /// Tokens that are fed for some items (in order).
    fn fed(&self, items: &[usize]) -> usize {
        let lengths: Vec<usize> = items.iter().map(|&at| self.lengths[at]).collect();
        let between = |pair: &[usize]| self.common[pair[0] + 1..=pair[1]].iter().copied().min().unwrap_or(0);
        let common: Vec<usize> = std::iter::once(0).chain(items.windows(2).map(between)).collect();
        segments(&lengths, &common).iter().map(|segment| segment.tokens.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use pl_model::Packed;
    use proptest::prelude::*;

    use super::*;

    /// Tokens of a sequence that shares nothing with those of other numbers.
    fn text(number: u32, length: usize) -> Vec<u32> {
        (0..length as u32).map(|i| number * 1000 + i).collect()
    }

    fn batches(texts: &[Vec<u32>], prompt: usize, budget: usize) -> Vec<(Vec<usize>, usize)> {
        let items: Vec<Item<'_>> = texts.iter().map(|tokens| Item { tokens, prompt, lane: 0 }).collect();
        pack(&items, budget).into_iter().map(|batch| (batch.members, batch.fed)).collect()
    }

    fn apart(lengths: &[usize], budget: usize) -> Vec<(Vec<usize>, usize)> {
        let texts: Vec<Vec<u32>> =
            lengths.iter().enumerate().map(|(i, length)| text(i as u32, *length)).collect();
        batches(&texts, 1, budget)
    }

    #[test]
    fn first_fit() {
        assert_eq!(apart(&[6, 5, 4, 3, 2], 10), [(vec![0, 2], 10), (vec![1, 3, 4], 10)]);
        assert_eq!(apart(&[], 10), []);
    }

    #[test]
    fn a_sequence_over_the_budget_is_alone() {
        assert_eq!(apart(&[3, 20, 4], 10), [(vec![0, 2], 7), (vec![1], 20)]);
    }

    #[test]
    fn siblings_stay_together_and_feed_their_prompt_once() {
        // Two prompts of 40 tokens, four completions of 10 each, dealt alternately.
        let texts: Vec<Vec<u32>> = (0..8).map(|i| [text(i % 2, 40), text(10 + i, 10)].concat()).collect();
        assert_eq!(batches(&texts, 40, 80), [(vec![0, 2, 4, 6], 80), (vec![1, 3, 5, 7], 80)]);
        assert_eq!(batches(&texts, 40, 160), [(vec![0, 2, 4, 6, 1, 3, 5, 7], 160)]);
        // Too little room for all: the prompt is fed once per part.
        let parts = [(vec![0, 2], 60), (vec![4, 6], 60), (vec![1, 3], 60), (vec![5, 7], 60)];
        assert_eq!(batches(&texts, 40, 69), parts);
    }

    proptest! {
        #[test]
        fn every_sequence_once_within_the_budget_by_lane(
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
            let items: Vec<Item<'_>> = texts
                .iter()
                .zip(&parts)
                .map(|(tokens, &(_, prompt, _, lane))| Item { tokens, prompt, lane })
                .collect();
            let batches = pack(&items, budget);
            let mut seen: Vec<usize> = batches.iter().flat_map(|b| b.members.iter().copied()).collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..items.len()).collect::<Vec<_>>());
            for batch in &batches {
                prop_assert!(batch.fed <= budget || batch.members.len() == 1);
                let lanes: Vec<usize> = batch.members.iter().map(|&i| items[i].lane).collect();
                prop_assert!(lanes.is_sorted());
                // What is counted is what the model is fed.
                let sequences: Vec<Sequence<'_>> = batch
                    .members
                    .iter()
                    .map(|&i| Sequence { tokens: items[i].tokens, adapter: Some(items[i].lane) })
                    .collect();
                prop_assert_eq!(Packed::forest(&sequences).0.tokens.len(), batch.fed);
            }
        }
    }
}
