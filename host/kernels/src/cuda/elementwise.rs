//! Operations between the matrix products of a transformer, each in one pass over memory (`elementwise.cu`).
//!
//! libtorch needs three to ten launches for each of them, with temporaries in f32, which take longer than a small model's
//! products. The kernels take contiguous tensors in f32 or bf16 whose rows have a multiple of 8 numbers, and compute in f32.

mod generation;
#[cfg(test)]
mod tests;

pub use generation::HeadInputs;

use std::sync::Arc;

use tch::{Kind, Tensor, no_grad};

use super::compile::KernelSource;
use super::error::Error;
use super::launch::{Argument, Kernel, Kernels, Launch};
use super::tensors::expect;

/// Source of the kernels.
pub const SOURCE: KernelSource =
    KernelSource { name: "elementwise.cu", text: include_str!("elementwise.cu") };

/// Number of threads of a block. The source has the same value, as of the next constant.
const THREADS: u32 = 256;
/// Numbers that a thread reads at a time.
const PACK: i64 = 8;
/// A sum of each thread.
const SHARED: u32 = 4 * THREADS;

pub(super) const KERNELS: [Kernel; 18] = [
    Kernel { name: "rms_norm_bf16", threads: THREADS, shared: SHARED },
    Kernel { name: "rms_norm_f32", threads: THREADS, shared: SHARED },
    Kernel { name: "normalize_bf16", threads: THREADS, shared: 0 },
    Kernel { name: "normalize_f32", threads: THREADS, shared: 0 },
    Kernel { name: "normalize_backward_bf16", threads: THREADS, shared: SHARED },
    Kernel { name: "normalize_backward_f32", threads: THREADS, shared: SHARED },
    Kernel { name: "rotate_bf16", threads: THREADS, shared: 0 },
    Kernel { name: "rotate_f32", threads: THREADS, shared: 0 },
    Kernel { name: "gated_bf16", threads: THREADS, shared: 0 },
    Kernel { name: "gated_f32", threads: THREADS, shared: 0 },
    Kernel { name: "gated_backward_bf16", threads: THREADS, shared: 0 },
    Kernel { name: "gated_backward_f32", threads: THREADS, shared: 0 },
    Kernel { name: "add_rms_norm_bf16", threads: THREADS, shared: SHARED },
    Kernel { name: "add_rms_norm_f32", threads: THREADS, shared: SHARED },
    Kernel { name: "rotate_and_store_bf16", threads: THREADS, shared: SHARED },
    Kernel { name: "rotate_and_store_f32", threads: THREADS, shared: SHARED },
    Kernel { name: "gain_gradient_bf16", threads: THREADS, shared: PACK as u32 * SHARED },
    Kernel { name: "gain_gradient_f32", threads: THREADS, shared: PACK as u32 * SHARED },
];

/// Indices of the kernels for bf16, each before that for f32.
const RMS_NORM: usize = 0;
const NORMALIZE: usize = 2;
const NORMALIZE_BACKWARD: usize = 4;
const ROTATE: usize = 6;
const GATED: usize = 8;
const GATED_BACKWARD: usize = 10;
const ADD_RMS_NORM: usize = 12;
const ROTATE_AND_STORE: usize = 14;
const GAIN_GRADIENT: usize = 16;

/// Rows that a thread adds up in the gradient of a gain.
const ROWS_OF_SUM: i64 = 64;

/// The operations on a device.
pub struct Elementwise {
    launcher: Arc<dyn Launch>,
}

impl Elementwise {
    /// Creates the operations on a device whose kernels are open.
    pub fn new(kernels: Arc<Kernels>) -> Self {
        Self { launcher: kernels }
    }

    /// Returns true if the kernels take a tensor: f32 or bf16, contiguous, whose last dimension is a multiple of 8.
    pub fn supports(x: &Tensor) -> bool {
        let width = x.size().last().copied().unwrap_or(0);
        matches!(x.kind(), Kind::Float | Kind::BFloat16)
            && x.is_contiguous()
            && width > 0
            && width % PACK == 0
            && x.numel() <= i32::MAX as usize
            && (x.data_ptr() as usize).is_multiple_of(16)
    }

