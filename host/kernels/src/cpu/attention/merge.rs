//! Results of the parts of a context, merged.

use super::super::simd::{Kernel, Simd};
use super::super::thread_pool::Scratch;
use super::{BLOCK, Heads};

/// Merging of all parts of one row, for the query heads of one key head.
///
/// With the largest score `m`, the sum of weights `l` and the weighted sum of values `o` of each part, and the largest score of
/// all, `M`: the result is `sum exp(m - M) o / sum exp(m - M) l`, summed in the order of the parts.
pub(super) struct MergeKernel<'a> {
    /// Dimensions of attention.
    pub(super) heads: Heads,
    /// Number of parts.
    pub(super) parts: usize,
    /// `[query heads, parts, result_len]`.
    pub(super) results: &'a [f32],
    /// `[query heads, dim]`.
    pub(super) out: &'a mut [f32],
    /// Scratch of this thread.
    pub(super) scratch: &'a Scratch,
}

impl Kernel for MergeKernel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Self { heads, parts, results, out, scratch } = self;
        let (dim, padded_dim, len) = (heads.dim, heads.padded_dim(), heads.result_len());
        // SAFETY: the scratch of this thread, borrowed once.
        let scratch = unsafe { scratch.get(padded_dim + parts.next_multiple_of(BLOCK)) };
        let (merged, weights) = scratch.split_at_mut(padded_dim);
        for (results, out) in results.chunks_exact(parts * len).zip(out.chunks_exact_mut(dim)) {
            weights.fill(f32::NEG_INFINITY);
            let mut largest = f32::NEG_INFINITY;
            for (weight, result) in weights.iter_mut().zip(results.chunks_exact(len)) {
                *weight = result[padded_dim];
                largest = largest.max(*weight);
            }
            // SAFETY: weights are whole vectors.
            unsafe {
                let largest = S::splat(largest);
                for offset in (0..weights.len()).step_by(S::LANES) {
                    let address = weights.as_mut_ptr().add(offset);
                    S::store(address, S::exp(S::sub(S::load(address), largest)));
                }
            }
            let mut total = 0.0;
            for (weight, result) in weights.iter().zip(results.chunks_exact(len)) {
                total += weight * result[padded_dim + 1];
            }
            // SAFETY: the sums of all parts have `padded_dim` numbers, which are whole vectors.
            unsafe {
                let scale = S::splat(1.0 / total);
                for column in (0..padded_dim).step_by(S::LANES) {
                    let mut sum = S::splat(0.0);
                    for (weight, result) in weights.iter().zip(results.chunks_exact(len)) {
                        sum = S::fma(S::splat(*weight), S::load(result.as_ptr().add(column)), sum);
                    }
                    S::store(merged.as_mut_ptr().add(column), S::mul(sum, scale));
                }
            }
            out.copy_from_slice(&merged[..dim]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::simd::SimdLevel;
    use super::*;

    /// Without threads and special instructions, so that it runs in Miri too.
    #[test]
    fn parts_are_weighted_by_their_largest_scores() {
        let heads = Heads { heads: 2, kv_heads: 1, dim: 3 };
        // Largest score, sum of weights, and weighted sum of each part: of two heads with three parts.
        let parts: [[(f64, f64, f64); 3]; 2] = [
            [(1.0, 2.0, 4.0), (3.0, 1.0, 0.5), (-200.0, 5.0, 9.0)],
            [(-7.0, 1.0, 1.0), (-7.0, 2.0, 3.0), (-8.0, 4.0, -2.0)],
        ];
        let mut results = vec![0_f32; 6 * heads.result_len()];
        for (result, (m, l, o)) in results.chunks_exact_mut(heads.result_len()).zip(parts.as_flattened()) {
            result[..3].copy_from_slice(&[*o as f32, 2.0 * *o as f32, 0.0]);
            result[heads.padded_dim()..][..2].copy_from_slice(&[*m as f32, *l as f32]);
        }
        let mut out = [-1.0_f32; 6];
        let scratch = Scratch::default();
        let kernel = MergeKernel { heads, parts: 3, results: &results, out: &mut out, scratch: &scratch };
        // SAFETY: every CPU has these instructions; results and outputs are those of two heads.
        unsafe { SimdLevel::Portable.run(kernel) };
        for (out, parts) in out.chunks_exact(3).zip(&parts) {
            let total: f64 = parts.iter().map(|(m, l, _)| m.exp() * l).sum();
            let sum: f64 = parts.iter().map(|(m, _, o)| m.exp() * o).sum();
            let expected = [sum / total, 2.0 * sum / total, 0.0];
            for (got, expected) in out.iter().zip(expected) {
                assert!((f64::from(*got) - expected).abs() < 1e-6, "{got} instead of {expected}");
            }
        }
    }
}
