//! The output head of a training pass, forwards and backwards, a few rows at a time.
//!
//! Log-probabilities over a vocabulary of 50,000 and more are by far the largest tensor of a naive pass. Here
//! hidden states of completion positions come in detached, go through the head in chunks of [`CHUNK`] rows, and
//! leave as log-probabilities and as the loss's gradient with respect to the hidden states. One backward pass
//! through the transformer then starts from that gradient.
//!
//! With logits `z = W h / T`, `p = softmax(z)` and the derivative `g` of the loss with respect to the
//! log-probability of token `y`, the gradient of a row is known in closed form, so no autograd graph is kept:
//!
//! ```text
//! d/dz = g (onehot(y) - p)        d/dh = Wᵀ (d/dz) / T        d/dW = (d/dz) hᵀ / T
//! ```
//!
//! A token that was drawn from a part of the vocabulary (top-k, top-p, min-p) comes with the ids that its sampler
//! kept. Its distribution is the softmax over these alone: all other logits count as minus infinity.
//!
//! On CUDA devices whose kernels are open, rows that were all drawn from the whole vocabulary go through
//! [`pl_kernels::cuda::head`], which has no logits in memory and does not round them to the weights' format.

use std::ops::Range;
use std::sync::Arc;

use pl_kernels::cuda::head::{Fused, TokenHead};
use pl_kernels::cuda::{self, Kernels};
use pl_model::{add_outer, linear};
use tch::{Kind, TchError, Tensor, no_grad};

/// Rows of the head at a time. 128 rows of 49,152 logits are 25 MB, and enough for the matrix products to run at
/// full speed.
pub const CHUNK: i64 = 128;

/// Rows at a time through a head that has no logits in memory: enough to fill any GPU.
const KERNEL_CHUNK: i64 = 4096;

/// What goes through the head: one row per completion token.
#[derive(Debug)]
pub struct Rows<'a> {
    /// `[N, H]`, the hidden state from which each token was predicted; no gradient is tracked through it.
    pub hidden: &'a Tensor,
    /// `[N]` int64, the token that was sampled.
    pub tokens: &'a Tensor,
    /// `[N]`, the temperature it was sampled with; none where all are 1.
    pub temperatures: Option<&'a Tensor>,
    /// The ids that each was drawn from; none where all were drawn from the whole vocabulary.
    pub kept: Option<&'a Kept>,
}

/// Per row, the ids that a sampler kept, end to end. A row without any was drawn from the whole vocabulary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Where each row's ids begin, and where the last ones end.
    offsets: Vec<usize>,
    ids: Vec<i64>,
}

impl Default for Kept {
    fn default() -> Self {
        Kept { offsets: vec![0], ids: Vec::new() }
    }
}

impl Kept {
    /// Appends a row.
    pub fn push(&mut self, ids: &[u32]) {
        self.ids.extend(ids.iter().map(|id| i64::from(*id)));
        self.offsets.push(self.ids.len());
    }

    /// Whether any row has ids.
    pub fn restricts(&self) -> bool {
        !self.ids.is_empty()
    }

    /// Sets the logits of ids that were not kept to minus infinity. `logits` are those of the rows from `first`
    /// on. Says whether there were any.
    fn mask(&self, logits: &mut Tensor, first: usize) -> Result<bool, TchError> {
        let offsets = self.offsets.get(first..).unwrap_or(&[]);
        let (mut restricted, mut rows) = (Vec::new(), Vec::new());
        let mut ids = Vec::new();
        for (row, border) in offsets.windows(2).take(logits.size()[0] as usize).enumerate() {
            let own = &self.ids[border[0]..border[1]];
            if own.is_empty() {
                continue;
            }
            restricted.push(row as i64);
            rows.extend(std::iter::repeat_n(row as i64, own.len()));
            ids.extend_from_slice(own);
        }
        if restricted.is_empty() {
            return Ok(false);
        }
        let device = logits.device();
        let column = |values: &[i64]| Tensor::f_from_slice(values)?.f_to_device(device);
        let (restricted, cells) = (column(&restricted)?, [Some(column(&rows)?), Some(column(&ids)?)]);
        let values = logits.f_index(&cells)?;
        let _ = logits.f_index_fill_(0, &restricted, f64::NEG_INFINITY)?;
        let _ = logits.f_index_put_(&cells, &values, false)?;
        Ok(true)
    }
}

