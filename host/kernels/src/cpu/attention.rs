//! Attention of single queries over paged keys and values.
//!
//! A sequence's keys and values are in blocks of [`BLOCK`] tokens anywhere in memory, so that sequences share
//! the blocks of a common prefix (Kwon et al. 2023, PagedAttention). Keys are stored transposed: a vector
//! holds one number of each of the block's tokens, so that one instruction adds to the scores of many tokens.
//!
//! A query over more than [`PART`] tokens is computed in parts of that many tokens, by several threads, and the results of
//! its parts are merged in their order (Dao et al. 2023, Flash-Decoding). Rows with the same blocks in a part are computed
//! together, so that each key and value is loaded once for all of them. The order of each sum follows from the row's number of
//! tokens alone, whichever rows are computed with it: a row's bits depend on its query and its context alone.

mod cache;
mod merge;
mod part;
mod plan;

use super::Cpu;
use super::thread_pool::DisjointSlice;
use merge::MergeKernel;
use part::PartKernel;
use plan::{Batch, PART};

pub use cache::{BLOCK, Heads, KvCache};

/// One query: a token and the tokens that it attends to.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    /// Blocks of its sequence.
    pub blocks: &'a [u32],
    /// Number of tokens that it attends to, including itself as the last.
    pub length: usize,
}

impl<'a> Query<'a> {
    /// Returns the number of parts of its tokens.
    fn parts(self) -> usize {
        self.length.div_ceil(PART)
    }

    /// Returns the number of tokens of a part.
    fn part_length(self, part: usize) -> usize {
        self.length.min((part + 1) * PART) - part * PART
    }

    /// Returns the blocks of a part that have tokens.
    fn part_blocks(self, part: usize) -> &'a [u32] {
        &self.blocks[part * (PART / BLOCK)..][..self.part_length(part).div_ceil(BLOCK)]
    }
}

/// Attention of many queries in one layer.
pub struct Attention<'a> {
    /// Keys and values, including those of the queries' tokens.
    pub cache: &'a KvCache,
    /// Index of the layer.
    pub layer: usize,
    /// Rotated queries: head `h` of row `r` begins at `r * stride + h * dim`.
    pub q: &'a [f32],
    /// Distance between rows of `q`.
    pub stride: usize,
    /// One query per row. Attention is fastest if the rows of a sequence are adjacent.
    pub queries: &'a [Query<'a>],
}

impl Cpu {
    /// Computes softmax attention with scale `1 / sqrt(dim)`; `out` is `[rows, heads dim]`.
    ///
    /// # Panics
    /// If shapes do not match, or if a query names a block that was never written.
    pub fn attend(&self, attention: &Attention<'_>, out: &mut [f32]) {
        let heads = attention.cache.heads;
        let rows = attention.queries.len();
        let width = heads.heads * heads.dim;
        assert!(out.len() >= rows * width, "an output of {rows} rows of {width}");
        assert!(
            attention.stride >= width
                && attention.q.len() >= rows.saturating_sub(1) * attention.stride + width.min(rows * width),
            "queries of {rows} rows"
        );
        for query in attention.queries {
            assert!(query.length > 0 && query.length <= query.blocks.len() * BLOCK, "a query's length");
        }
        let out = DisjointSlice::new(out);
        let mut first = 0;
        while first < rows {
            let batch = Batch::new(attention.queries, heads, first, self.threads());
            self.attend_batch(attention, &batch, out);
            first = batch.rows.end;
        }
    }

    /// Computes the rows of a batch, which nothing else writes.
    fn attend_batch(&self, attention: &Attention<'_>, batch: &Batch, out: DisjointSlice<'_, f32>) {
        let heads = attention.cache.heads;
        let group = heads.heads / heads.kv_heads;
        let (level, scratch) = (self.level, self.scratch.as_slice());
        // SAFETY: `Cpu` isn't Sync, so that this thread alone uses these numbers, for one batch at a time.
        let results = DisjointSlice::new(unsafe { self.part_results.get(batch.results) });
        self.pool.for_each(batch.tasks.len(), |thread, task| {
            let task = &batch.tasks[task];
            let kernel = PartKernel { attention, batch, task, out, results, scratch: &scratch[thread] };
            // SAFETY: the level was detected; blocks and lengths were checked.
            unsafe { level.run(kernel) };
        });
        let merged = &batch.merged;
        self.pool.for_each(merged.len() * heads.kv_heads, |thread, task| {
            let (row, head) = (merged[task / heads.kv_heads], task % heads.kv_heads * group);
            let parts = attention.queries[row].parts();
            let start = batch.result_start(heads, row, parts, head, 0);
            let kernel = MergeKernel {
                heads,
                parts,
                // SAFETY: the parts have been computed; no two tasks share a row and a head.
                results: unsafe { results.part(start, group * parts * heads.result_len()) },
                // SAFETY: no two tasks share a row and a head.
                out: unsafe { out.part((row * heads.heads + head) * heads.dim, group * heads.dim) },
                scratch: &scratch[thread],
            };
            // SAFETY: the level was detected; results and outputs have these shapes.
            unsafe { level.run(kernel) };
        });
    }
}
