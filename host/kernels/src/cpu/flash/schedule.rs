//! The order of the backward pass's tasks.
//!
//! A task adds to the gradients of its queries, keys and values, so tasks with the same rows of a head must not run at the same
//! time. A sequence with much of the pass's work is divided into n ranges of queries and n of keys, and the i-th queries meet the
//! j-th keys in round `(i + j) mod n`. No two tasks of a round share rows, no partial sums need memory of their own, and a
//! causal sequence has about the same work in each round.
//!
//! All of this follows from the lengths and the heads, never from the number of threads, on which a gradient's bits would depend.

use std::cmp::Reverse;
use std::ops::Range;

use super::{FlashSequence, KEYS, QUERIES};

/// A sequence is divided if its work for one head of keys is more than the whole pass's divided by this number.
const SHARE: usize = 16;
/// Least number of queries and keys of a range: transposing a tile of keys must take little time beside its products.
const MIN_LENGTH: usize = 128;
/// Largest number of ranges. A round of a causal sequence has about half as many tasks for each head of keys.
const MAX_RANGES: usize = 32;

/// Ranges of a sequence, for a head of keys and the heads of queries on it.
#[derive(Debug)]
pub(super) struct Task {
    /// Index of the sequence.
    pub sequence: usize,
    /// Head of keys.
    pub kv_head: usize,
    /// Queries, counted from the sequence's first.
    pub queries: Range<usize>,
    /// Keys, counted from the sequence's first.
    pub keys: Range<usize>,
    /// Number of pairs of a query and a tile of keys.
    cost: usize,
}

/// Returns the tasks in rounds. Tasks of a round may run at the same time; rounds run one after another. The longest tasks of a
/// round come first, so that threads end together.
pub(super) fn rounds(sequences: &[FlashSequence], kv_heads: usize, causal: bool) -> Vec<Vec<Task>> {
    let whole =
        |sequence: &FlashSequence| cost(&(0..sequence.queries.len()), &(0..sequence.keys.len()), causal);
    let work = kv_heads * sequences.iter().map(whole).sum::<usize>();
    let mut rounds: Vec<Vec<Task>> = Vec::new();
    for (index, sequence) in sequences.iter().enumerate() {
        let (queries, keys) = (sequence.queries.len(), sequence.keys.len());
        let count = if whole(sequence) * SHARE > work {
            (queries.min(keys) / MIN_LENGTH).clamp(1, MAX_RANGES)
        } else {
            1
        };
        if rounds.len() < count {
            rounds.resize_with(count, Vec::new);
        }
        for (i, j) in (0..count).flat_map(|i| (0..count).map(move |j| (i, j))) {
            let (queries, keys) = (range(queries, i, count, QUERIES), range(keys, j, count, KEYS));
            let cost = cost(&queries, &keys, causal);
            // Earlier queries do not attend to later keys.
            if cost > 0 {
                rounds[(i + j) % count].extend((0..kv_heads).map(|kv_head| Task {
                    sequence: index,
                    kv_head,
                    queries: queries.clone(),
                    keys: keys.clone(),
                    cost,
                }));
            }
        }
    }
    for round in &mut rounds {
        round.sort_by_key(|task| Reverse(task.cost));
    }
    rounds
}

/// Returns the first of a task's queries that a tile of keys is multiplied with.
#[inline(always)]
pub(super) fn first_query(queries: &Range<usize>, key: usize, causal: bool) -> usize {
    if causal { queries.start.max(key / QUERIES * QUERIES) } else { queries.start }
}

/// Returns the number of pairs of a query and a tile of keys.
fn cost(queries: &Range<usize>, keys: &Range<usize>, causal: bool) -> usize {
    let tiles = keys.clone().step_by(KEYS);
    tiles.map(|key| queries.end.saturating_sub(first_query(queries, key, causal))).sum()
}

