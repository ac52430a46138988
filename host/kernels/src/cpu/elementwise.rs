//! Root-mean-square norms.

use super::Cpu;
use super::simd::{Kernel, Simd};
use super::thread_pool::DisjointSlice;

/// An RMS norm (Zhang and Sennrich 2019): `x / sqrt(mean(x²) + eps) weight`.
#[derive(Clone, Copy)]
pub struct RmsNorm<'a> {
    /// Gains, one per column.
    pub weight: &'a [f32],
    /// Summand of the mean square.
    pub eps: f32,
}

impl Cpu {
    /// Computes the norm of every row of `x` (of the length of the norm's weight) into `out`.
    ///
    /// # Panics
    /// If the lengths of `x` and `out` differ or are not whole rows.
    pub fn rms_norm(&self, norm: RmsNorm<'_>, x: &[f32], out: &mut [f32]) {
        let width = norm.weight.len();
        assert!(x.len() == out.len() && x.len().is_multiple_of(width), "rows of {width}");
        let rows = DisjointSlice::new(out);
        let level = self.level;
        self.pool.for_each(x.len() / width, |_, row| {
            // SAFETY: rows do not overlap.
            let out = unsafe { rows.part(row * width, width) };
            out.copy_from_slice(&x[row * width..][..width]);
            // SAFETY: the level was detected; the row has the length of the weight.
            unsafe { level.run(NormKernel { norm, row: out }) };
        });
    }
}

/// Norm of one row, in place.
struct NormKernel<'a> {
    norm: RmsNorm<'a>,
    row: &'a mut [f32],
}

impl Kernel for NormKernel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // SAFETY: guaranteed by the caller.
        unsafe { norm_row::<S>(self.norm, self.row) }
    }
}

/// Computes the norm of one row, in place.
#[inline(always)]
pub(crate) unsafe fn norm_row<S: Simd>(norm: RmsNorm<'_>, row: &mut [f32]) {
    // Sixteen sums for every vector width, then the rest in order.
    let mut sums = [0f32; 16];
    let mut chunks = row.chunks_exact(16);
    for chunk in &mut chunks {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *sum += x * x;
        }
    }
    let mut squares: f32 = chunks.remainder().iter().map(|x| x * x).sum();
    // SAFETY: sixteen numbers are one or two vectors.
    unsafe {
        for half in (0..16).step_by(S::LANES) {
            squares += S::sum(S::load(sums.as_ptr().add(half)));
        }
    }
    let scale = 1.0 / (squares / row.len() as f32 + norm.eps).sqrt();
    for (x, weight) in row.iter_mut().zip(norm.weight) {
        *x = *x * scale * weight;
    }
}
