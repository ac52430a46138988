//! Forward and backward pass of the output head, a few rows at a time.
//!
//! Log-probabilities over a vocabulary of 50,000 and more are by far the largest tensor of a naive pass. Here
//! the detached hidden states of completion positions go through the head in chunks of [`CHUNK`] rows. The
//! results are log-probabilities and the gradient of the loss with respect to the hidden states, from which
//! one backward pass through the transformer starts.
//!
//! With logits `z = W h / T`, `p = softmax(z)` and the derivative `g` of the loss with respect to the
//! log-probability of token `y`, the gradient of a row has a closed form, so no autograd graph is needed:
//!
//! ```text
//! d/dz = g (onehot(y) - p)        d/dh = Wᵀ (d/dz) / T        d/dW = (d/dz) hᵀ / T
//! ```
//!
//! An entropy bonus adds its own gradient: with the derivative `e` of the loss with respect to the entropy `H` of a
//! row, `d/dz = -e p (ln p + H)`.
//!
//! A token that was sampled from a truncated distribution (top-k, top-p, min-p) has a list of the ids that it
//! was sampled from, its support. Its distribution is the softmax over the support alone: all other logits
//! are minus infinity.
//!
//! On CUDA devices with loaded kernels, rows without truncation and without an entropy bonus go through
//! [`pl_kernels::cuda::head`], which keeps no logits in memory and does not round them to the weights' format.

use std::ops::Range;
use std::sync::Arc;

use pl_kernels::cuda::head::{FusedHead, TokenHead};
use pl_kernels::cuda::{self, Kernels};
use pl_model::{WeightMatrix, add_outer};
use tch::{TchError, Tensor, no_grad};

/// Number of rows per chunk. 128 rows of 49,152 logits are 25 MB, and enough for the matrix products to run
/// at full speed.
pub const CHUNK: i64 = 128;

/// Number of rows per chunk of a head that keeps no logits in memory: enough to fill any GPU.
const KERNEL_CHUNK: i64 = 4096;

/// Input of the head: one row per completion token.
#[derive(Debug)]
pub struct HeadInput<'a> {
    /// `[N, H]`, hidden states from which the tokens are predicted; no gradient is tracked through them.
    pub hidden: &'a Tensor,
    /// `[N]` int64, sampled tokens.
    pub tokens: &'a Tensor,
    /// `[N]`, sampling temperatures. `None` if all are 1.
    pub temperatures: Option<&'a Tensor>,
    /// Ids that each token was sampled from. `None` if no distribution was truncated.
    pub support: Option<&'a SampledSupport>,
}

/// Lists of the ids that each row's token was sampled from, end to end. An empty list stands for the whole
/// vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SampledSupport {
    /// Start of each row's ids, and the end of the last row's.
    offsets: Vec<usize>,
    ids: Vec<i64>,
}

impl Default for SampledSupport {
    fn default() -> Self {
        Self { offsets: vec![0], ids: Vec::new() }
    }
}

impl SampledSupport {
    /// Appends a row; an empty list stands for the whole vocabulary.
    pub fn push(&mut self, ids: &[u32]) {
        self.ids.extend(ids.iter().map(|id| i64::from(*id)));
        self.offsets.push(self.ids.len());
    }

    /// Returns true if any row is truncated.
    pub fn is_truncated(&self) -> bool {
        !self.ids.is_empty()
    }

    /// Sets the logits of ids outside of the support to minus infinity. `logits` are those of the rows from
    /// `first` on. Returns true if any of them is truncated.
    fn mask(&self, logits: &mut Tensor, first: usize) -> Result<bool, TchError> {
        let offsets = self.offsets.get(first..).unwrap_or(&[]);
        let (mut truncated, mut rows) = (Vec::new(), Vec::new());
        let mut ids = Vec::new();
        for (row, bounds) in offsets.windows(2).take(logits.size()[0] as usize).enumerate() {
            let own = &self.ids[bounds[0]..bounds[1]];
            if own.is_empty() {
                continue;
            }
            truncated.push(row as i64);
            rows.extend(std::iter::repeat_n(row as i64, own.len()));
            ids.extend_from_slice(own);
        }
        if truncated.is_empty() {
            return Ok(false);
        }
        let device = logits.device();
        let column = |values: &[i64]| Tensor::f_from_slice(values)?.f_to_device(device);
        let (truncated, cells) = (column(&truncated)?, [Some(column(&rows)?), Some(column(&ids)?)]);
        let values = logits.f_index(&cells)?;
        let _ = logits.f_index_fill_(0, &truncated, f64::NEG_INFINITY)?;
        let _ = logits.f_index_put_(&cells, &values, false)?;
        Ok(true)
    }
}