/// What comes out.
#[derive(Debug)]
pub struct Head {
    /// `[N, H]`, gradient of the loss with respect to the hidden states.
    pub hidden_gradient: Tensor,
    /// `[N]`, entropy of each row's distribution in nats, if asked for.
    pub entropy: Option<Tensor>,
}

/// Runs the head over all rows.
///
/// `derivative` gets a range of rows with their log-probabilities and returns the derivative of the loss with
/// respect to them; it is called once per chunk, in order. `unembed` is `[V, H]`; its gradient is added to
/// `unembed_gradient` where there is one.
pub fn run(
    rows: &Rows<'_>,
    unembed: &Tensor,
    want_entropy: bool,
    chunk: i64,
    unembed_gradient: Option<&Tensor>,
    mut derivative: impl FnMut(Range<i64>, &Tensor) -> Result<Tensor, TchError>,
) -> Result<Head, TchError> {
    if let Some(kernels) = kernels(rows, unembed) {
        let head = Fused::new(kernels);
        return without_logits(&head, rows, unembed, KERNEL_CHUNK, unembed_gradient, derivative);
    }
    let (count, width) = rows.hidden.size2()?;
    let hidden_gradient = no_grad(|| rows.hidden.f_empty_like())?;
    debug_assert_eq!(width, unembed.size()[1]);
    let mut entropies = Vec::new();
    let mut start = 0;
    while start < count {
        let length = chunk.min(count - start);
        let part = |tensor: &Tensor| tensor.f_narrow(0, start, length);
        let column = |tensor: &Tensor| part(tensor)?.f_unsqueeze(1);
        let (hidden, temperature, token, mut logits, masked, logp) = no_grad(|| {
            let hidden = part(rows.hidden)?;
            let token = column(rows.tokens)?;
            let temperature = rows.temperatures.map(column).transpose()?;
            let mut logits = wide(linear(&hidden, unembed)?)?;
            if let Some(temperature) = &temperature {
                let _ = logits.f_div_(temperature)?;
            }
            let masked = match rows.kept {
                Some(kept) => kept.mask(&mut logits, start as usize)?,
                None => false,
            };
            let normalizer = logits.f_logsumexp(-1, true)?;
            let _ = logits.f_sub_(&normalizer)?;
            let logp = logits.f_gather(1, &token, false)?.f_squeeze_dim(1)?;
            Ok::<_, TchError>((hidden, temperature, token, logits, masked, logp))
        })?;
        let slope = derivative(start..start + length, &logp)?;
        no_grad(|| {
            let slope = slope.f_unsqueeze(1)?;
            // `logits` holds normalised log-probabilities by now.
            let mut gradient = if want_entropy {
                let probabilities = logits.f_exp()?;
                if masked {
                    // Nothing times minus infinity is to be nothing.
                    let _ = logits.f_clamp_min_(f64::from(f32::MIN))?;
                }
                let _ = logits.f_mul_(&probabilities)?;
                entropies.push(logits.f_sum_dim_intlist(-1, false, Kind::Float)?.f_neg()?);
                probabilities
            } else {
                logits.f_exp_()?
            };
            let _ = gradient.f_mul_(&slope.f_neg()?)?;
            let _ = gradient.f_scatter_add_(1, &token, &slope)?;
            if let Some(temperature) = &temperature {
                let _ = gradient.f_div_(temperature)?;
            }
            let narrow = gradient.f_to_kind(unembed.kind())?;
            part(&hidden_gradient)?.f_copy_(&linear(&narrow, &unembed.f_tr()?)?)?;
            if let Some(total) = unembed_gradient {
                add_outer(total, &gradient, &hidden.f_to_kind(gradient.kind())?)?;
            }
            Ok::<_, TchError>(())
        })?;
        start += length;
    }
    let entropy = if want_entropy { Some(Tensor::f_cat(&entropies, 0)?) } else { None };
    Ok(Head { hidden_gradient, entropy })
}

/// The kernels of the rows' device, where they are open and can do what is asked.
fn kernels(rows: &Rows<'_>, unembed: &Tensor) -> Option<Arc<Kernels>> {
    let open = cuda::opened(rows.hidden.device())?;
    (rows.kept.is_none() && Fused::takes(rows.hidden, unembed)).then_some(open)
}