    /// Computes the RMS norm `x / rms(x) gain` of rows `[…, W]` (Zhang and Sennrich 2019), with a gain `[W]` in f32. Returns it
    /// with the reciprocals of `rms(x)`, `[…, 1]` in f32.
    ///
    /// # Errors
    /// [`Error::Tensor`] if a tensor has a wrong kind, shape or device.
    pub fn rms_norm(&self, x: &Tensor, gain: &Tensor, epsilon: f64) -> Result<(Tensor, Tensor), Error> {
        let rows = Rows::new(x)?;
        self.check("the gain", gain, Kind::Float, &[rows.width])?;
        no_grad(|| {
            let reciprocals = Tensor::f_empty(reciprocals_shape(x), (Kind::Float, x.device()))?;
            let out = x.f_empty_like()?;
            let tensors = [x, gain, &out, &reciprocals];
            let numbers = rows.numbers().into_iter().chain([Argument::Number(epsilon as f32)]);
            // SAFETY: the kernel's arguments in its order; the lines above ensure the kinds and sizes that it needs, and
            // libtorch frees tensors in the stream's order.
            unsafe { self.launch(RMS_NORM, x, rows.blocks(), &tensors, numbers)? };
            Ok((out, reciprocals))
        })
    }

    /// Computes `x reciprocal gain` for rows as in [`rms_norm`](Self::rms_norm), with its reciprocals.
    ///
    /// # Errors
    /// As [`rms_norm`](Self::rms_norm).
    pub fn normalize(&self, x: &Tensor, reciprocals: &Tensor, gain: &Tensor) -> Result<Tensor, Error> {
        let rows = self.check_normed(x, reciprocals, gain)?;
        no_grad(|| {
            let out = x.f_empty_like()?;
            let tensors = [x, reciprocals, gain, &out];
            let numbers = rows.numbers();
            // SAFETY: as in `rms_norm`.
            unsafe { self.launch(NORMALIZE, x, rows.blocks(), &tensors, numbers)? };
            Ok(out)
        })
    }

    /// Computes the gradient of [`rms_norm`](Self::rms_norm) with respect to `x`, given that of its result. With
    /// `n = x reciprocal`, it is `reciprocal (dy gain - n mean(dy gain n))`.
    ///
    /// # Errors
    /// As [`rms_norm`](Self::rms_norm).
    pub fn normalize_backward(
        &self,
        gradient: &Tensor,
        x: &Tensor,
        reciprocals: &Tensor,
        gain: &Tensor,
    ) -> Result<Tensor, Error> {
        let rows = self.check_normed(x, reciprocals, gain)?;
        self.check("the gradient", gradient, x.kind(), &x.size())?;
        no_grad(|| {
            let out = x.f_empty_like()?;
            let tensors = [gradient, x, reciprocals, gain, &out];
            let numbers = rows.numbers();
            // SAFETY: as in `rms_norm`.
            unsafe { self.launch(NORMALIZE_BACKWARD, x, rows.blocks(), &tensors, numbers)? };
            Ok(out)
        })
    }

