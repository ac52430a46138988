//! The backward pass of a task.

use super::multiply::{Strided, multiply, transpose};
use super::schedule::{Task, first_query};
use super::{FlashAttention, FlashResults, KEYS, QUERIES};
use crate::cpu::attention::Heads;
use crate::cpu::simd::{Kernel, Simd};
use crate::cpu::thread_pool::DisjointSlice;

/// The gradients of a task's queries, keys and values.
pub(super) struct BackwardKernel<'a> {
    pub all: &'a FlashAttention<'a>,
    pub task: &'a Task,
    /// Number of queries of all sequences.
    pub count: usize,
    pub results: &'a FlashResults<'a>,
    /// Sums for the gradients of queries, keys and values.
    pub gradients: [DisjointSlice<'a, f32>; 3],
}

impl Kernel for BackwardKernel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { all, task, count, results, gradients: [dq, dk, dv] } = self;
        let (sequence, kv_head) = (&all.sequences[task.sequence], task.kv_head);
        let Heads { heads, kv_heads, dim } = all.heads;
        let group = heads / kv_heads;
        let (total, scale) = (task.queries.len(), all.scale());
        let mut transposed_keys = vec![0f32; dim * KEYS];
        let mut transposed_values = vec![0f32; dim * KEYS];
        let (mut p, mut ds) = (vec![0f32; QUERIES * KEYS], vec![0f32; QUERIES * KEYS]);
        let (mut key_sums, mut value_sums) = (vec![0f32; KEYS * dim], vec![0f32; KEYS * dim]);
        // Scalar products of the output and its gradient, for each query.
        let mut means = vec![0f32; group * total];
        for (index, mean) in means.iter_mut().enumerate() {
            let (member, query) =
                (index / total, sequence.queries.start + task.queries.start + index % total);
            let row = (query * heads + kv_head * group + member) * dim;
            let (out, gradient) = (&results.out[row..][..dim], &results.gradient[row..][..dim]);
            // SAFETY: rows of whole vectors.
            *mean = unsafe { dot::<S>(out, gradient) };
        }
        for key in task.keys.clone().step_by(KEYS) {
            let keys = KEYS.min(task.keys.end - key);
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
            let start = first_query(&task.queries, key, all.causal);
            for (first, member) in (start..task.queries.end)
                .step_by(QUERIES)
                .flat_map(|first| (0..group).map(move |m| (first, m)))
            {
                let queries = QUERIES.min(task.queries.end - first);
                let head = kv_head * group + member;
                let offset = ((sequence.queries.start + first) * heads + head) * dim;
                let q = Strided::new(all.q[offset..].as_ptr(), heads * dim, 1);
                let d_out = Strided::new(results.gradient[offset..].as_ptr(), heads * dim, 1);
                let k = Strided::new(transposed_keys.as_ptr(), KEYS, 1);
                let v = Strided::new(transposed_values.as_ptr(), KEYS, 1);
                // SAFETY: rows of the sequence; of the running tasks, only this one has the queries of these heads.
                unsafe {
                    multiply::<S>([queries, dim, KEYS], q, k, p.as_mut_ptr(), KEYS, false);
                    multiply::<S>([queries, dim, KEYS], d_out, v, ds.as_mut_ptr(), KEYS, false);
                    for row in 0..queries {
                        let valid =
                            if all.causal { (first + row + 1).saturating_sub(key).min(keys) } else { keys };
                        let logsumexp =
                            results.logsumexp[head * count + sequence.queries.start + first + row];
                        let mean = means[member * total + first - task.queries.start + row];
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
                // SAFETY: of the running tasks, only this one has the keys of this head.
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
