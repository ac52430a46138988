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
//! A task of the forward pass is a block of queries of all heads that share keys; one of the backward pass is a sequence and a
//! head of keys, whose gradients it alone writes. Sums run in an order that does not depend on threads.

use std::ops::Range;

use super::Workers;
use super::attention::Heads;
use super::simd::{Kernel, Simd, SimdLevel};
use super::thread_pool::DisjointSlice;

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
            // SAFETY: the level was detected; sizes were checked; tasks write other rows or heads.
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
        (workers.parallel_for)(self.sequences.len() * self.heads.kv_heads, &|task| {
            let (sequence, kv_head) = (task / self.heads.kv_heads, task % self.heads.kv_heads);
            let sequence = &self.sequences[sequence];
            let kernel =
                BackwardKernel { all: self, sequence, kv_head, count, results, gradients: [dq, dk, dv] };
            // SAFETY: the level was detected; sizes were checked; tasks write other rows or heads.
            unsafe { workers.level.run(kernel) };
        });
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

/// A matrix in memory: element `(i, j)` is at `start + i rows + j columns`.
#[derive(Clone, Copy)]
struct Strided {
    start: *const f32,
    rows: usize,
    columns: usize,
}

impl Strided {
    #[inline(always)]
    fn new(start: *const f32, rows: usize, columns: usize) -> Self {
        Self { start, rows, columns }
    }
}

/// Computes `c = a b`, or adds it to `c`, for `a` of `rows` x `inner` elements, `b` of `inner` x `columns` elements whose columns
/// are contiguous, and `c` with rows at a distance of `stride`. `columns` is a multiple of two vectors.
#[inline(always)]
unsafe fn multiply<S: Simd>(
    [rows, inner, columns]: [usize; 3],
    a: Strided,
    b: Strided,
    c: *mut f32,
    stride: usize,
    add: bool,
) {
    // Rows whose sums are in registers: of AVX-512's 32, and of the 16 of others.
    let most = if S::LANES == 16 { 8 } else { 6 };
    for column in (0..columns).step_by(2 * S::LANES) {
        let mut row = 0;
        while row < rows {
            let count = most.min(rows - row);
            // SAFETY: the caller's matrices have these elements.
            unsafe {
                let a = Strided { start: a.start.add(row * a.rows), ..a };
                let b = Strided { start: b.start.add(column), ..b };
                let c = c.add(row * stride + column);
                match count {
                    8 => tile::<S, 8>(inner, a, b, c, stride, add),
                    7 => tile::<S, 7>(inner, a, b, c, stride, add),
                    6 => tile::<S, 6>(inner, a, b, c, stride, add),
                    5 => tile::<S, 5>(inner, a, b, c, stride, add),
                    4 => tile::<S, 4>(inner, a, b, c, stride, add),
                    3 => tile::<S, 3>(inner, a, b, c, stride, add),
                    2 => tile::<S, 2>(inner, a, b, c, stride, add),
                    _ => tile::<S, 1>(inner, a, b, c, stride, add),
                }
            }
            row += count;
        }
    }
}

/// Computes M rows and two vectors of columns of a product.
#[inline(always)]
unsafe fn tile<S: Simd, const M: usize>(
    inner: usize,
    a: Strided,
    b: Strided,
    c: *mut f32,
    stride: usize,
    add: bool,
) {
    // SAFETY: the caller's pointers are valid for M rows, two vectors and `inner` elements.
    unsafe {
        let mut sums = [[S::splat(0.0); 2]; M];
        if add {
            for (row, sums) in sums.iter_mut().enumerate() {
                *sums = [S::load(c.add(row * stride)), S::load(c.add(row * stride + S::LANES))];
            }
        }
        for i in 0..inner {
            let low = S::load(b.start.add(i * b.rows));
            let high = S::load(b.start.add(i * b.rows + S::LANES));
            for (row, sums) in sums.iter_mut().enumerate() {
                let x = S::splat(*a.start.add(row * a.rows + i * a.columns));
                sums[0] = S::fma(x, low, sums[0]);
                sums[1] = S::fma(x, high, sums[1]);
            }
        }
        for (row, sums) in sums.iter().enumerate() {
            S::store(c.add(row * stride), sums[0]);
            S::store(c.add(row * stride + S::LANES), sums[1]);
        }
    }
}