    /// Computes the gradient of [`rms_norm`](Self::rms_norm) with respect to its gain, given that of its result: the sum over rows
    /// of `dy x reciprocal`, `[W]` in f32, in the same order at each call.
    ///
    /// # Errors
    /// As [`rms_norm`](Self::rms_norm).
    pub fn gain_gradient(
        &self,
        gradient: &Tensor,
        x: &Tensor,
        reciprocals: &Tensor,
    ) -> Result<Tensor, Error> {
        let rows = Rows::new(x)?;
        self.check("the reciprocals", reciprocals, Kind::Float, &reciprocals_shape(x))?;
        self.check("the gradient", gradient, x.kind(), &x.size())?;
        no_grad(|| {
            let (packs, threads) = (rows.width / PACK, i64::from(THREADS));
            let chunk = ROWS_OF_SUM * (threads / packs.clamp(1, threads));
            let blocks = (rows.count as u64).div_ceil(chunk as u64);
            let sums = Tensor::f_empty([blocks as i64, rows.width], (Kind::Float, x.device()))?;
            let tensors = [gradient, x, reciprocals, &sums].map(Argument::tensor);
            let numbers = [rows.count, rows.width, chunk].map(|number| Argument::Count(number as i32));
            let grid = [blocks as u32, (packs as u64).div_ceil(threads as u64) as u32];
            // SAFETY: as in `rms_norm`.
            unsafe { self.launch_grid(GAIN_GRADIENT, x, grid, tensors.into_iter().chain(numbers))? };
            Ok(sums.f_sum_dim_intlist([0i64].as_slice(), false, Kind::Float)?)
        })
    }

    /// Rotates heads `[T, heads, D]` by tables `[T, D]` in f32: `x cos + swapped sin`, where `swapped` has the halves of x
    /// exchanged. With `transposed`, by `-sin`.
    ///
    /// # Errors
    /// As [`rms_norm`](Self::rms_norm).
    pub fn rotate(
        &self,
        x: &Tensor,
        [cosines, sines]: [&Tensor; 2],
        transposed: bool,
    ) -> Result<Tensor, Error> {
        let &[tokens, heads, width] = x.size().as_slice() else {
            return Err(Error::tensor("elementwise", "the heads", "of three dimensions", x));
        };
        if width % (2 * PACK) != 0 {
            return Err(Error::tensor("elementwise", "the heads", "of a multiple of 16 numbers", x));
        }
        self.check("the heads", x, x.kind(), &[tokens, heads, width])?;
        self.check("the cosines", cosines, Kind::Float, &[tokens, width])?;
        self.check("the sines", sines, Kind::Float, &[tokens, width])?;
        no_grad(|| {
            let out = x.f_empty_like()?;
            let tensors = [x, cosines, sines, &out];
            let numbers = [
                Argument::Count(x.numel() as i32),
                Argument::Count(heads as i32),
                Argument::Count(width as i32),
                Argument::Number(if transposed { -1.0 } else { 1.0 }),
            ];
            // SAFETY: as in `rms_norm`.
            unsafe { self.launch(ROTATE, x, packs(x), &tensors, numbers)? };
            Ok(out)
        })
    }

    /// Computes the gated unit `silu(gate) up` (Shazeer 2020).
    ///
    /// # Errors
    /// As [`rms_norm`](Self::rms_norm).
    pub fn gate(&self, gate: &Tensor, up: &Tensor) -> Result<Tensor, Error> {
        self.check("the factor of a gate", up, gate.kind(), &gate.size())?;
        let width = Rows::new(gate)?.width;
        no_grad(|| {
            let out = gate.f_empty_like()?;
            let tensors = [gate, up, &out];
            let numbers = [gate.numel() as i64, width, width].map(|number| Argument::Count(number as i32));
            // SAFETY: as in `rms_norm`.
            unsafe { self.launch(GATED, gate, packs(gate), &tensors, numbers)? };
            Ok(out)
        })
    }

    /// Computes the gradients of [`gate`](Self::gate) with respect to the gate and to `up`, given that of its result.
    ///
    /// # Errors
    /// As [`rms_norm`](Self::rms_norm).
    pub fn gate_backward(
        &self,
        gradient: &Tensor,
        gate: &Tensor,
        up: &Tensor,
    ) -> Result<(Tensor, Tensor), Error> {
        self.check("the factor of a gate", up, gate.kind(), &gate.size())?;
        self.check("the gradient", gradient, gate.kind(), &gate.size())?;
        no_grad(|| {
            let (d_gate, d_up) = (gate.f_empty_like()?, gate.f_empty_like()?);
            let tensors = [gradient, gate, up, &d_gate, &d_up];
            let numbers = [Argument::Count(gate.numel() as i32)];
            // SAFETY: as in `rms_norm`.
            unsafe { self.launch(GATED_BACKWARD, gate, packs(gate), &tensors, numbers)? };
            Ok((d_gate, d_up))
        })
    }

