//! The output head without its logits in memory: log-probability and entropy of tokens from hidden states, and the
//! way back.
//!
//! A naive head computes logits `[rows, vocabulary]` and rounds them to the number format of the weights, which for
//! bf16 costs a log-probability two of its digits. Here logits live in the registers of the threads that use them, in
//! f32 ([`Fused`], `head.cu`). On the way back they are computed again, a part of the vocabulary at a time, and what
//! comes of them (their gradient, in the format of the weights) goes through two of libtorch's matrix products:
//!
//! ```text
//! z = W h / T    p = softmax(z)    d/dz = g (onehot(token) - p)    d/dh = Wᵀ (d/dz) / T    d/dW = (d/dz) hᵀ / T
//! ```
//!
//! [`Twin`] is the same in plain libtorch, on any device: what the kernels are tested against and measured beside.

mod twin;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tch::{Device, Kind, TchError, Tensor, no_grad};

pub use twin::Twin;

use super::launch::{Argument, Kernel, Launch};
use super::{Error, Kernels, Source};

/// The kernels' source.
pub const SOURCE: Source = Source { name: "head.cu", text: include_str!("head.cu") };

/// Rows of a tile, and ids; as in the source, like all numbers below.
const TILE: i64 = 128;
const THREADS: u32 = 256;
/// Three stages of two matrices' slices, of 128 rows of 80 bytes each.
const SHARED: u32 = 3 * 2 * 128 * 80;
/// Ids that one block goes through.
const SPAN: i64 = 2048;

/// Ids whose logits' gradient is in memory at a time: with 4,096 rows in bf16, 64 MiB. It does not depend on the
/// number of rows, so that the order of a row's sums doesn't either.
const PART: i64 = 8192;

pub(super) const KERNELS: [Kernel; 5] = [
    Kernel { name: "partial_sums_bf16", threads: THREADS, shared: SHARED },
    Kernel { name: "partial_sums_f32", threads: THREADS, shared: SHARED },
    Kernel { name: "merge_sums", threads: THREADS, shared: 0 },
    Kernel { name: "logit_gradient_bf16", threads: THREADS, shared: SHARED },
    Kernel { name: "logit_gradient_f32", threads: THREADS, shared: SHARED },
];
const MERGE_SUMS: Kernel = KERNELS[2];

/// What goes through the head, one row per token. All on one device.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    /// `[N, H]`, the hidden state from which each token was predicted.
    pub hidden: &'a Tensor,
    /// `[N]` int64, the tokens.
    pub tokens: &'a Tensor,
    /// `[N]` f32, what logits are divided by, above 0; none where it is 1 for all.
    pub temperatures: Option<&'a Tensor>,
}

/// What comes out. All are `[N]`, f32.
#[derive(Debug)]
pub struct Scores {
    /// Log-probability of each row's token, in nats; NaN where the token is outside of the vocabulary.
    pub logp: Tensor,
    /// Entropy of each row's distribution, in nats.
    pub entropy: Tensor,
    /// Log of the sum of the exponentials of each row's logits.
    pub normalizer: Tensor,
}

/// A head, forwards and backwards. No gradients are recorded.
pub trait TokenHead {
    /// Scores the rows' tokens. `unembed` is `[V, H]`, of the kind of the hidden states.
    fn forward(&self, rows: &Rows<'_>, unembed: &Tensor) -> Result<Scores, Error>;

    /// The gradient of a loss with respect to the hidden states, `[N, H]`, of their kind. `slopes`, `[N]` f32, are
    /// the derivatives of the loss with respect to the log-probabilities; `scores` are what `forward` gave for the
    /// same rows. The gradient with respect to `unembed` is added to `unembed_gradient` where there is one.
    fn backward(
        &self,
        rows: &Rows<'_>,
        unembed: &Tensor,
        scores: &Scores,
        slopes: &Tensor,
        unembed_gradient: Option<&Tensor>,
    ) -> Result<Tensor, Error>;
}

/// The head by the kernels of this folder: f32 and bf16, any measures.
pub struct Fused {
    launcher: Arc<dyn Launch>,
}

impl Fused {
    /// On a device whose kernels are open.
    pub fn new(kernels: Arc<Kernels>) -> Self {
        Self { launcher: kernels }
    }

    /// Whether it takes such tensors; all else about them is for the caller to get right.
    pub fn takes(hidden: &Tensor, unembed: &Tensor) -> bool {
        Format::of(hidden.kind()).is_some() && hidden.kind() == unembed.kind()
    }

    fn check(&self, rows: &Rows<'_>, unembed: &Tensor) -> Result<Measures, Error> {
        let device = self.launcher.device();
        let Some(format) = Format::of(rows.hidden.kind()) else {
            return Err(wrong("the hidden states", "f32 or bf16", rows.hidden));
        };
        let (hidden, matrix) = (rows.hidden.size(), unembed.size());
        let (&[count, width], &[vocabulary, _]) = (hidden.as_slice(), matrix.as_slice()) else {
            return Err(wrong("the hidden states or the output matrix", "a matrix", rows.hidden));
        };
        let measures = Measures { format, rows: count, width, vocabulary };
        // Counts go to the kernels as 32-bit integers, with a tile to spare.
        let largest = i64::from(i32::MAX) - TILE;
        if width == 0 || vocabulary == 0 || [count, width, vocabulary].iter().any(|&n| n > largest) {
            return Err(wrong("the output matrix", "of measures from 1 to 2³¹", unembed));
        }
        expect("the hidden states", rows.hidden, format.kind(), &[count, width], device)?;
        expect("the output matrix", unembed, format.kind(), &[vocabulary, width], device)?;
        expect("the tokens", rows.tokens, Kind::Int64, &[count], device)?;
        if let Some(temperatures) = rows.temperatures {
            expect("the temperatures", temperatures, Kind::Float, &[count], device)?;
        }
        Ok(measures)
    }

