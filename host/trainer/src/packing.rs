//! Which sequences go through the model together.
//!
//! Sequences of different lengths are laid end to end in one row instead of being padded to the longest. A
//! batch holds at most a budget of tokens, which is what bounds memory.

/// A sequence to be packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item {
    /// Tokens.
    pub length: usize,
    /// Sequences of one lane (one adapter) stand side by side in a batch.
    pub lane: usize,
}

/// Batches of indices into `items`, each of at most `budget` tokens; a sequence longer than the budget gets a
/// batch to itself.
///
/// First fit in the order given: each sequence goes to the first batch that has room. Within a batch, indices
/// are sorted by lane, then by index. Equal inputs give equal batches.
pub fn pack(items: &[Item], budget: usize) -> Vec<Vec<usize>> {
    let mut batches: Vec<(usize, Vec<usize>)> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        match batches.iter_mut().find(|(used, _)| used.saturating_add(item.length) <= budget) {
            Some((used, batch)) => {
                *used += item.length;
                batch.push(index);
            }
            None => batches.push((item.length, vec![index])),
        }
    }
    batches
        .into_iter()
        .map(|(_, mut batch)| {
            batch.sort_by_key(|&index| (items[index].lane, index));
            batch
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn items(lengths: &[usize]) -> Vec<Item> {
        lengths.iter().map(|&length| Item { length, lane: 0 }).collect()
    }

    #[test]
    fn first_fit() {
        assert_eq!(pack(&items(&[6, 5, 4, 3, 2]), 10), [vec![0, 2], vec![1, 3, 4]]);
        assert_eq!(pack(&items(&[]), 10), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn a_sequence_over_the_budget_is_alone() {
        assert_eq!(pack(&items(&[3, 20, 4]), 10), [vec![0, 2], vec![1]]);
    }

    proptest! {
        #[test]
        fn every_sequence_once_within_the_budget_by_lane(
            lengths in prop::collection::vec((1usize..50, 0usize..4), 0..60),
            budget in 1usize..120,
        ) {
            let items: Vec<Item> =
                lengths.iter().map(|&(length, lane)| Item { length, lane }).collect();
            let batches = pack(&items, budget);
            let mut seen: Vec<usize> = batches.iter().flatten().copied().collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..items.len()).collect::<Vec<_>>());
            for batch in &batches {
                let tokens: usize = batch.iter().map(|&i| items[i].length).sum();
                prop_assert!(tokens <= budget || batch.len() == 1);
                prop_assert!(batch.windows(2).all(|w| items[w[0]].lane <= items[w[1]].lane));
            }
            // No two batches could have been one.
            let sizes: Vec<usize> =
                batches.iter().map(|b| b.iter().map(|&i| items[i].length).sum()).collect();
            for (i, a) in sizes.iter().enumerate() {
                for b in &sizes[i + 1..] {
                    prop_assert!(a + b > budget);
                }
            }
        }
    }
}