/// [`run`] through a head that computes logits twice instead of keeping them. The entropy comes with the rest.
fn without_logits(
    head: &dyn TokenHead,
    rows: &Rows<'_>,
    unembed: &Tensor,
    chunk: i64,
    unembed_gradient: Option<&Tensor>,
    mut derivative: impl FnMut(Range<i64>, &Tensor) -> Result<Tensor, TchError>,
) -> Result<Head, TchError> {
    let count = rows.hidden.size()[0];
    let (mut gradients, mut entropies) = (Vec::new(), Vec::new());
    let mut start = 0;
    while start < count {
        let length = chunk.min(count - start);
        let part = |tensor: &Tensor| tensor.f_narrow(0, start, length);
        let (hidden, tokens) = (part(rows.hidden)?, part(rows.tokens)?);
        let temperatures = rows.temperatures.map(part).transpose()?;
        let rows = cuda::head::Rows { hidden: &hidden, tokens: &tokens, temperatures: temperatures.as_ref() };
        let scores = head.forward(&rows, unembed)?;
        let slopes = derivative(start..start + length, &scores.logp)?;
        gradients.push(head.backward(&rows, unembed, &scores, &slopes, unembed_gradient)?);
        entropies.push(scores.entropy);
        start += length;
    }
    Ok(Head { hidden_gradient: Tensor::f_cat(&gradients, 0)?, entropy: Some(Tensor::f_cat(&entropies, 0)?) })
}

