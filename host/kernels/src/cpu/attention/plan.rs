//! Division of attention into tasks: parts of contexts, and rows that are computed together.

use std::ops::Range;

use super::{Heads, Query};

/// Number of tokens of a part. A task reads each key and value of a part once for its rows. The results of parts have a few
/// hundredths of the bytes of keys and values that are read for them, and a context of 8,192 tokens has 16 tasks for each key
/// head.
pub(super) const PART: usize = 512;
/// Number of queries (heads of rows) of a task. Their sums fit into the registers of AVX-512, and their scores of a part take
/// 24 KiB.
const QUERIES: usize = 12;
/// Rows that a task may have even if they have more than [`QUERIES`] queries: more than six query heads per key head.
const FEW_ROWS: usize = 2;
/// Smallest number of tasks for each thread. Rows are grouped only as far as each thread keeps this many tasks, so that threads
/// end at about the same time.
const TASKS: usize = 4;
/// Most f32s that the results of parts take at a time, unless the rows that a task may have need more: 8 MiB.
const MAX_RESULTS: usize = 1 << 21;

impl Heads {
    /// Returns the number of values of the result of a part for one head: the sum of its values weighted by
    /// `exp(score - largest)`, `[padded_dim]`, then the largest score and the sum of the weights, in a cache line.
    pub(super) fn result_len(self) -> usize {
        self.padded_dim() + 16
    }
}

/// One part of some rows, for the query heads of one key head.
pub(super) struct PartTask {
    /// Rows. The blocks of each are those of the longest as far as they go.
    pub(super) rows: Range<usize>,
    /// Index of the part.
    pub(super) part: usize,
    /// Index of the key head.
    pub(super) head: usize,
}

/// Consecutive rows whose results of parts are in memory together.
pub(super) struct Batch {
    /// Rows.
    pub(super) rows: Range<usize>,
    /// Tasks of all parts.
    pub(super) tasks: Vec<PartTask>,
    /// Rows with several parts, whose results are merged.
    pub(super) merged: Vec<usize>,
    /// Number of numbers of the results of parts.
    pub(super) results: usize,
    /// Offset of the results of each row.
    starts: Vec<usize>,
}

