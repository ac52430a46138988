//! The output head without its logits in memory: log-probability and entropy of tokens from hidden states,
//! and their gradient.
//!
//! A naive head computes logits `[rows, vocabulary]` and rounds them to the number format of the weights; in
//! bf16, a log-probability loses two digits by that. Here logits stay in the registers of the threads that
//! use them, in f32 ([`FusedHead`], `head.cu`). The backward pass computes them again, a part of the
//! vocabulary at a time, and their gradient, in the format of the weights, is the input of two of libtorch's
//! matrix products:
//!
//! ```text
//! z = W h / T    p = softmax(z)    d/dz = g (onehot(token) - p)    d/dh = Wᵀ (d/dz) / T    d/dW = (d/dz) hᵀ / T
//! ```
//!
//! [`ReferenceHead`] is the same in plain libtorch, on any device; tests and benchmarks compare the kernels
//! with it.

mod interface;
mod reference;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tch::{Device, Kind, Tensor, no_grad};

pub use interface::{HeadOutput, HeadRows, TokenHead};
pub use reference::ReferenceHead;

use super::compile::KernelSource;
use super::error::Error;
use super::launch::{Argument, Kernel, Kernels, Launch};
use super::tensors;

/// Source of the kernels.
pub const SOURCE: KernelSource = KernelSource { name: "head.cu", text: include_str!("head.cu") };

/// Number of rows of a tile, and of ids. The source has the same value, as of all constants below.
const TILE: i64 = 128;
const THREADS: u32 = 256;
/// Three stages of slices of two matrices, each with 128 rows of 80 bytes.
const SHARED: u32 = 3 * 2 * 128 * 80;
/// Number of ids that one block processes.
const SPAN: i64 = 2048;

/// Number of ids whose logits' gradient is in memory at a time: with 4,096 rows in bf16, 64 MiB. It does not
/// depend on the number of rows, so that the order of a row's sums does not either.
const PART: i64 = 8192;

pub(super) const KERNELS: [Kernel; 5] = [
    Kernel { name: "partial_sums_bf16", threads: THREADS, shared: SHARED },
    Kernel { name: "partial_sums_f32", threads: THREADS, shared: SHARED },
    Kernel { name: "merge_sums", threads: THREADS, shared: 0 },
    Kernel { name: "logit_gradient_bf16", threads: THREADS, shared: SHARED },
    Kernel { name: "logit_gradient_f32", threads: THREADS, shared: SHARED },
];
const MERGE_SUMS: Kernel = KERNELS[2];

/// The head as kernels of this folder, for f32 and bf16 and all dimensions.
pub struct FusedHead {
    launcher: Arc<dyn Launch>,
}

impl FusedHead {
    /// Creates the head on a device whose kernels are open.
    pub fn new(kernels: Arc<Kernels>) -> Self {
        Self { launcher: kernels }
    }

    /// Returns true if the kernels support the kinds of these tensors.
    pub fn supports(hidden: &Tensor, unembed: &Tensor) -> bool {
        LogitFormat::from_kind(hidden.kind()).is_some() && hidden.kind() == unembed.kind()
    }

    fn check(&self, rows: &HeadRows<'_>, unembed: &Tensor) -> Result<Dimensions, Error> {
        let device = self.launcher.device();
        let Some(format) = LogitFormat::from_kind(rows.hidden.kind()) else {
            return Err(Error::tensor("head", "the hidden states", "f32 or bf16", rows.hidden));
        };
        let (hidden, matrix) = (rows.hidden.size(), unembed.size());
        let (&[count, width], &[vocabulary, _]) = (hidden.as_slice(), matrix.as_slice()) else {
            return Err(Error::tensor(
                "head",
                "the hidden states or the output matrix",
                "a matrix",
                rows.hidden,
            ));
        };
        let dimensions = Dimensions { format, rows: count, width, vocabulary };
        // Counts are 32-bit integers in the kernels, with room for one more tile.
        let largest = i64::from(i32::MAX) - TILE;
        if width == 0 || vocabulary == 0 || [count, width, vocabulary].iter().any(|&n| n > largest) {
            return Err(Error::tensor("head", "the output matrix", "of dimensions from 1 to 2³¹", unembed));
        }
        expect("the hidden states", rows.hidden, format.kind(), &[count, width], device)?;
        expect("the output matrix", unembed, format.kind(), &[vocabulary, width], device)?;
        expect("the tokens", rows.tokens, Kind::Int64, &[count], device)?;
        if let Some(temperatures) = rows.temperatures {
            expect("the temperatures", temperatures, Kind::Float, &[count], device)?;
        }
        Ok(dimensions)
    }