/// Writes the transpose `[dim, KEYS]` of `keys` rows; the other columns are zero.
#[inline(always)]
unsafe fn transpose(from: *const f32, stride: usize, keys: usize, dim: usize, to: &mut [f32]) {
    if keys < KEYS {
        to.fill(0.0);
    }
    for start in (0..dim).step_by(16) {
        for key in 0..keys {
            for i in start..dim.min(start + 16) {
                // SAFETY: the caller's rows have `dim` numbers.
                to[i * KEYS + key] = unsafe { *from.add(key * stride + i) };
            }
        }
    }
}

/// A block of queries of the heads that share a head of keys.
struct ForwardKernel<'a> {
    all: &'a FlashAttention<'a>,
    sequence: &'a FlashSequence,
    /// First query in the sequence.
    first: usize,
    kv_head: usize,
    /// Number of queries of all sequences.
    count: usize,
    out: DisjointSlice<'a, f32>,
    logsumexp: DisjointSlice<'a, f32>,
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

/// The gradients of a sequence for a head of keys and the heads of queries on it.
struct BackwardKernel<'a> {
    all: &'a FlashAttention<'a>,
    sequence: &'a FlashSequence,
    kv_head: usize,
    /// Number of queries of all sequences.
    count: usize,
    results: &'a FlashResults<'a>,
    /// Sums for the gradients of queries, keys and values.
    gradients: [DisjointSlice<'a, f32>; 3],
}

