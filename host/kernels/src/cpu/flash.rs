//! Attention of training over whole sequences, forward and backward, without the scores of more than a tile in memory
//! (FlashAttention-2, Dao 2023, arXiv:2307.08691).
//!
//! With the scores `s = q k / sqrt(D)`, the forward pass returns `l = log sum exp s` and `o = sum exp(s - l) v`. The backward
//! pass takes the `l` and `o` of all keys, of which its own keys may be a part:
//!
//! ```text
//! p = exp(s - l)    dv = sum p do    ds = p (do v - do o)    dk = sum ds q / sqrt(D)    dq = sum ds k / sqrt(D)
//! ```
//!
//! A task of the forward pass is a block of queries of all heads that share keys. One of the backward pass is a head of keys and
//! a sequence, or ranges of a long one's queries and keys; no two tasks that run at the same time write the same row of a head.
//! Sums run in an order that does not depend on threads.

mod backward;
mod forward;
mod multiply;
mod schedule;

use std::ops::Range;

use super::Workers;
use super::attention::Heads;
use super::simd::SimdLevel;
use super::thread_pool::DisjointSlice;
use backward::BackwardKernel;
use forward::ForwardKernel;

/// Number of queries of a block.
const QUERIES: usize = 64;
/// Number of keys of a tile.
const KEYS: usize = 64;

/// Rows of the queries and of the keys of a sequence.
#[derive(Debug, Clone)]
pub struct FlashSequence {
    /// Rows of the queries, the output and their gradients.
    pub queries: Range<usize>,
    /// Rows of the keys, the values and their gradients.
    pub keys: Range<usize>,
}

/// Attention of several sequences of queries, each to a sequence of keys.
pub struct FlashAttention<'a> {
    /// Numbers of heads and their width.
    pub heads: Heads,
    /// True if the i-th query of a sequence attends to its first i keys alone.
    pub causal: bool,
    /// The sequences. Their rows do not overlap.
    pub sequences: &'a [FlashSequence],
    /// Queries `[n, heads, D]`.
    pub q: &'a [f32],
    /// Keys `[m, kv_heads, D]`.
    pub k: &'a [f32],
    /// Values `[m, kv_heads, D]`.
    pub v: &'a [f32],
}

/// Results of the forward pass over all keys, and the gradient of the output.
pub struct FlashResults<'a> {
    /// Output `[n, heads, D]`.
    pub out: &'a [f32],
    /// Gradient of the output `[n, heads, D]`.
    pub gradient: &'a [f32],
    /// Logarithms of the sums of exponentiated scores `[heads, n]`.
    pub logsumexp: &'a [f32],
}

/// Gradients of queries, keys and values, in their shapes.
pub struct FlashGradients<'a> {
    /// Gradients of the queries.
    pub q: &'a mut [f32],
    /// Gradients of the keys.
    pub k: &'a mut [f32],
    /// Gradients of the values.
    pub v: &'a mut [f32],
}

impl FlashAttention<'_> {
    /// Returns true if there is a kernel for heads of this width.
    pub fn supports(width: usize) -> bool {
        width > 0 && width.is_multiple_of(2 * SimdLevel::detect().lanes())
    }

    /// Computes the output `[n, heads, D]` and the logarithms of the sums of exponentiated scores `[heads, n]`. Rows of no sequence
    /// stay as they are.
    ///
    /// # Panics
    /// If sizes do not match, or the heads' width is not [supported](Self::supports).
    pub fn forward(&self, workers: Workers<'_>, out: &mut [f32], logsumexp: &mut [f32]) {
        let count = self.check();
        assert!(out.len() == self.q.len() && logsumexp.len() == count * self.heads.heads, "sizes of results");
        let blocks = |sequence: &FlashSequence| sequence.queries.len().div_ceil(QUERIES);
        let mut tasks = Vec::new();
        for (index, sequence) in self.sequences.iter().enumerate() {
            let all = (0..blocks(sequence))
                .flat_map(|block| (0..self.heads.kv_heads).map(move |head| (block, head)));
            // The longest ones first, so that threads end together.
            tasks.extend(all.rev().map(|(block, head)| (index, block * QUERIES, head)));
        }
        let (out, logsumexp) = (DisjointSlice::new(out), DisjointSlice::new(logsumexp));
        (workers.parallel_for)(tasks.len(), &|task| {
            let (sequence, first, kv_head) = tasks[task];
            let kernel = ForwardKernel {
                all: self,
                sequence: &self.sequences[sequence],
                first,
                kv_head,
                count,
                out,
                logsumexp,
            };
            // SAFETY: the level was detected; sizes were checked; no two tasks write the same row of a head.
            unsafe { workers.level.run(kernel) };
        });
    }

    /// Adds the gradients of queries, keys and values to `gradients`.
    ///
    /// # Panics
    /// As [`forward`](Self::forward).
    pub fn backward(&self, workers: Workers<'_>, results: &FlashResults<'_>, gradients: FlashGradients<'_>) {
        let count = self.check();
        let FlashGradients { q, k, v } = gradients;
        let like_queries = [results.out.len(), results.gradient.len(), q.len()];
        assert!(
            like_queries.iter().all(|len| *len == self.q.len()),
            "sizes of results and gradients of queries"
        );
        assert!([k.len(), v.len()].iter().all(|len| *len == self.k.len()), "sizes of gradients of keys");
        assert_eq!(results.logsumexp.len(), count * self.heads.heads, "logarithms of sums");
        let (dq, dk, dv) = (DisjointSlice::new(q), DisjointSlice::new(k), DisjointSlice::new(v));
        for round in schedule::rounds(self.sequences, self.heads.kv_heads, self.causal) {
            (workers.parallel_for)(round.len(), &|index| {
                let task = &round[index];
                let kernel = BackwardKernel { all: self, task, count, results, gradients: [dq, dk, dv] };
                // SAFETY: the level was detected; sizes were checked; no two tasks of a round write the same row of a head.
                unsafe { workers.level.run(kernel) };
            });
        }
    }

    /// Checks the inputs' sizes. Returns the number of queries.
    fn check(&self) -> usize {
        let Heads { heads, kv_heads, dim } = self.heads;
        assert!(Self::supports(dim), "heads of width {dim}");
        assert!(kv_heads > 0 && heads.is_multiple_of(kv_heads), "{heads} heads on {kv_heads}");
        let (count, keys) = (self.q.len() / (heads * dim), self.k.len() / (kv_heads * dim));
        assert!(self.q.len() == count * heads * dim && self.k.len() == keys * kv_heads * dim, "whole rows");
        assert_eq!(self.k.len(), self.v.len(), "as many values as keys");
        let mut ends = [0, 0];
        for FlashSequence { queries, keys: own } in self.sequences {
            assert!(ends[0] <= queries.start && ends[1] <= own.start, "sequences in order");
            assert!(queries.start <= queries.end && own.start <= own.end, "ranges of a sequence");
            ends = [queries.end, own.end];
        }
        assert!(ends[0] <= count && ends[1] <= keys, "rows of the sequences");
        count
    }

    /// Number of keys that the queries up to `query` (exclusive) of a sequence attend to.
    fn seen(&self, sequence: &FlashSequence, query: usize) -> usize {
        if self.causal { query.min(sequence.keys.len()) } else { sequence.keys.len() }
    }

    fn scale(&self) -> f32 {
        1.0 / (self.heads.dim as f32).sqrt()
    }
}