    fn sums(
        &self,
        rows: &HeadRows<'_>,
        unembed: &Tensor,
        dimensions: &Dimensions,
    ) -> Result<HeadOutput, Error> {
        let options = (Kind::Float, rows.hidden.device());
        let column = || Tensor::f_empty([dimensions.rows], options);
        let scores = HeadOutput { logp: column()?, entropy: column()?, normalizer: column()? };
        if dimensions.rows == 0 {
            return Ok(scores);
        }
        let spans = dimensions.vocabulary.div_euclid(SPAN) + i64::from(dimensions.vocabulary % SPAN != 0);
        let partial = Tensor::f_empty([spans, 3, dimensions.rows], options)?;
        // Stays NaN for a token outside of the vocabulary, which has no logit.
        let picked = Tensor::f_full([dimensions.rows], f64::NAN, options)?;
        let [count, width, vocabulary] = dimensions.counts();
        let arguments = [
            Argument::tensor(rows.hidden),
            Argument::tensor(unembed),
            Argument::tensor(rows.tokens),
            optional(rows.temperatures),
            Argument::tensor(&partial),
            Argument::tensor(&picked),
            Argument::Count(count),
            Argument::Count(width),
            Argument::Count(vocabulary),
        ];
        let grid = [tiles(dimensions.rows), spans as u32];
        // SAFETY: the kernel's arguments in its order; `check` and the lines above ensure the kinds and
        // dimensions that it needs, and libtorch frees tensors in the stream's order.
        unsafe { self.launcher.launch(dimensions.format.partial_sums(), grid, &arguments)? };
        let arguments = [
            Argument::tensor(&partial),
            Argument::tensor(&picked),
            Argument::tensor(&scores.logp),
            Argument::tensor(&scores.entropy),
            Argument::tensor(&scores.normalizer),
            Argument::Count(count),
            Argument::Count(spans as i32),
        ];
        let blocks = (dimensions.rows as u64).div_ceil(u64::from(THREADS)) as u32;
        // SAFETY: as above.
        unsafe { self.launcher.launch(MERGE_SUMS, [blocks, 1], &arguments)? };
        Ok(scores)
    }

    /// Returns the gradient with respect to `W h` of `count` ids from `first` on, `[N, count]`.
    fn logit_gradient(
        &self,
        rows: &HeadRows<'_>,
        unembed: &Tensor,
        dimensions: &Dimensions,
        normalizer: &Tensor,
        slopes: &Tensor,
        (first, count): (i64, i64),
    ) -> Result<Tensor, Error> {
        let gradient =
            Tensor::f_empty([dimensions.rows, count], (dimensions.format.kind(), rows.hidden.device()))?;
        let [total, width, vocabulary] = dimensions.counts();
        let arguments = [
            Argument::tensor(rows.hidden),
            Argument::tensor(unembed),
            Argument::tensor(rows.tokens),
            optional(rows.temperatures),
            Argument::tensor(normalizer),
            Argument::tensor(slopes),
            Argument::tensor(&gradient),
            Argument::Count(total),
            Argument::Count(width),
            Argument::Count(vocabulary),
            Argument::Count(first as i32),
            Argument::Count(count as i32),
        ];
        let grid = [tiles(dimensions.rows), tiles(count)];
        // SAFETY: as in `sums`; `backward` checked the normalizers and slopes.
        unsafe { self.launcher.launch(dimensions.format.logit_gradient(), grid, &arguments)? };
        Ok(gradient)
    }
}