/// Output of the head.
#[derive(Debug)]
pub struct HeadOutput {
    /// `[N, H]`, gradient of the loss with respect to the hidden states.
    pub hidden_gradient: Tensor,
    /// `[N]`, entropy of each row's distribution in nats, if requested.
    pub entropy: Option<Tensor>,
}

/// Settings of a pass through the head.
#[derive(Debug, Clone, Copy)]
pub struct HeadOptions<'a> {
    /// Computes the entropy of each row.
    pub entropy: bool,
    /// `[N]`, derivatives of the loss with respect to the entropy of each row. `None` without an entropy bonus.
    pub entropy_slopes: Option<&'a Tensor>,
    /// Number of rows per chunk, unless kernels compute the head.
    pub chunk: i64,
    /// `[V, H]`, tensor that the gradient of `unembed` is added to, if it is trained.
    pub unembed_gradient: Option<&'a Tensor>,
}

/// Runs the head forward and backward over all rows.
///
/// `derivative` receives a range of rows and their log-probabilities and returns the derivative of the loss
/// with respect to them; it is called once per chunk, in order. `unembed` is `[V, H]`.
///
/// # Errors
/// If libtorch fails.
pub fn forward_backward(
    input: &HeadInput<'_>,
    unembed: &WeightMatrix,
    options: &HeadOptions<'_>,
    mut derivative: impl FnMut(Range<i64>, &Tensor) -> Result<Tensor, TchError>,
) -> Result<HeadOutput, TchError> {
    if options.entropy_slopes.is_none()
        && let Some((kernels, unembed)) = kernels(input, unembed)
    {
        let head = FusedHead::new(kernels);
        return without_logits(&head, input, unembed, options, KERNEL_CHUNK, derivative);
    }
    let hidden_gradient = no_grad(|| input.hidden.f_empty_like())?;
    let mut entropies = Vec::new();
    for rows in chunks(0..input.tokens.size()[0], options.chunk) {
        let part = |tensor: &Tensor| tensor.f_narrow(0, rows.start, rows.end - rows.start);
        let Chunk { hidden, token, temperature, log_probabilities, is_truncated, logp } =
            Chunk::forward(input, unembed, &rows)?;
        let slope = derivative(rows.clone(), &logp)?;
        no_grad(|| {
            let slope = slope.f_unsqueeze(1)?;
            let mut logits = log_probabilities;
            let mut bonus = None;
            let mut gradient = if options.entropy || options.entropy_slopes.is_some() {
                let probabilities = logits.f_exp()?;
                if is_truncated {
                    // Avoids 0 * -inf = NaN.
                    let _ = logits.f_clamp_min_(f64::from(f32::MIN))?;
                }
                let weighted = match options.entropy_slopes {
                    Some(_) => logits.f_mul(&probabilities)?,
                    None => logits.f_mul_(&probabilities)?,
                };
                let entropy = weighted.f_sum_dim_intlist(-1, false, logits.kind())?.f_neg()?;
                if let Some(slopes) = options.entropy_slopes {
                    let _ = logits.f_add_(&entropy.f_unsqueeze(1)?)?;
                    let _ = logits.f_mul_(&probabilities)?;
                    bonus = Some(logits.f_mul_(&part(slopes)?.f_neg()?.f_unsqueeze(1)?)?);
                }
                entropies.push(entropy);
                probabilities
            } else {
                logits.f_exp_()?
            };
            let _ = gradient.f_mul_(&slope.f_neg()?)?;
            let _ = gradient.f_scatter_add_(1, &token, &slope)?;
            if let Some(bonus) = bonus {
                let _ = gradient.f_add_(&bonus)?;
            }
            if let Some(temperature) = &temperature {
                let _ = gradient.f_div_(temperature)?;
            }
            let narrow = gradient.f_to_kind(unembed.kind())?;
            part(&hidden_gradient)?.f_copy_(&unembed.linear_backward(&narrow)?)?;
            if let Some(total) = options.unembed_gradient {
                add_outer(total, &gradient, &hidden.f_to_kind(gradient.kind())?)?;
            }
            Ok::<_, TchError>(())
        })?;
    }
    let entropy = if options.entropy { Some(Tensor::f_cat(&entropies, 0)?) } else { None };
    Ok(HeadOutput { hidden_gradient, entropy })
}

