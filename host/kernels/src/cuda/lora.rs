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

/// Number of threads of a block. The source has the same value, as of the next three constants.
const THREADS: u32 = 256;
/// Rows of a block of the second launch.
const ROWS: i64 = 8;
/// Ranks that a thread of it reads at a time.
const GROUP: i64 = 32;
/// Numbers that a thread reads at a time.
const PACK: i64 = 8;
/// Largest number of projections of the same input.
const PROJECTIONS: usize = 3;
/// Largest sum of ranks.
const MAX_RANKS: i64 = 256;
/// Largest number of rows; from some hundred rows on, matrix products are faster.
const MAX_ROWS: i64 = 256;

const SHRINK_SHARED: u32 = 4 * MAX_RANKS as u32;
const EXPAND_SHARED: u32 = expand_shared(PROJECTIONS as i64, MAX_RANKS);

pub(super) const KERNELS: [Kernel; 4] = [
    Kernel { name: "lora_shrink_bf16", threads: THREADS, shared: SHRINK_SHARED },
    Kernel { name: "lora_shrink_f32", threads: THREADS, shared: SHRINK_SHARED },
    Kernel { name: "lora_expand_bf16", threads: THREADS, shared: EXPAND_SHARED },
    Kernel { name: "lora_expand_f32", threads: THREADS, shared: EXPAND_SHARED },
];

/// Returns the shared memory of the second launch: the first products of a block's rows, and a number for each group of ranks.
const fn expand_shared(projections: i64, ranks: i64) -> u32 {
    4 * (ROWS * (projections * ranks + (ranks + GROUP - 1) / GROUP)) as u32
}

/// The factors of adapters beside each other, for up to three projections of the same input, one after another. All are finite: a
/// row may multiply numbers of other adapters by 0.
#[derive(Debug, Clone, Copy)]
pub struct LoraFactors<'a> {
    /// `A` of each projection, `[projections, ranks, in]`, f32 or bf16.
    pub a: &'a Tensor,
    /// `B` of each projection, `[sum of outputs, ranks]`, in the same format.
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

    /// Returns true if the kernels take an input `[rows, in]` of factors with a sum of ranks, in f32 or bf16.
    pub fn supports(x: &Tensor, ranks: i64) -> bool {
        let &[rows, width] = x.size().as_slice() else { return false };
        matches!(x.kind(), Kind::Float | Kind::BFloat16)
            && rows <= MAX_ROWS
            && width % PACK == 0
            && ranks % PACK == 0
            && (PACK..=MAX_RANKS).contains(&ranks)
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
        let &[projections, ranks, width] = factors.a.size().as_slice() else {
            return invalid("the factors A", "of three dimensions", factors.a);
        };
        if !Self::supports(x, ranks) {
            let expected =
                "at most 256 rows of a multiple of 8 numbers, of ranks of a multiple of 8 up to 256";
            return invalid("the input", expected, x);
        }
        if projections != factors.outputs.len() as i64 || !(1..=PROJECTIONS).contains(&factors.outputs.len())
        {
            return invalid("the factors A", "of as many projections as outputs, 1 to 3", factors.a);
        }
        let (kind, rows, device) = (x.kind(), x.size()[0], self.launcher.device());
        let columns: i64 = factors.outputs.iter().sum();
        expect("lora", "the input", x, kind, &[rows, width], device)?;
        expect("lora", "the factors A", factors.a, kind, &[projections, ranks, width], device)?;
        expect("lora", "the factors B", factors.b, kind, &[columns, ranks], device)?;
        expect("lora", "the scales", scales, Kind::Float, &[rows, ranks], device)?;
        expect("lora", "the output", y, kind, &[rows, columns], device)?;
        let aligned = |tensor: &Tensor| (tensor.data_ptr() as usize).is_multiple_of(16);
        for (name, tensor) in [("the input", x), ("the factors A", factors.a), ("the factors B", factors.b)] {
            if !aligned(tensor) {
                return invalid(name, "at an address that is a multiple of 16", tensor);
            }
        }
        if rows == 0 || columns == 0 {
            return Ok(());
        }
        let index = usize::from(kind == Kind::Float);
        let (shrink, expand) = (KERNELS[index], KERNELS[2 + index]);
        let count = |n: i64| Argument::Count(n as i32);
        no_grad(|| {
            let inner = Tensor::f_empty([rows, projections, ranks], (Kind::Float, device))?;
            let tensors = [x, factors.a, scales, &inner].map(Argument::tensor);
            let counts = [width, ranks, projections].map(count);
            let arguments: Vec<Argument> = tensors.into_iter().chain(counts).collect();
            let shared = 4 * ranks as u32;
            // SAFETY: the kernel's arguments in its order; the lines above ensure the kinds and sizes that it needs, and libtorch
            // frees tensors in the stream's order.
            unsafe {
                let shrink = Kernel { shared, ..shrink };
                self.launcher.launch(shrink, [rows as u32, projections as u32], &arguments)?;
            }
            let end = |projections: usize| factors.outputs.iter().take(projections).sum();
            let tensors = [&inner, factors.b, y].map(Argument::tensor);
            let counts = [rows, columns, ranks, projections, end(1), end(2)].map(count);
            let arguments: Vec<Argument> = tensors.into_iter().chain(counts).collect();
            let grid = [(columns as u64).div_ceil(u64::from(THREADS)), (rows as u64).div_ceil(ROWS as u64)];
            let shared = expand_shared(projections, ranks);
            // SAFETY: as above.
            unsafe {
                let expand = Kernel { shared, ..expand };
                self.launcher.launch(expand, grid.map(|blocks| blocks as u32), &arguments)
            }
        })
    }
}