    fn check_normed(&self, x: &Tensor, reciprocals: &Tensor, gain: &Tensor) -> Result<Rows, Error> {
        let rows = Rows::new(x)?;
        self.check("the gain", gain, Kind::Float, &[rows.width])?;
        self.check("the reciprocals", reciprocals, Kind::Float, &reciprocals_shape(x))?;
        Ok(rows)
    }

    fn check(&self, name: &'static str, x: &Tensor, kind: Kind, shape: &[i64]) -> Result<(), Error> {
        expect("elementwise", name, x, kind, shape, self.launcher.device())
    }

    /// Launches the kernel of an operation for the number format of `x`, unless it has no numbers. Its arguments are tensors, then
    /// numbers.
    ///
    /// # Safety
    /// As [`Launch::launch`].
    unsafe fn launch(
        &self,
        operation: usize,
        x: &Tensor,
        blocks: u32,
        tensors: &[&Tensor],
        numbers: impl IntoIterator<Item = Argument>,
    ) -> Result<(), Error> {
        let tensors = tensors.iter().map(|tensor| Argument::tensor(tensor));
        // SAFETY: guaranteed by the caller.
        unsafe { self.launch_grid(operation, x, [blocks, 1], tensors.chain(numbers)) }
    }

    /// Launches a kernel as [`launch`](Self::launch) does, with all its arguments in their order.
    ///
    /// # Safety
    /// As [`Launch::launch`].
    unsafe fn launch_grid(
        &self,
        operation: usize,
        x: &Tensor,
        grid: [u32; 2],
        arguments: impl IntoIterator<Item = Argument>,
    ) -> Result<(), Error> {
        if !Self::supports(x) {
            let expected = "f32 or bf16, contiguous, of a multiple of 8 numbers";
            return Err(Error::tensor("elementwise", "the numbers", expected, x));
        }
        if x.numel() == 0 {
            return Ok(());
        }
        let kernel = KERNELS[operation + usize::from(x.kind() == Kind::Float)];
        let arguments: Vec<Argument> = arguments.into_iter().collect();
        // SAFETY: guaranteed by the caller.
        unsafe { self.launcher.launch(kernel, grid, &arguments) }
    }
}

/// Rows of an operation on rows.
struct Rows {
    count: i64,
    width: i64,
}

impl Rows {
    fn new(x: &Tensor) -> Result<Self, Error> {
        match x.size().last() {
            Some(&width) if width > 0 => Ok(Self { count: x.numel() as i64 / width, width }),
            _ => Err(Error::tensor("elementwise", "the rows", "of at least one number", x)),
        }
    }

    /// Returns the number of threads of a row: a warp for a head, the whole block for a token.
    fn members(&self) -> i64 {
        if self.width <= 32 * PACK { 32 } else { i64::from(THREADS) }
    }

    /// Returns the numbers that the kernels of rows have in common.
    fn numbers(&self) -> [Argument; 3] {
        [self.count, self.width, self.members()].map(|number| Argument::Count(number as i32))
    }

    fn blocks(&self) -> u32 {
        let of_block = i64::from(THREADS) / self.members();
        (self.count as u64).div_ceil(of_block as u64) as u32
    }
}

/// Returns the shape of a number for each row, `[…, 1]`.
fn reciprocals_shape(x: &Tensor) -> Vec<i64> {
    let mut shape = x.size();
    if let Some(last) = shape.last_mut() {
        *last = 1;
    }
    shape
}

/// Returns the number of blocks of an operation on single numbers.
fn packs(x: &Tensor) -> u32 {
    x.numel().div_ceil(THREADS as usize * PACK as usize) as u32
}
