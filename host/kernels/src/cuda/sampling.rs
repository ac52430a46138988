//! Sampling of tokens from logits, in two launches (`sampling.cu`).
//!
//! libtorch needs some twenty launches and several copies of the logits, and its running sum over a vocabulary in f64 takes most
//! of the time. Here a row is read once, and once more in the part of 2048 logits that has the token. A token's results depend on
//! its row alone, not on the others.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tch::{Kind, Tensor, no_grad};

use super::compile::KernelSource;
use super::error::Error;
use super::launch::{Argument, Kernel, Kernels, Launch};
use super::tensors::expect;

/// Source of the kernels.
pub const SOURCE: KernelSource = KernelSource { name: "sampling.cu", text: include_str!("sampling.cu") };

/// Number of threads of a block. The source has the same value, as of the next constant.
const THREADS: u32 = 256;
/// Number of logits of a part.
const PART: i64 = 2048;

/// Choice of the likeliest token, the lowest one of equal logits.
pub const LIKELIEST: f64 = -1.0;

/// Returns the choice of a given token.
pub fn given(token: u32) -> f64 {
    -2.0 - f64::from(token)
}

/// In shared memory, `sum_parts` has a logit with its token and a sum for each thread; `choose_tokens` has two sums and a
/// logit with its token for each thread, and two numbers.
pub(super) const KERNELS: [Kernel; 2] = [
    Kernel { name: "sum_parts", threads: THREADS, shared: 16 * THREADS },
    Kernel { name: "choose_tokens", threads: THREADS, shared: 24 * THREADS + 16 },
];

/// The sampling on a device.
pub struct TokenSampler {
    launcher: Arc<dyn Launch>,
}

impl TokenSampler {
    /// Creates the sampling on a device whose kernels are open.
    pub fn new(kernels: Arc<Kernels>) -> Self {
        Self { launcher: kernels }
    }

    /// Samples `N` tokens from logits `[R, V]` in f32. The choices `[3, N]` in f64 are: indices of rows, several of which may be
    /// equal; temperatures, above 0, by which the logits are divided; and a quantile in [0, 1) of the distribution,
    /// [`LIKELIEST`] or a [`given`] token. All tensors are on the device and contiguous.
    ///
    /// Returns `[2, N]` in i32: the tokens, then the bits of their log-probabilities in f32. These are not finite if the logits
    /// are not a distribution: if one is NaN or plus infinity, or all are minus infinity. They are NaN, of the token 0, for a row
    /// or a given token that doesn't exist. A token at a quantile has a positive probability.
    ///
    /// # Errors
    /// [`Error::Tensor`] if a tensor has a wrong kind, shape or device.
    pub fn sample(&self, logits: &Tensor, choices: &Tensor) -> Result<Tensor, Error> {
        let device = self.launcher.device();
        let &[rows, vocab] = logits.size().as_slice() else {
            return Err(Error::tensor("sampling", "the logits", "of two dimensions", logits));
        };
        let &[3, count] = choices.size().as_slice() else {
            return Err(Error::tensor("sampling", "the choices", "of dimensions [3, N]", choices));
        };
        expect("sampling", "the logits", logits, Kind::Float, &[rows, vocab], device)?;
        expect("sampling", "the choices", choices, Kind::Double, &[3, count], device)?;
        // Counts and indices of tokens are 32-bit integers, and a grid has fewer than 2¹⁶ blocks in its second dimension.
        let largest = PART * i64::from(u16::MAX);
        if vocab == 0 || vocab > largest || rows.max(count) > i64::from(i32::MAX) / 2 {
            let expected = format!("2³⁰ rows of 1 to {largest} logits at most");
            return Err(Error::tensor("sampling", "the logits", &expected, logits));
        }
        no_grad(|| {
            let out = Tensor::f_empty([2, count], (Kind::Int, device))?;
            if count == 0 {
                return Ok(out);
            }
            let divisions = (vocab + PART - 1) / PART;
            // 16 bytes for each: the largest logit, its token, and a sum in f64.
            let parts = Tensor::f_empty([count, divisions, 2], (Kind::Double, device))?;
            let number = |n: i64| Argument::Count(n as i32);
            let numbers = || [rows, vocab, count, divisions].map(number);
            let inputs = || [logits, choices, &parts].map(Argument::tensor);
            let arguments: Vec<_> = inputs().into_iter().chain(numbers()).collect();
            // SAFETY: the kernel's arguments in its order; the lines above ensure the kinds and sizes that it needs, it checks
            // the choices, and libtorch frees tensors in the stream's order.
            unsafe { self.launcher.launch(KERNELS[0], [count as u32, divisions as u32], &arguments)? };
            let arguments: Vec<_> =
                inputs().into_iter().chain([Argument::tensor(&out)]).chain(numbers()).collect();
            // SAFETY: as above.
            unsafe { self.launcher.launch(KERNELS[1], [count as u32, 1], &arguments)? };
            Ok(out)
        })
    }
}
