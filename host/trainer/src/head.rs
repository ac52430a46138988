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

use std::ops::Range;

use tch::{Kind, TchError, Tensor, no_grad};

/// Rows of the head at a time. 128 rows of 49,152 logits are 25 MB, and enough for the matrix products to run at
/// full speed.
pub const CHUNK: i64 = 128;

/// What goes through the head: one row per completion token.
#[derive(Debug)]
pub struct Rows<'a> {
    /// `[N, H]`, the hidden state from which each token was predicted; no gradient is tracked through it.
    pub hidden: &'a Tensor,
    /// `[N]` int64, the token that was sampled.
    pub tokens: &'a Tensor,
    /// `[N]`, the temperature it was sampled with; none where all are 1.
    pub temperatures: Option<&'a Tensor>,
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
    mut unembed_gradient: Option<&mut Tensor>,
    mut derivative: impl FnMut(Range<i64>, &Tensor) -> Result<Tensor, TchError>,
) -> Result<Head, TchError> {
    let (count, width) = rows.hidden.size2()?;
    let hidden_gradient = no_grad(|| rows.hidden.f_empty_like())?;
    debug_assert_eq!(width, unembed.size()[1]);
    let mut entropies = Vec::new();
    let mut start = 0;
    while start < count {
        let length = chunk.min(count - start);
        let part = |tensor: &Tensor| tensor.f_narrow(0, start, length);
        let column = |tensor: &Tensor| part(tensor)?.f_unsqueeze(1);
        let (hidden, temperature, token, mut logits, logp) = no_grad(|| {
            let hidden = part(rows.hidden)?;
            let token = column(rows.tokens)?;
            let temperature = rows.temperatures.map(column).transpose()?;
            let mut logits = hidden.f_mm(&unembed.f_tr()?)?;
            if let Some(temperature) = &temperature {
                let _ = logits.f_div_(temperature)?;
            }
            let normalizer = logits.f_logsumexp(-1, true)?;
            let _ = logits.f_sub_(&normalizer)?;
            let logp = logits.f_gather(1, &token, false)?.f_squeeze_dim(1)?;
            Ok::<_, TchError>((hidden, temperature, token, logits, logp))
        })?;
        let slope = derivative(start..start + length, &logp)?;
        no_grad(|| {
            let slope = slope.f_unsqueeze(1)?;
            // `logits` holds normalised log-probabilities by now.
            let mut gradient = if want_entropy {
                let probabilities = logits.f_exp()?;
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
            part(&hidden_gradient)?.f_copy_(&gradient.f_mm(unembed)?)?;
            if let Some(total) = unembed_gradient.as_deref_mut() {
                let _ = total.f_addmm_(&gradient.f_tr()?, &hidden)?;
            }
            Ok::<_, TchError>(())
        })?;
        start += length;
    }
    let entropy = if want_entropy { Some(Tensor::f_cat(&entropies, 0)?) } else { None };
    Ok(Head { hidden_gradient, entropy })
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
    }

    fn case() -> Case {
        tch::manual_seed(3);
        let options = (Kind::Float, Device::Cpu);
        Case {
            hidden: Tensor::randn([ROWS, WIDTH], options),
            unembed: Tensor::randn([VOCABULARY, WIDTH], options),
            tokens: Tensor::randint(VOCABULARY, [ROWS], (Kind::Int64, Device::Cpu)),
            temperatures: Tensor::rand([ROWS], options) + 0.5,
            weights: Tensor::randn([ROWS], options),
        }
    }

    /// The loss is `sum(weights · logp²)`: its derivative depends on the log-probabilities.
    fn chunked(case: &Case, temperatures: bool, chunk: i64) -> (Tensor, Head, Tensor) {
        let rows = Rows {
            hidden: &case.hidden,
            tokens: &case.tokens,
            temperatures: temperatures.then_some(&case.temperatures),
        };
        let mut unembed_gradient = case.unembed.zeros_like();
        let mut logps = Vec::new();
        let head = run(&rows, &case.unembed, true, chunk, Some(&mut unembed_gradient), |range, logp| {
            logps.push(logp.shallow_clone());
            let weights = case.weights.narrow(0, range.start, range.end - range.start);
            Ok(weights * logp * 2.0)
        })
        .unwrap();
        (Tensor::cat(&logps, 0), head, unembed_gradient)
    }

    #[test]
    fn equals_autograd_on_the_full_tensor() {
        for temperatures in [false, true] {
            let case = case();
            let (logp, head, unembed_gradient) = chunked(&case, temperatures, 5);

            let hidden = case.hidden.copy().set_requires_grad(true);
            let unembed = case.unembed.copy().set_requires_grad(true);
            let mut logits = hidden.mm(&unembed.tr());
            if temperatures {
                logits /= case.temperatures.unsqueeze(1);
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

    #[test]
    fn chunks_change_nothing_but_rounding() {
        let case = case();
        let (logp, head, unembed_gradient) = chunked(&case, true, ROWS);
        for chunk in [1, 7, ROWS + 9] {
            let (l, h, u) = chunked(&case, true, chunk);
            close(&l, &logp, 1e-5);
            close(&h.hidden_gradient, &head.hidden_gradient, 1e-4);
            close(&h.entropy.unwrap(), head.entropy.as_ref().unwrap(), 1e-5);
            close(&u, &unembed_gradient, 1e-4);
        }
    }

    #[test]
    fn rows_go_through_in_order_a_chunk_at_a_time() {
        let case = case();
        let rows = Rows { hidden: &case.hidden, tokens: &case.tokens, temperatures: None };
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