    fn sums(&self, rows: &Rows<'_>, unembed: &Tensor, measures: &Measures) -> Result<Scores, Error> {
        let options = (Kind::Float, rows.hidden.device());
        let column = || Tensor::f_empty([measures.rows], options);
        let scores = Scores { logp: column()?, entropy: column()?, normalizer: column()? };
        if measures.rows == 0 {
            return Ok(scores);
        }
        let spans = measures.vocabulary.div_euclid(SPAN) + i64::from(measures.vocabulary % SPAN != 0);
        let partial = Tensor::f_empty([spans, 3, measures.rows], options)?;
        // A token outside of the vocabulary meets no logit.
        let picked = Tensor::f_full([measures.rows], f64::NAN, options)?;
        let [count, width, vocabulary] = measures.counts();
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
        let grid = [tiles(measures.rows), spans as u32];
        // SAFETY: the kernel's arguments in its order; `check` and the lines above made the tensors of the kinds and
        // measures that it goes by, and libtorch frees them in the stream's order.
        unsafe { self.launcher.launch(measures.format.partial_sums(), grid, &arguments)? };
        let arguments = [
            Argument::tensor(&partial),
            Argument::tensor(&picked),
            Argument::tensor(&scores.logp),
            Argument::tensor(&scores.entropy),
            Argument::tensor(&scores.normalizer),
            Argument::Count(count),
            Argument::Count(spans as i32),
        ];
        let blocks = (measures.rows as u64).div_ceil(u64::from(THREADS)) as u32;
        // SAFETY: as above.
        unsafe { self.launcher.launch(MERGE_SUMS, [blocks, 1], &arguments)? };
        Ok(scores)
    }

    /// The gradient with respect to `W h` of `count` ids from `first` on, `[N, count]`.
    fn logit_gradient(
        &self,
        rows: &Rows<'_>,
        unembed: &Tensor,
        measures: &Measures,
        normalizer: &Tensor,
        slopes: &Tensor,
        (first, count): (i64, i64),
    ) -> Result<Tensor, Error> {
        let gradient =
            Tensor::f_empty([measures.rows, count], (measures.format.kind(), rows.hidden.device()))?;
        let [total, width, vocabulary] = measures.counts();
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
        let grid = [tiles(measures.rows), tiles(count)];
        // SAFETY: as in `sums`; `backward` checked the normalizers and slopes.
        unsafe { self.launcher.launch(measures.format.logit_gradient(), grid, &arguments)? };
        Ok(gradient)
    }
}

impl TokenHead for Fused {
    fn forward(&self, rows: &Rows<'_>, unembed: &Tensor) -> Result<Scores, Error> {
        let measures = self.check(rows, unembed)?;
        no_grad(|| self.sums(rows, unembed, &measures))
    }

    fn backward(
        &self,
        rows: &Rows<'_>,
        unembed: &Tensor,
        scores: &Scores,
        slopes: &Tensor,
        unembed_gradient: Option<&Tensor>,
    ) -> Result<Tensor, Error> {
        let measures = self.check(rows, unembed)?;
        let device = self.launcher.device();
        expect("the normalizers", &scores.normalizer, Kind::Float, &[measures.rows], device)?;
        expect("the slopes", slopes, Kind::Float, &[measures.rows], device)?;
        no_grad(|| {
            let hidden = rows.hidden;
            // A sum over parts of the vocabulary wants more than 16 bits.
            let total = Tensor::f_zeros(hidden.size(), (Kind::Float, hidden.device()))?;
            if measures.rows == 0 {
                return Ok(total.f_to_kind(hidden.kind())?);
            }
            let mut first = 0;
            while first < measures.vocabulary {
                let count = PART.min(measures.vocabulary - first);
                let gradient = self.logit_gradient(
                    rows,
                    unembed,
                    &measures,
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

/// Number formats that there are kernels for.
#[derive(Debug, Clone, Copy)]
enum Format {
    F32,
    Bf16,
}

impl Format {
    fn of(kind: Kind) -> Option<Self> {
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

/// What rows and an output matrix measure.
struct Measures {
    format: Format,
    rows: i64,
    width: i64,
    vocabulary: i64,
}

impl Measures {
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

/// Whether a tensor is what a kernel goes by: kind, shape, device, and its numbers end to end.
fn expect(
    name: &'static str,
    tensor: &Tensor,
    kind: Kind,
    shape: &[i64],
    device: Device,
) -> Result<(), Error> {
    let right = tensor.kind() == kind
        && tensor.size() == shape
        && tensor.device() == device
        && tensor.is_contiguous();
    if right {
        return Ok(());
    }
    Err(wrong(name, &format!("{kind:?} {shape:?} on {device:?}, contiguous"), tensor))
}

fn wrong(tensor: &'static str, expected: &str, got: &Tensor) -> Error {
    let laid_out = if got.is_contiguous() { "contiguous" } else { "not contiguous" };
    let got = format!("{:?} {:?} on {:?}, {laid_out}", got.kind(), got.size(), got.device());
    Error::Tensor { kernel: "head", tensor, expected: expected.to_owned(), got }
}

/// For callers that speak libtorch's errors alone.
impl From<Error> for TchError {
    fn from(error: Error) -> Self {
        match error {
            Error::Torch(error) => error,
            error => TchError::Io(std::io::Error::other(error)),
        }
    }
}