impl Kernel for BackwardKernel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { all, sequence, kv_head, count, results, gradients: [dq, dk, dv] } = self;
        let Heads { heads, kv_heads, dim } = all.heads;
        let group = heads / kv_heads;
        let (total, scale) = (sequence.queries.len(), all.scale());
        let mut transposed_keys = vec![0f32; dim * KEYS];
        let mut transposed_values = vec![0f32; dim * KEYS];
        let (mut p, mut ds) = (vec![0f32; QUERIES * KEYS], vec![0f32; QUERIES * KEYS]);
        let (mut key_sums, mut value_sums) = (vec![0f32; KEYS * dim], vec![0f32; KEYS * dim]);
        // Scalar products of the output and its gradient, for each query.
        let mut means = vec![0f32; group * total];
        for (index, mean) in means.iter_mut().enumerate() {
            let (member, query) = (index / total, sequence.queries.start + index % total);
            let row = (query * heads + kv_head * group + member) * dim;
            let (out, gradient) = (&results.out[row..][..dim], &results.gradient[row..][..dim]);
            // SAFETY: rows of whole vectors.
            *mean = unsafe { dot::<S>(out, gradient) };
        }
        for key in (0..sequence.keys.len()).step_by(KEYS) {
            let keys = KEYS.min(sequence.keys.len() - key);
            let row = (sequence.keys.start + key) * kv_heads + kv_head;
            key_sums.fill(0.0);
            value_sums.fill(0.0);
            // SAFETY: rows of the sequence.
            unsafe {
                transpose(all.k.as_ptr().add(row * dim), kv_heads * dim, keys, dim, &mut transposed_keys);
                transpose(all.v.as_ptr().add(row * dim), kv_heads * dim, keys, dim, &mut transposed_values);
            }
            let own_keys = Strided::new(all.k[row * dim..].as_ptr(), kv_heads * dim, 1);
            // Earlier queries do not attend to these keys.
            let start = if all.causal { key / QUERIES * QUERIES } else { 0 };
            for (first, member) in
                (start..total).step_by(QUERIES).flat_map(|first| (0..group).map(move |m| (first, m)))
            {
                let queries = QUERIES.min(total - first);
                let head = kv_head * group + member;
                let offset = ((sequence.queries.start + first) * heads + head) * dim;
                let q = Strided::new(all.q[offset..].as_ptr(), heads * dim, 1);
                let d_out = Strided::new(results.gradient[offset..].as_ptr(), heads * dim, 1);
                let k = Strided::new(transposed_keys.as_ptr(), KEYS, 1);
                let v = Strided::new(transposed_values.as_ptr(), KEYS, 1);
                // SAFETY: rows of the sequence; only this task has the queries of these heads.
                unsafe {
                    multiply::<S>([queries, dim, KEYS], q, k, p.as_mut_ptr(), KEYS, false);
                    multiply::<S>([queries, dim, KEYS], d_out, v, ds.as_mut_ptr(), KEYS, false);
                    for row in 0..queries {
                        let valid =
                            if all.causal { (first + row + 1).saturating_sub(key).min(keys) } else { keys };
                        let logsumexp =
                            results.logsumexp[head * count + sequence.queries.start + first + row];
                        let mean = means[member * total + first + row];
                        let tile = row * KEYS..(row + 1) * KEYS;
                        gradient_tile::<S>(
                            &mut p[tile.clone()],
                            &mut ds[tile],
                            valid,
                            scale,
                            logsumexp,
                            mean,
                        );
                    }
                    let by_key = |x: &[f32]| Strided::new(x.as_ptr(), 1, KEYS);
                    let sizes = [keys, queries, dim];
                    multiply::<S>(sizes, by_key(&p), d_out, value_sums.as_mut_ptr(), dim, true);
                    multiply::<S>(sizes, by_key(&ds), q, key_sums.as_mut_ptr(), dim, true);
                    let ds = Strided::new(ds.as_ptr(), KEYS, 1);
                    let to = dq.start().add(offset);
                    multiply::<S>([queries, keys, dim], ds, own_keys, to, heads * dim, true);
                }
            }
            for i in 0..keys {
                let at = (row + i * kv_heads) * dim;
                // SAFETY: only this task has the keys of this head.
                let (dk, dv) = unsafe { (dk.part(at, dim), dv.part(at, dim)) };
                dk.iter_mut().zip(&key_sums[i * dim..]).for_each(|(to, sum)| *to += sum);
                dv.iter_mut().zip(&value_sums[i * dim..]).for_each(|(to, sum)| *to += sum);
            }
        }
    }
}

/// Replaces the first `valid` products of queries and keys in a row by their probabilities, those of gradients and values by the
/// gradients of the scores, and the others by 0.
#[inline(always)]
unsafe fn gradient_tile<S: Simd>(
    p: &mut [f32],
    ds: &mut [f32],
    valid: usize,
    scale: f32,
    logsumexp: f32,
    mean: f32,
) {
    for at in (0..valid.next_multiple_of(S::LANES)).step_by(S::LANES) {
        // SAFETY: rows have whole vectors.
        unsafe {
            let (scale, mean) = (S::splat(scale), S::splat(mean));
            let score = S::mul(S::load(p.as_ptr().add(at)), scale);
            let probability = S::exp(S::sub(score, S::splat(logsumexp)));
            let slope = S::mul(S::mul(S::sub(S::load(ds.as_ptr().add(at)), mean), probability), scale);
            S::store(p.as_mut_ptr().add(at), probability);
            S::store(ds.as_mut_ptr().add(at), slope);
        }
    }
    p[valid..].fill(0.0);
    ds[valid..].fill(0.0);
}

/// Scalar product of rows with whole vectors.
#[inline(always)]
unsafe fn dot<S: Simd>(a: &[f32], b: &[f32]) -> f32 {
    // SAFETY: within the rows, which are equally long.
    unsafe {
        let mut sum = S::splat(0.0);
        for at in (0..a.len()).step_by(S::LANES) {
            sum = S::fma(S::load(a.as_ptr().add(at)), S::load(b.as_ptr().add(at)), sum);
        }
        S::sum(sum)
    }
}
