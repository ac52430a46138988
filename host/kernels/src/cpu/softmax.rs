//! Softmax of logits, and sampling from it.

use super::simd::{Kernel, Simd, SimdLevel};

/// Number of probabilities per stored partial sum, which saves the sampling from adding up a whole
/// vocabulary.
const PART: usize = 256;

/// The softmax of one row of logits, not yet divided by its sum.
pub struct Distribution {
    temperature: f32,
    /// The largest logit, after division by the temperature.
    largest: f32,
    /// Sum of `e^(logit / temperature - largest)`; NaN if a logit is NaN.
    pub total: f64,
    /// Sums of [`PART`] probabilities each.
    parts: Vec<f64>,
}

impl Distribution {
    /// Writes `e^(logit / temperature - largest)` of each of `logits` to `weights`. A logit of minus infinity has
    /// weight 0.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn new(level: SimdLevel, logits: &[f32], temperature: f32, weights: &mut [f32]) -> Self {
        assert_eq!(logits.len(), weights.len(), "a weight per logit");
        let parts = vec![0.0; logits.len().div_ceil(PART)];
        let mut out = Self { temperature, largest: f32::NEG_INFINITY, total: 0.0, parts };
        let level = level.min(SimdLevel::detect());
        // SAFETY: the level was detected; both slices have the same length.
        unsafe { level.run(SoftmaxKernel { logits, weights, out: &mut out }) };
        out.total = out.parts.iter().sum();
        out
    }

    /// Returns the first of the likeliest tokens, given the same logits. Returns `None` if all of them are NaN.
    pub fn likeliest(&self, logits: &[f32]) -> Option<usize> {
        logits.iter().position(|logit| logit / self.temperature == self.largest)
    }

    /// Returns ln p of a token with this logit.
    pub fn logprob(&self, logit: f32) -> f32 {
        (f64::from(logit / self.temperature) - f64::from(self.largest) - self.total.ln()) as f32
    }

    /// Samples the token at which the running sum of `weights` exceeds the fraction `quantile` (in [0, 1)) of
    /// the total. Returns `None` if a logit is NaN.
    pub fn sample(&self, weights: &[f32], quantile: f64) -> Option<usize> {
        if !(self.total.is_finite() && self.total > 0.0) {
            return None;
        }
        let target = quantile * self.total;
        let mut sum = 0.0;
        for (part, total) in self.parts.iter().enumerate() {
            if sum + total > target {
                let start = part * PART;
                let mut last = None;
                for (i, weight) in weights[start..].iter().take(PART).enumerate() {
                    sum += f64::from(*weight);
                    if *weight > 0.0 {
                        last = Some(start + i);
                        if sum > target {
                            return last;
                        }
                    }
                }
                // The partial sum was rounded up.
                return last;
            }
            sum += total;
        }
        // The target was rounded up to the total.
        weights.iter().rposition(|weight| *weight > 0.0)
    }
}

struct SoftmaxKernel<'a> {
    logits: &'a [f32],
    weights: &'a mut [f32],
    out: &'a mut Distribution,
}

impl Kernel for SoftmaxKernel<'_> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let count = self.logits.len();
        let whole = count / S::LANES * S::LANES;
        // The remaining numbers as one padded vector.
        let mut rest = [f32::NEG_INFINITY; 16];
        rest[..count - whole].copy_from_slice(&self.logits[whole..]);
        // SAFETY: vectors below `whole` are within both slices; no vector is longer than `rest`.
        unsafe {
            let divisor = S::splat(self.out.temperature);
            let mut most = S::splat(f32::NEG_INFINITY);
            for offset in (0..whole).step_by(S::LANES) {
                most = S::max(S::div(S::load(self.logits.as_ptr().add(offset)), divisor), most);
            }
            most = S::max(S::div(S::load(rest.as_ptr()), divisor), most);
            self.out.largest = S::largest(most);
            let shift = S::splat(self.out.largest);
            for offset in (0..whole).step_by(S::LANES) {
                let z = S::div(S::load(self.logits.as_ptr().add(offset)), divisor);
                S::store(self.weights.as_mut_ptr().add(offset), S::exp(S::sub(z, shift)));
            }
            let z = S::div(S::load(rest.as_ptr()), divisor);
            S::store(rest.as_mut_ptr(), S::exp(S::sub(z, shift)));
            self.weights[whole..].copy_from_slice(&rest[..count - whole]);
        }
        // A token without probability must have weight 0, where the kernel's exponential of minus infinity is 1e-38.
        let lowest = f32::MIN * self.out.temperature;
        let parts = self.weights.chunks_mut(PART).zip(self.logits.chunks(PART));
        for ((weights, logits), sum) in parts.zip(&mut self.out.parts) {
            for (weight, logit) in weights.iter_mut().zip(logits) {
                if *logit <= lowest {
                    *weight = 0.0;
                }
            }
            // Eight independent sums in f64.
            let mut sums = [0f64; 8];
            for eight in weights.chunks(8) {
                for (sum, weight) in sums.iter_mut().zip(eight) {
                    *sum += f64::from(*weight);
                }
            }
            *sum = sums.iter().sum();
        }
    }
}
