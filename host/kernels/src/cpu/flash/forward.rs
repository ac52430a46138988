//! The forward pass of a block of queries.

use super::multiply::{Strided, multiply, transpose};
use super::{FlashAttention, FlashSequence, KEYS, QUERIES};
use crate::cpu::attention::Heads;
use crate::cpu::simd::{Kernel, Simd};
use crate::cpu::thread_pool::DisjointSlice;

/// A block of queries of the heads that share a head of keys.
pub(super) struct ForwardKernel<'a> {
    pub all: &'a FlashAttention<'a>,
    pub sequence: &'a FlashSequence,
    /// First query in the sequence.
    pub first: usize,
    pub kv_head: usize,
    /// Number of queries of all sequences.
    pub count: usize,
    pub out: DisjointSlice<'a, f32>,
    pub logsumexp: DisjointSlice<'a, f32>,
}

impl Kernel for ForwardKernel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { all, sequence, first, kv_head, count, out, logsumexp } = self;
        let Heads { heads, kv_heads, dim } = all.heads;
        let group = heads / kv_heads;
        let queries = QUERIES.min(sequence.queries.len() - first);
        let seen = all.seen(sequence, first + queries);
        let scale = all.scale();
        let mut transposed = vec![0f32; dim * KEYS];
        let mut scores = vec![0f32; QUERIES * KEYS];
        let mut sums = vec![0f32; group * queries * dim];
        // Largest score and sum of each row so far.
        let mut largest = vec![f32::NEG_INFINITY; group * queries];
        let mut totals = vec![0f32; group * queries];
        for key in (0..seen).step_by(KEYS) {
            let keys = KEYS.min(seen - key);
            let row = (sequence.keys.start + key) * kv_heads + kv_head;
            // SAFETY: rows of the sequence, which are within the keys, values and queries.
            unsafe {
                let values = Strided::new(all.v.as_ptr().add(row * dim), kv_heads * dim, 1);
                transpose(all.k.as_ptr().add(row * dim), kv_heads * dim, keys, dim, &mut transposed);
                for member in 0..group {
                    let query = (sequence.queries.start + first) * heads + kv_head * group + member;
                    let q = Strided::new(all.q.as_ptr().add(query * dim), heads * dim, 1);
                    let k = Strided::new(transposed.as_ptr(), KEYS, 1);
                    multiply::<S>([queries, dim, KEYS], q, k, scores.as_mut_ptr(), KEYS, false);
                    let own = member * queries..(member + 1) * queries;
                    let sums = &mut sums[member * queries * dim..][..queries * dim];
                    let rows = largest[own.clone()].iter_mut().zip(&mut totals[own]);
                    for (row, (largest, total)) in rows.enumerate() {
                        let valid =
                            if all.causal { (first + row + 1).saturating_sub(key).min(keys) } else { keys };
                        let scores = &mut scores[row * KEYS..][..KEYS];
                        let factor = softmax_tile::<S>(scores, valid, scale, largest, total);
                        scale_row::<S>(&mut sums[row * dim..][..dim], factor);
                    }
                    let p = Strided::new(scores.as_ptr(), KEYS, 1);
                    multiply::<S>([queries, keys, dim], p, values, sums.as_mut_ptr(), dim, true);
                }
            }
        }
        for member in 0..group {
            let head = kv_head * group + member;
            for row in 0..queries {
                let query = sequence.queries.start + first + row;
                let index = member * queries + row;
                // SAFETY: only this task has these queries of this head.
                let (out, logsumexp) = unsafe {
                    (out.part((query * heads + head) * dim, dim), logsumexp.part(head * count + query, 1))
                };
                let inverse = if totals[index] > 0.0 { 1.0 / totals[index] } else { 0.0 };
                for (out, sum) in out.iter_mut().zip(&sums[index * dim..][..dim]) {
                    *out = sum * inverse;
                }
                logsumexp[0] = largest[index] + totals[index].ln();
            }
        }
    }
}

/// Replaces the first `valid` products of a row by their exponentials relative to the largest score so far, and the others by 0.
/// Returns the factor of earlier sums.
#[inline(always)]
unsafe fn softmax_tile<S: Simd>(
    row: &mut [f32],
    valid: usize,
    scale: f32,
    largest: &mut f32,
    total: &mut f32,
) -> f32 {
    row[valid..].fill(f32::NEG_INFINITY);
    // SAFETY: rows have whole vectors.
    unsafe {
        let scale = S::splat(scale);
        let mut most = S::splat(f32::NEG_INFINITY);
        for at in (0..row.len()).step_by(S::LANES) {
            let s = S::mul(S::load(row.as_ptr().add(at)), scale);
            S::store(row.as_mut_ptr().add(at), s);
            most = S::max(s, most);
        }
        let new = S::largest(most).max(*largest);
        if new == f32::NEG_INFINITY {
            row.fill(0.0);
            return 1.0;
        }
        let offset = S::splat(new);
        let mut sum = S::splat(0.0);
        for at in (0..valid.next_multiple_of(S::LANES)).step_by(S::LANES) {
            let p = S::exp(S::sub(S::load(row.as_ptr().add(at)), offset));
            S::store(row.as_mut_ptr().add(at), p);
            sum = S::add(sum, p);
        }
        // The exponentials of minus infinity are some 1e-38.
        row[valid..].fill(0.0);
        let factor = if *largest == f32::NEG_INFINITY { 0.0 } else { (*largest - new).exp() };
        *total = *total * factor + S::sum(sum);
        *largest = new;
        factor
    }
}

/// Multiplies a row, which has whole vectors.
#[inline(always)]
unsafe fn scale_row<S: Simd>(row: &mut [f32], factor: f32) {
    if factor == 1.0 {
        return;
    }
    for at in (0..row.len()).step_by(S::LANES) {
        // SAFETY: within the row.
        unsafe {
            let address = row.as_mut_ptr().add(at);
            S::store(address, S::mul(S::load(address), S::splat(factor)));
        }
    }
}