impl TokenHead for FusedHead {
    fn forward(&self, rows: &HeadRows<'_>, unembed: &Tensor) -> Result<HeadOutput, Error> {
        let dimensions = self.check(rows, unembed)?;
        no_grad(|| self.sums(rows, unembed, &dimensions))
    }

    fn backward(
        &self,
        rows: &HeadRows<'_>,
        unembed: &Tensor,
        scores: &HeadOutput,
        slopes: &Tensor,
        unembed_gradient: Option<&Tensor>,
    ) -> Result<Tensor, Error> {
        let dimensions = self.check(rows, unembed)?;
        let device = self.launcher.device();
        expect("the normalizers", &scores.normalizer, Kind::Float, &[dimensions.rows], device)?;
        expect("the slopes", slopes, Kind::Float, &[dimensions.rows], device)?;
        no_grad(|| {
            let hidden = rows.hidden;
            // A sum over parts of the vocabulary needs more than 16 bits.
            let total = Tensor::f_zeros(hidden.size(), (Kind::Float, hidden.device()))?;
            if dimensions.rows == 0 {
                return Ok(total.f_to_kind(hidden.kind())?);
            }
            let mut first = 0;
            while first < dimensions.vocabulary {
                let count = PART.min(dimensions.vocabulary - first);
                let gradient = self.logit_gradient(
                    rows,
                    unembed,
                    &dimensions,
                    &scores.normalizer,
                    slopes,
                    (first, count),
                )?;
                let part = |tensor: &Tensor| tensor.f_narrow(0, first, count);
                let _ = total.shallow_clone().f_add_(&gradient.f_mm(&part(unembed)?)?)?;
                if let Some(unembed_gradient) = unembed_gradient {
                    let _ = part(unembed_gradient)?.f_add_(&gradient.f_tr()?.f_mm(hidden)?)?;
                }
                first += count;
            }
            Ok(total.f_to_kind(hidden.kind())?)
        })
    }
}

/// Number formats of the kernels.
#[derive(Debug, Clone, Copy)]
enum LogitFormat {
    F32,
    Bf16,
}

impl LogitFormat {
    fn from_kind(kind: Kind) -> Option<Self> {
        match kind {
            Kind::Float => Some(Self::F32),
            Kind::BFloat16 => Some(Self::Bf16),
            _ => None,
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::F32 => Kind::Float,
            Self::Bf16 => Kind::BFloat16,
        }
    }

    fn partial_sums(self) -> Kernel {
        match self {
            Self::Bf16 => KERNELS[0],
            Self::F32 => KERNELS[1],
        }
    }

    fn logit_gradient(self) -> Kernel {
        match self {
            Self::Bf16 => KERNELS[3],
            Self::F32 => KERNELS[4],
        }
    }
}

/// Dimensions of rows and an output matrix.
struct Dimensions {
    format: LogitFormat,
    rows: i64,
    width: i64,
    vocabulary: i64,
}

impl Dimensions {
    fn counts(&self) -> [i32; 3] {
        [self.rows, self.width, self.vocabulary].map(|n| n as i32)
    }
}

fn tiles(count: i64) -> u32 {
    (count as u64).div_ceil(TILE as u64) as u32
}

fn optional(tensor: Option<&Tensor>) -> Argument {
    tensor.map_or(Argument::Pointer(0), Argument::tensor)
}

/// Checks a tensor of the head.
fn expect(
    name: &'static str,
    tensor: &Tensor,
    kind: Kind,
    shape: &[i64],
    device: Device,
) -> Result<(), Error> {
    tensors::expect("head", name, tensor, kind, shape, device)
}