/// In f32 where it was narrower: a softmax over a vocabulary wants more than 16 bits.
fn wide(logits: Tensor) -> Result<Tensor, TchError> {
    match logits.kind() {
        Kind::Half | Kind::BFloat16 => logits.f_to_kind(Kind::Float),
        _ => Ok(logits),
    }
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::*;
    use crate::fixtures::close;

    const ROWS: i64 = 23;
    const WIDTH: i64 = 8;
    const VOCABULARY: i64 = 50;

    struct Case {
        hidden: Tensor,
        unembed: Tensor,
        tokens: Tensor,
        temperatures: Tensor,
        weights: Tensor,
        kept: Kept,
    }

    fn case() -> Case {
        tch::manual_seed(3);
        let options = (Kind::Float, Device::Cpu);
        let tokens = Tensor::randint(VOCABULARY, [ROWS], (Kind::Int64, Device::Cpu));
        // Every third row has the whole vocabulary; the first of the rest only the token itself.
        let mut kept = Kept::default();
        for (row, token) in Vec::<i64>::try_from(&tokens).unwrap().into_iter().enumerate() {
            let count = if row % 3 == 2 { 0 } else { row as i64 + 1 };
            kept.push(&(0..count).map(|i| ((token + i * 3) % VOCABULARY) as u32).collect::<Vec<_>>());
        }
        Case {
            kept,
            hidden: Tensor::randn([ROWS, WIDTH], options),
            unembed: Tensor::randn([VOCABULARY, WIDTH], options),
            tokens,
            temperatures: Tensor::rand([ROWS], options) + 0.5,
            weights: Tensor::randn([ROWS], options),
        }
    }

    impl Case {
        /// `[N, V]`: which ids a row's sampler left out.
        fn left_out(&self) -> Tensor {
            let mut left_out = vec![false; (ROWS * VOCABULARY) as usize];
            for (row, border) in self.kept.offsets.windows(2).enumerate() {
                let own = &self.kept.ids[border[0]..border[1]];
                for id in 0..VOCABULARY {
                    left_out[row * VOCABULARY as usize + id as usize] = !own.is_empty() && !own.contains(&id);
                }
            }
            Tensor::from_slice(&left_out).view([ROWS, VOCABULARY])
        }
    }

    /// The loss is `sum(weights · logp²)`: its derivative depends on the log-probabilities.
    fn chunked(case: &Case, temperatures: bool, kept: bool, chunk: i64) -> (Tensor, Head, Tensor) {
        let rows = Rows {
            hidden: &case.hidden,
            tokens: &case.tokens,
            temperatures: temperatures.then_some(&case.temperatures),
            kept: kept.then_some(&case.kept),
        };
        let unembed_gradient = case.unembed.zeros_like();
        let mut logps = Vec::new();
        let head = run(&rows, &case.unembed, true, chunk, Some(&unembed_gradient), |range, logp| {
            logps.push(logp.shallow_clone());
            let weights = case.weights.narrow(0, range.start, range.end - range.start);
            Ok(weights * logp * 2.0)
        })
        .unwrap();
        (Tensor::cat(&logps, 0), head, unembed_gradient)
    }

    #[test]
    fn equals_autograd_on_the_full_tensor() {
        for (temperatures, kept) in [(false, false), (true, false), (false, true), (true, true)] {
            let case = case();
            let (logp, head, unembed_gradient) = chunked(&case, temperatures, kept, 5);

            let hidden = case.hidden.copy().set_requires_grad(true);
            let unembed = case.unembed.copy().set_requires_grad(true);
            let mut logits = hidden.mm(&unembed.tr());
            if temperatures {
                logits /= case.temperatures.unsqueeze(1);
            }
            if kept {
                logits = logits.masked_fill(&case.left_out(), f64::from(f32::MIN));
            }
            let all = logits.log_softmax(-1, Kind::Float);
            let expected = all.gather(1, &case.tokens.unsqueeze(1), false).squeeze_dim(1);
            (&case.weights * expected.square()).sum(Kind::Float).backward();

            close(&logp, &expected, 1e-5);
            close(&head.hidden_gradient, &hidden.grad(), 1e-4);
            close(&unembed_gradient, &unembed.grad(), 1e-4);
            let entropy = -(all.exp() * &all).sum_dim_intlist(-1, false, Kind::Float);
            close(&head.entropy.unwrap(), &entropy, 1e-5);
        }
    }

    /// What the kernels compute is tested where they are; here, that the learner would use them rightly.
    #[test]
    fn without_logits_in_memory_all_is_as_with_them() {
        for temperatures in [false, true] {
            let case = case();
            let (logp, expected, expected_unembed) = chunked(&case, temperatures, false, CHUNK);
            let rows = Rows {
                hidden: &case.hidden,
                tokens: &case.tokens,
                temperatures: temperatures.then_some(&case.temperatures),
                kept: None,
            };
            let unembed_gradient = case.unembed.zeros_like();
            let mut logps = Vec::new();
            let twin = cuda::head::Twin;
            let head =
                without_logits(&twin, &rows, &case.unembed, 7, Some(&unembed_gradient), |range, logp| {
                    logps.push(logp.shallow_clone());
                    Ok(case.weights.narrow(0, range.start, range.end - range.start) * logp * 2.0)
                })
                .unwrap();
            close(&Tensor::cat(&logps, 0), &logp, 1e-5);
            close(&head.hidden_gradient, &expected.hidden_gradient, 1e-4);
            close(&head.entropy.unwrap(), &expected.entropy.unwrap(), 1e-5);
            close(&unembed_gradient, &expected_unembed, 1e-4);
        }
    }

    #[test]
    fn chunks_change_nothing_but_rounding() {
        let case = case();
        let (logp, head, unembed_gradient) = chunked(&case, true, true, ROWS);
        for chunk in [1, 7, ROWS + 9] {
            let (l, h, u) = chunked(&case, true, true, chunk);
            close(&l, &logp, 1e-5);
            close(&h.hidden_gradient, &head.hidden_gradient, 1e-4);
            close(&h.entropy.unwrap(), head.entropy.as_ref().unwrap(), 1e-5);
            close(&u, &unembed_gradient, 1e-4);
        }
    }

    #[test]
    fn rows_go_through_in_order_a_chunk_at_a_time() {
        let case = case();
        let rows = Rows { hidden: &case.hidden, tokens: &case.tokens, temperatures: None, kept: None };
        let mut sizes = Vec::new();
        let head = run(&rows, &case.unembed, false, 4, None, |range, logp| {
            sizes.push(logp.size()[0]);
            assert_eq!(range.end - range.start, logp.size()[0]);
            Ok(logp.zeros_like())
        })
        .unwrap();
        assert_eq!(sizes, [4, 4, 4, 4, 4, 3]);
        assert!(head.entropy.is_none());
        assert_eq!(head.hidden_gradient.abs().max().double_value(&[]), 0.0);
    }
}