/// Returns the log-probabilities of the tokens of some rows, without a gradient. `unembed` is `[V, H]`.
///
/// # Errors
/// If libtorch fails.
pub fn logprobs(
    input: &HeadInput<'_>,
    rows: Range<i64>,
    unembed: &WeightMatrix,
    chunk: i64,
) -> Result<Tensor, TchError> {
    let mut logps = Vec::new();
    if let Some((kernels, unembed)) = kernels(input, unembed) {
        let head = FusedHead::new(kernels);
        for rows in chunks(rows, KERNEL_CHUNK) {
            let part = |tensor: &Tensor| tensor.f_narrow(0, rows.start, rows.end - rows.start);
            let (hidden, tokens) = (part(input.hidden)?, part(input.tokens)?);
            let temperatures = input.temperatures.map(part).transpose()?;
            let temperatures = temperatures.as_ref();
            let rows = cuda::head::HeadRows { hidden: &hidden, tokens: &tokens, temperatures };
            logps.push(head.forward(&rows, unembed)?.logp);
        }
    } else {
        for rows in chunks(rows, chunk) {
            logps.push(Chunk::forward(input, unembed, &rows)?.logp);
        }
    }
    Tensor::f_cat(&logps, 0)
}

/// Divides rows into ranges of at most `length`.
fn chunks(rows: Range<i64>, length: i64) -> impl Iterator<Item = Range<i64>> {
    let end = rows.end;
    rows.step_by(length.max(1) as usize).map(move |start| start..(start + length).min(end))
}

/// Forward pass of some rows.
struct Chunk {
    hidden: Tensor,
    /// `[n, 1]`, as are the temperatures.
    token: Tensor,
    temperature: Option<Tensor>,
    /// `[n, V]`, normalised.
    log_probabilities: Tensor,
    /// True if the distribution of any row is truncated; the log-probabilities of other ids are minus infinity.
    is_truncated: bool,
    /// `[n]`, log-probabilities of the rows' tokens.
    logp: Tensor,
}

impl Chunk {
    fn forward(input: &HeadInput<'_>, unembed: &WeightMatrix, rows: &Range<i64>) -> Result<Self, TchError> {
        let part = |tensor: &Tensor| tensor.f_narrow(0, rows.start, rows.end - rows.start);
        let column = |tensor: &Tensor| part(tensor)?.f_unsqueeze(1);
        no_grad(|| {
            let hidden = part(input.hidden)?;
            let token = column(input.tokens)?;
            let temperature = input.temperatures.map(column).transpose()?;
            let mut logits = unembed.logits(&hidden)?;
            if let Some(temperature) = &temperature {
                let _ = logits.f_div_(temperature)?;
            }
            let is_truncated = match input.support {
                Some(support) => support.mask(&mut logits, rows.start as usize)?,
                None => false,
            };
            let normalizer = logits.f_logsumexp(-1, true)?;
            let _ = logits.f_sub_(&normalizer)?;
            let logp = logits.f_gather(1, &token, false)?.f_squeeze_dim(1)?;
            Ok(Self { hidden, token, temperature, log_probabilities: logits, is_truncated, logp })
        })
    }
}

/// Kernels of the rows' device, and the output matrix for them. Returns `None` if they are not loaded or don't support the
/// input.
fn kernels<'a>(input: &HeadInput<'_>, unembed: &'a WeightMatrix) -> Option<(Arc<Kernels>, &'a Tensor)> {
    let (open, unembed) = (cuda::opened(input.hidden.device())?, unembed.tensor()?);
    (input.support.is_none() && FusedHead::supports(input.hidden, unembed)).then_some((open, unembed))
}

/// [`forward_backward`] with a head that computes logits twice instead of keeping them, in chunks of `chunk` rows.
fn without_logits(
    head: &dyn TokenHead,
    input: &HeadInput<'_>,
    unembed: &Tensor,
    options: &HeadOptions<'_>,
    chunk: i64,
    mut derivative: impl FnMut(Range<i64>, &Tensor) -> Result<Tensor, TchError>,
) -> Result<HeadOutput, TchError> {
    let count = input.hidden.size()[0];
    let (mut gradients, mut entropies) = (Vec::new(), Vec::new());
    let mut start = 0;
    while start < count {
        let length = chunk.min(count - start);
        let part = |tensor: &Tensor| tensor.f_narrow(0, start, length);
        let (hidden, tokens) = (part(input.hidden)?, part(input.tokens)?);
        let temperatures = input.temperatures.map(part).transpose()?;
        let rows =
            cuda::head::HeadRows { hidden: &hidden, tokens: &tokens, temperatures: temperatures.as_ref() };
        let scores = head.forward(&rows, unembed)?;
        let slopes = derivative(start..start + length, &scores.logp)?;
        gradients.push(head.backward(&rows, unembed, &scores, &slopes, options.unembed_gradient)?);
        entropies.push(scores.entropy);
        start += length;
    }
    // The head computes the entropies in any case.
    let entropy = if options.entropy { Some(Tensor::f_cat(&entropies, 0)?) } else { None };
    Ok(HeadOutput { hidden_gradient: Tensor::f_cat(&gradients, 0)?, entropy })
}

#[cfg(test)]
mod tests;
