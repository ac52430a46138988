//! Products of adapters (LoRA, Hu et al. 2021) for few rows, as generation has them: `y += B (s A x)`.
//!
//! Two launches do them for all adapters of a batch and all projections of the same input (`lora.cu`), as in Punica (Chen et al.
//! 2023): the first computes the products with `A`, the second adds those with `B`. A row has its own adapter's products alone,
//! with the same bits whatever the other rows are.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tch::{Kind, Tensor, no_grad};

use super::compile::KernelSource;
use super::error::Error;
use super::launch::{Argument, Kernel, Kernels, Launch};
use super::tensors::expect;

/// Source of the kernels.
pub const SOURCE: KernelSource = KernelSource { name: "lora.cu", text: include_str!("lora.cu") };

/// Warps of a block of the first launch. The source has the same value, as of the next four constants.
const WARPS: i64 = 8;
/// Rows of a block.
const ROWS: i64 = 16;
/// Ranks of a block of the first launch.
const RANKS: i64 = 8;
/// Numbers of a sum that are read at a time.
const STEP: i64 = 32;
/// Columns of a block of the second launch.
const COLUMNS: i64 = 32;
/// Largest number of projections of the same input.
const PROJECTIONS: usize = 3;
/// Largest number of rows; from some hundred rows on, matrix products are faster.
const MAX_ROWS: i64 = 256;

/// In shared memory, the first has the sums of its warps.
pub(super) const KERNELS: [Kernel; 2] = [
    Kernel { name: "lora_shrink", threads: 32 * WARPS as u32, shared: (4 * WARPS * ROWS * RANKS) as u32 },
    Kernel { name: "lora_expand", threads: 32, shared: 0 },
];

/// The factors of adapters beside each other, for up to three projections of the same input, one after another. All are finite: a
/// row may multiply numbers of other adapters by 0.
#[derive(Debug, Clone, Copy)]
pub struct LoraFactors<'a> {
    /// `A` of each projection, `[projections x ranks, in]`, bf16.
    pub a: &'a Tensor,
    /// `B` of each projection, `[sum of outputs, ranks]`, bf16.
    pub b: &'a Tensor,
    /// Number of outputs of each projection.
    pub outputs: &'a [i64],
}

/// The products on a device.
pub struct LoraProducts {
    launcher: Arc<dyn Launch>,
}

impl LoraProducts {
    /// Creates the products on a device whose kernels are open.
    pub fn new(kernels: Arc<Kernels>) -> Self {
        Self { launcher: kernels }
    }

    /// Returns true if the kernels take an input `[rows, in]` of projections with these numbers of outputs and a sum of ranks.
    pub fn supports(x: &Tensor, outputs: &[i64], ranks: i64) -> bool {
        let &[rows, width] = x.size().as_slice() else { return false };
        x.kind() == Kind::BFloat16
            && rows <= MAX_ROWS
            && width % STEP == 0
            && ranks % STEP == 0
            && ranks > 0
            && (1..=PROJECTIONS).contains(&outputs.len())
            && outputs.iter().all(|count| count % COLUMNS == 0)
    }

    /// Adds the adapters' parts of projections of `x` `[rows, in]` to `y` `[rows, sum of outputs]`, in place. The scales `[rows,
    /// ranks]`, f32, are those of a row's own adapter in the columns of its ranks, and 0 in the others. All tensors are on the
    /// device and contiguous.
    ///
    /// # Errors
    /// [`Error::Tensor`] if a tensor has a wrong kind, shape or device, or if [`supports`](Self::supports) is false.
    pub fn add(
        &self,
        factors: &LoraFactors<'_>,
        scales: &Tensor,
        x: &Tensor,
        y: &Tensor,
    ) -> Result<(), Error> {
        let invalid = |name, expected: &str, got: &Tensor| Err(Error::tensor("lora", name, expected, got));
        let ranks = scales.size().get(1).copied().unwrap_or(0);
        if !Self::supports(x, factors.outputs, ranks) {
            let expected = "at most 256 rows in bf16 of a multiple of 32 numbers, with ranks and outputs of multiples of 32";
            return invalid("the input", expected, x);
        }
        let (kind, device) = (x.kind(), self.launcher.device());
        let (rows, width) = x.size2()?;
        let (columns, all_ranks) = (factors.outputs.iter().sum(), factors.outputs.len() as i64 * ranks);
        let tensors: [(&'static str, &Tensor, [i64; 2]); 4] = [
            ("the input", x, [rows, width]),
            ("the factors A", factors.a, [all_ranks, width]),
            ("the factors B", factors.b, [columns, ranks]),
            ("the output", y, [rows, columns]),
        ];
        expect("lora", "the scales", scales, Kind::Float, &[rows, ranks], device)?;
        for (name, tensor, shape) in tensors {
            expect("lora", name, tensor, kind, &shape, device)?;
            if !(tensor.data_ptr() as usize).is_multiple_of(16) {
                return invalid(name, "at an address that is a multiple of 16", tensor);
            }
        }
        if rows == 0 {
            return Ok(());
        }
        let count = |n: i64| Argument::Count(n as i32);
        let row_blocks = ((rows + ROWS - 1) / ROWS) as u32;
        no_grad(|| {
            let inner = Tensor::f_empty([rows, all_ranks], (kind, device))?;
            let tensors = [x, factors.a, scales, &inner].map(Argument::tensor);
            let counts = [rows, width, ranks, all_ranks].map(count);
            let arguments: Vec<Argument> = tensors.into_iter().chain(counts).collect();
            let grid = [(all_ranks / RANKS) as u32, row_blocks];
            // SAFETY: the kernel's arguments in its order; the lines above ensure the kinds and sizes that it needs, and libtorch
            // frees tensors in the stream's order.
            unsafe { self.launcher.launch(KERNELS[0], grid, &arguments)? };
            let end = |projections: usize| factors.outputs.iter().take(projections).sum();
            let tensors = [&inner, factors.b, y].map(Argument::tensor);
            let counts = [rows, columns, ranks, all_ranks, end(1), end(2)].map(count);
            let arguments: Vec<Argument> = tensors.into_iter().chain(counts).collect();
            let grid = [(columns / COLUMNS) as u32, row_blocks];
            // SAFETY: as above.
            unsafe { self.launcher.launch(KERNELS[1], grid, &arguments) }
        })
    }
}