impl Batch {
    /// Plans as many rows from `first` on as there may be results for, and at least those that a task may have.
    pub(super) fn new(queries: &[Query<'_>], heads: Heads, first: usize, threads: usize) -> Self {
        let mut batch = Self {
            rows: first..first,
            tasks: Vec::new(),
            merged: Vec::new(),
            results: 0,
            starts: Vec::with_capacity(queries.len() - first),
        };
        // Rows that a task may have: a batch of fewer would load the keys and values that they share more often.
        let full = (QUERIES * heads.kv_heads / heads.heads).max(FEW_ROWS);
        // Parts of all rows, and of the longest.
        let (mut parts, mut most) = (0, 0);
        for query in &queries[first..] {
            let own = query.parts();
            let results = if own > 1 { own * heads.heads * heads.result_len() } else { 0 };
            if results > 0 && batch.results + results > MAX_RESULTS && batch.rows.len() >= full {
                break;
            }
            if own > 1 {
                batch.merged.push(batch.rows.end);
            }
            batch.starts.push(batch.results);
            batch.results += results;
            batch.rows.end += 1;
            parts += own;
            most = most.max(own);
        }
        let rows = (parts * heads.kv_heads / (TASKS * threads)).clamp(1, full);
        for part in 0..most {
            batch.add_part(queries, part, heads.kv_heads, rows);
        }
        batch
    }

    /// Adds the tasks of a part, of up to `limit` rows each. Tasks that read the same keys and values follow each other.
    fn add_part(&mut self, queries: &[Query<'_>], part: usize, kv_heads: usize, limit: usize) {
        let mut row = self.rows.start;
        while row < self.rows.end {
            let mut end = row + 1;
            if part < queries[row].parts() {
                let mut longest = queries[row];
                while end < self.rows.end && shares_blocks(longest, queries[end], part) {
                    if queries[end].length > longest.length {
                        longest = queries[end];
                    }
                    end += 1;
                }
                for head in 0..kv_heads {
                    for start in (row..end).step_by(limit) {
                        self.tasks.push(PartTask { rows: start..end.min(start + limit), part, head });
                    }
                }
            }
            row = end;
        }
    }

    /// Returns the offset of the result of a part of a row, which has `parts` of them, for a query head.
    #[inline(always)]
    pub(super) fn result_start(
        &self,
        heads: Heads,
        row: usize,
        parts: usize,
        head: usize,
        part: usize,
    ) -> usize {
        self.starts[row - self.rows.start] + (head * parts + part) * heads.result_len()
    }
}

/// Returns true if a row has the blocks of another in a part, as far as both go, and about as many: scores are computed
/// up to the end of the longest row.
fn shares_blocks(longest: Query<'_>, other: Query<'_>, part: usize) -> bool {
    if part >= other.parts() {
        return false;
    }
    let (a, b) = (longest.part_blocks(part), other.part_blocks(part));
    let common = a.len().min(b.len());
    a.len().abs_diff(b.len()) <= 1 && (a.as_ptr() == b.as_ptr() || a[..common] == b[..common])
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADS: Heads = Heads { heads: 6, kv_heads: 2, dim: 64 };

    /// Returns the rows of the tasks of a part for the first head.
    fn rows(batch: &Batch, part: usize) -> Vec<Range<usize>> {
        let tasks = batch.tasks.iter().filter(|task| task.part == part && task.head == 0);
        tasks.map(|task| task.rows.clone()).collect()
    }

    #[test]
    fn rows_with_the_same_blocks_are_computed_together() {
        let sequence: Vec<u32> = (0..70).collect();
        // It has the first part of the sequence, and tokens of its own.
        let sibling: Vec<u32> = (0..32).chain(100..140).collect();
        let stranger: Vec<u32> = (200..270).collect();
        let prompt = (508..518).map(|length| Query { blocks: &sequence, length });
        let others = [&sibling, &stranger].map(|blocks| Query { blocks, length: 600 });
        let queries: Vec<Query<'_>> = prompt.chain(others).collect();
        let batch = Batch::new(&queries, HEADS, 0, 1);
        assert_eq!(batch.rows, 0..12);
        assert_eq!(rows(&batch, 0), [0..4, 4..8, 8..11, 11..12]);
        // The first rows have one part.
        assert_eq!(rows(&batch, 1), [5..9, 9..10, 10..11, 11..12]);
        assert_eq!(batch.merged, [5, 6, 7, 8, 9, 10, 11]);
        let both = batch.tasks.iter().filter(|task| task.head == 1).count();
        assert_eq!((both, batch.tasks.len()), (8, 16));
    }

    #[test]
    fn rows_are_computed_apart_if_threads_would_have_no_task() {
        let sequence: Vec<u32> = (0..10).collect();
        let queries: Vec<Query<'_>> = (50..58).map(|length| Query { blocks: &sequence, length }).collect();
        assert_eq!(rows(&Batch::new(&queries, HEADS, 0, 1), 0), [0..4, 4..8]);
        assert_eq!(rows(&Batch::new(&queries, HEADS, 0, 4), 0).len(), 8);
        assert_eq!(Batch::new(&queries, HEADS, 0, 1).results, 0);
    }

    #[test]
    fn rows_of_very_different_lengths_are_computed_apart() {
        let sequence: Vec<u32> = (0..32).collect();
        let queries = [10, 500, 501, 502].map(|length| Query { blocks: &sequence, length });
        assert_eq!(rows(&Batch::new(&queries, HEADS, 0, 1), 0), [0..1, 1..3, 3..4]);
    }

    #[test]
    fn results_of_parts_have_a_limit() {
        let sequence = vec![0; 64 * PART];
        let row = |parts: usize| Query { blocks: &sequence, length: parts * PART };
        let heads = Heads { heads: 64, kv_heads: 8, dim: 128 };
        let parts = MAX_RESULTS / (heads.heads * heads.result_len());
        let queries = [parts - 2, 2, 1, 2, 2 * parts, 2, 1].map(row);
        let first = Batch::new(&queries, heads, 0, 1);
        assert_eq!(first.rows, 0..3);
        // Two rows, as many as a task may have, have more than the limit.
        assert_eq!(Batch::new(&queries, heads, 3, 1).rows, 3..5);
        assert_eq!(Batch::new(&queries, heads, 5, 1).rows, 5..7);
        // One row has more than the limit, after two rows that have no results of parts.
        assert_eq!(Batch::new(&[1, 1, 2 * parts].map(row), heads, 0, 1).rows, 0..2);
        // Results of a batch do not overlap.
        let end_of_first_row = first.result_start(heads, 0, parts - 2, 63, parts - 3) + heads.result_len();
        assert_eq!(first.result_start(heads, 1, 2, 0, 0), end_of_first_row);
        assert_eq!(first.result_start(heads, 1, 2, 63, 1) + heads.result_len(), first.results);
    }

    #[test]
    fn rows_that_are_computed_together_are_in_one_batch() {
        let sequence = vec![0; 64 * PART];
        // A task may have four rows, each of which has all of the results that the limit allows.
        let heads = Heads { heads: 24, kv_heads: 8, dim: 128 };
        let length = MAX_RESULTS / (heads.heads * heads.result_len()) * PART;
        let queries = [Query { blocks: &sequence, length }; 6];
        let batch = Batch::new(&queries, heads, 0, 1);
        assert_eq!((batch.rows.clone(), rows(&batch, 0).first()), (0..4, Some(&(0..4))));
        assert_eq!(Batch::new(&queries, heads, 4, 1).rows, 4..6);
    }
}
