//! The head in plain libtorch, with all logits in memory.

use tch::{Kind, Tensor, no_grad};

use super::interface::{HeadOutput, HeadRows, TokenHead};
use crate::cuda::error::Error;

/// The head exactly as defined, in f32, on any device. It needs several tensors of `[N, V]`.
#[derive(Debug, Clone, Copy)]
pub struct ReferenceHead;

/// Returns the log-probabilities of all ids, `[N, V]`, and the normalizers, `[N, 1]`.
fn distribution(rows: &HeadRows<'_>, unembed: &Tensor) -> Result<(Tensor, Tensor), Error> {
    let wide = |tensor: &Tensor| tensor.f_to_kind(Kind::Float);
    let mut logits = wide(rows.hidden)?.f_mm(&wide(unembed)?.f_tr()?)?;
    if let Some(temperatures) = rows.temperatures {
        let _ = logits.f_div_(&temperatures.f_unsqueeze(1)?)?;
    }
    let normalizer = logits.f_logsumexp(-1, true)?;
    // Not as a difference to the normalizer, which would lose the digits of a large normalizer.
    Ok((logits.f_log_softmax(-1, Kind::Float)?, normalizer))
}

impl TokenHead for ReferenceHead {
    fn forward(&self, rows: &HeadRows<'_>, unembed: &Tensor) -> Result<HeadOutput, Error> {
        no_grad(|| {
            let (all, normalizer) = distribution(rows, unembed)?;
            let logp = all.f_gather(1, &rows.tokens.f_unsqueeze(1)?, false)?.f_squeeze_dim(1)?;
            let entropy = all.f_exp()?.f_mul(&all)?.f_sum_dim_intlist(-1, false, Kind::Float)?.f_neg()?;
            Ok(HeadOutput { logp, entropy, normalizer: normalizer.f_squeeze_dim(1)? })
        })
    }

    fn backward(
        &self,
        rows: &HeadRows<'_>,
        unembed: &Tensor,
        _: &HeadOutput,
        slopes: &Tensor,
        unembed_gradient: Option<&Tensor>,
    ) -> Result<Tensor, Error> {
        no_grad(|| {
            let (mut all, _) = distribution(rows, unembed)?;
            let slopes = slopes.f_unsqueeze(1)?;
            let mut gradient = all.f_exp_()?.f_mul_(&slopes.f_neg()?)?;
            let _ = gradient.f_scatter_add_(1, &rows.tokens.f_unsqueeze(1)?, &slopes)?;
            if let Some(temperatures) = rows.temperatures {
                let _ = gradient.f_div_(&temperatures.f_unsqueeze(1)?)?;
            }
            if let Some(unembed_gradient) = unembed_gradient {
                let part = gradient.f_tr()?.f_mm(&rows.hidden.f_to_kind(Kind::Float)?)?;
                let _ = unembed_gradient.shallow_clone().f_add_(&part)?;
            }
            Ok(gradient.f_mm(&unembed.f_to_kind(Kind::Float)?)?.f_to_kind(rows.hidden.kind())?)
        })
    }
}