/// Returns the `i`-th of `count` ranges of whole tiles, which are equally long up to a tile.
fn range(length: usize, i: usize, count: usize, tile: usize) -> Range<usize> {
    let end = |i: usize| (length.div_ceil(tile) * i / count * tile).min(length);
    end(i)..end(i + 1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn sequences(lengths: &[(usize, usize)]) -> Vec<FlashSequence> {
        let (mut query, mut key) = (0, 0);
        let next = |start: &mut usize, length: usize| {
            *start += length;
            *start - length..*start
        };
        lengths
            .iter()
            .map(|&(n, m)| FlashSequence { queries: next(&mut query, n), keys: next(&mut key, m) })
            .collect()
    }

    #[test]
    fn tasks_cover_all_scores_once_and_those_of_a_round_share_no_rows() {
        let cases: [&[(usize, usize)]; 6] = [
            &[(1000, 1000)],
            &[(300, 1000)],
            &[(1000, 300)],
            &[(700, 700), (0, 50), (50, 0), (3, 70)],
            &[(260, 260); 20],
            &[],
        ];
        for (lengths, causal) in cases.into_iter().flat_map(|lengths| [(lengths, true), (lengths, false)]) {
            let sequences = sequences(lengths);
            let mut scores = HashSet::new();
            for round in rounds(&sequences, 2, causal) {
                let mut rows = HashSet::new();
                for task in round {
                    assert!(
                        task.queries.start.is_multiple_of(QUERIES) && task.keys.start.is_multiple_of(KEYS)
                    );
                    let owner = (task.sequence, task.kv_head);
                    assert!(task.queries.clone().all(|row| rows.insert((owner, "query", row))), "{task:?}");
                    assert!(task.keys.clone().all(|row| rows.insert((owner, "key", row))), "{task:?}");
                    for query in task.queries.clone() {
                        let end = if causal { task.keys.end.min(query + 1) } else { task.keys.end };
                        let mut keys = task.keys.start..end;
                        assert!(keys.all(|key| scores.insert((owner, query, key))), "{task:?}");
                    }
                }
            }
            let seen = |(n, m): &(usize, usize)| {
                if causal { (0..*n).map(|i| (*m).min(i + 1)).sum::<usize>() } else { n * m }
            };
            assert_eq!(scores.len(), 2 * lengths.iter().map(seen).sum::<usize>(), "{lengths:?}, {causal}");
        }
    }

    #[test]
    fn a_long_sequence_is_divided_into_rounds_of_similar_work() {
        for (length, count) in [(8192, 32), (2048, 16)] {
            let rounds = rounds(&sequences(&[(length, length)]), 3, true);
            assert_eq!(rounds.len(), count);
            let work = |round: &Vec<Task>| round.iter().map(|task| task.cost).sum::<usize>();
            let least = rounds.iter().map(work).min().unwrap();
            for round in &rounds {
                assert!(round.len() >= 16 && work(round) * 10 <= least * 11, "{length}: {round:?}");
                assert!(round.is_sorted_by_key(|task| Reverse(task.cost)), "{round:?}");
            }
        }
    }

    #[test]
    fn sequences_with_a_small_share_of_the_work_are_whole() {
        let whole = |lengths: &[(usize, usize)], kv_heads: usize| {
            let rounds = rounds(&sequences(lengths), kv_heads, true);
            let whole = |task: &Task| task.queries == (0..lengths[task.sequence].0);
            let all = rounds.into_iter().flatten().filter(whole);
            all.map(|task| (task.sequence, task.kv_head)).collect::<Vec<_>>()
        };
        assert_eq!(whole(&[(512, 512); 16], 1), (0..16).map(|i| (i, 0)).collect::<Vec<_>>());
        assert!(whole(&[(512, 512); 15], 1).is_empty());
        assert_eq!(whole(&[(512, 512)], 16).len(), 16);
        // The longer one first.
        assert_eq!(whole(&[(200, 200), (8192, 8192), (300, 300)], 1), [(2, 0), (0, 0)]);
    }
}
