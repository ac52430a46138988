//! Policy losses, as pure functions over per-token tensors.
//!
//! With the ratio `r` of a token and its advantage `A`,
//!
//! ```text
//! clip      max(-A r, -A clip(r, 1 - low, 1 + high))    PPO, Schulman et al. 2017 (arXiv:1707.06347);
//!                                                       high > low: clip-higher, DAPO, Yu et al. 2025 (arXiv:2503.14476)
//!           and where A < 0 at most -A dual             dual clip, Ye et al. 2020 (arXiv:1912.09729)
//! cispo     -sg(clip(r, 1 - low, 1 + high)) A logp      MiniMax 2025 (arXiv:2506.13585)
//! mask      -sg(min(r, 20)) A logp                      DPPO with total variation (arXiv:2602.04879); 0 where A > 0
//!                                                       and p - old p > high, or A ≤ 0 and p - old p < -low
//! none      -A r, or -A logp without a ratio            importance sampling; REINFORCE
//! ```
//!
//! where `sg` stops the gradient. The ratio of a token is `exp(logp - old_logp)`. The ratio of a sequence is its
//! geometric mean over the completion; a token's share of its gradient is that of GSPO-token (Zheng et al. 2025,
//! arXiv:2507.18071, section 4.3), so that with one advantage per completion the gradient is GSPO's.
//!
//! `cispo` and `mask` are those of verl. The CISPO of TRL has no lower bound and reads its upper bound as the
//! ratio itself: it is `cispo` with `low = 1` and `high` one less.
//!
//! The caller takes the mean over tokens ([`crate::aggregation`]), because its divisor is that of the whole
//! mini-batch.

use pl_dsl::workflow::objective::{Objective, Ratio, TrustRegion};
use tch::{Kind, TchError, Tensor};

/// Bound on the absolute log-ratio before exponentiation, so that a token whose probability has vanished has
/// a large ratio and not an infinite one. e^20 is far outside every clip range.
pub const MAX_LOG_RATIO: f64 = 20.0;

/// Largest ratio that `mask` weights a token with, as in the paper's experiments and verl.
pub(crate) const LARGEST_MASK_RATIO: f64 = 20.0;

/// Bounds of a trust region.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clip {
    /// Ratios below `1 - low` are clipped.
    pub low: f64,
    /// Ratios above `1 + high` are clipped.
    pub high: f64,
    /// Bound of the loss of negative advantages, in units of `-A`; more than 1, or 0 to disable the dual
    /// clip.
    pub dual: f64,
}

impl From<&Objective> for Clip {
    fn from(objective: &Objective) -> Self {
        Clip { low: objective.clip_low, high: objective.clip_high, dual: objective.dual_clip }
    }
}

/// Inputs of a loss: floats of one shape, one element per token.
#[derive(Debug, Clone, Copy)]
pub struct TokenInputs<'a> {
    /// Natural logarithms of the tokens' probabilities under the current policy.
    pub logp: &'a Tensor,
    /// Those under the policy that the ratio is relative to.
    pub old_logp: &'a Tensor,
    pub advantage: &'a Tensor,
    /// Mean of `logp - old_logp` over each token's completion. Used by [`Ratio::Sequence`] alone.
    pub sequence_log_ratio: Option<&'a Tensor>,
}

/// Per-token results, each of the shape of the inputs.
#[derive(Debug)]
pub struct TokenLoss {
    /// The loss; differentiable with respect to `logp`.
    pub loss: Tensor,
    /// Boolean: true if the range `low … high` removed the token's gradient, or bounded its weight (`cispo`).
    pub clipped: Tensor,
    /// Boolean: true if the dual clip removed the token's gradient.
    pub dual_clipped: Tensor,
}

/// Computes the loss of each token for a ratio and a trust region.
///
/// # Errors
/// If libtorch fails.
pub fn policy_loss(
    inputs: &TokenInputs<'_>,
    ratio: Ratio,
    trust_region: TrustRegion,
    clip: &Clip,
) -> Result<TokenLoss, TchError> {
    let log_ratio = match (ratio, inputs.sequence_log_ratio) {
        (Ratio::None, _) => return reinforce_loss(inputs),
        (Ratio::Sequence, Some(mean)) => inputs.logp.f_sub(&inputs.logp.f_detach()?)?.f_add(mean)?,
        _ => inputs.logp.f_sub(inputs.old_logp)?,
    };
    let ratio = log_ratio.f_clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)?.f_exp()?;
    match trust_region {
        TrustRegion::Clip => clipped_loss(&ratio, inputs.advantage, clip),
        TrustRegion::Cispo => cispo_loss(&ratio, inputs, clip),
        TrustRegion::Mask => masked_loss(&ratio, inputs, clip),
        TrustRegion::None => without_bounds(inputs.advantage.f_neg()?.f_mul(&ratio)?),
    }
}

fn reinforce_loss(inputs: &TokenInputs<'_>) -> Result<TokenLoss, TchError> {
    without_bounds(inputs.advantage.f_neg()?.f_mul(inputs.logp)?)
}

fn without_bounds(loss: Tensor) -> Result<TokenLoss, TchError> {
    let nowhere = || loss.f_zeros_like()?.f_to_kind(Kind::Bool);
    Ok(TokenLoss { clipped: nowhere()?, dual_clipped: nowhere()?, loss })
}

fn clipped_loss(ratio: &Tensor, advantage: &Tensor, clip: &Clip) -> Result<TokenLoss, TchError> {
    let descent = advantage.f_neg()?;
    let plain = descent.f_mul(ratio)?;
    let bounded = descent.f_mul(&ratio.f_clamp(1.0 - clip.low, 1.0 + clip.high)?)?;
    let loss = plain.f_maximum(&bounded)?;
    let clipped = bounded.f_gt_tensor(&plain)?;
    if clip.dual <= 0.0 {
        let dual_clipped = clipped.f_zeros_like()?;
        return Ok(TokenLoss { loss, clipped, dual_clipped });
    }
    let ceiling = descent.f_mul_scalar(clip.dual)?;
    let dual_clipped = advantage.f_lt(0.0)?.f_logical_and(&loss.f_gt_tensor(&ceiling)?)?;
    let loss = ceiling.f_where_self(&dual_clipped, &loss)?;
    Ok(TokenLoss { loss, clipped, dual_clipped })
}

fn cispo_loss(ratio: &Tensor, inputs: &TokenInputs<'_>, clip: &Clip) -> Result<TokenLoss, TchError> {
    let ratio = ratio.f_detach()?;
    let weight = ratio.f_clamp(1.0 - clip.low, 1.0 + clip.high)?;
    let clipped = weight.f_ne_tensor(&ratio)?;
    let loss = weight.f_mul(&inputs.advantage.f_neg()?)?.f_mul(inputs.logp)?;
    Ok(TokenLoss { dual_clipped: clipped.f_zeros_like()?, clipped, loss })
}

fn masked_loss(ratio: &Tensor, inputs: &TokenInputs<'_>, clip: &Clip) -> Result<TokenLoss, TchError> {
    let weight = ratio.f_detach()?.f_clamp_max(LARGEST_MASK_RATIO)?;
    let moved = inputs.logp.f_detach()?.f_exp()?.f_sub(&inputs.old_logp.f_exp()?)?;
    let dropped =
        moved.f_gt(clip.high)?.f_where_self(&inputs.advantage.f_gt(0.0)?, &moved.f_lt(-clip.low)?)?;
    let loss = weight.f_mul(&inputs.advantage.f_neg()?)?.f_mul(inputs.logp)?;
    let loss = loss.f_mul(&dropped.f_logical_not()?)?;
    Ok(TokenLoss { loss, dual_clipped: dropped.f_zeros_like()?, clipped: dropped })
}

/// Estimates the divergence KL(old || new) per token sampled from the old policy by `r - 1 - ln r`, where `r`
/// is the ratio new / old (Schulman 2020, "Approximating KL divergence", k3). The estimate is non-negative
/// and unbiased.
pub fn k3(logp: &Tensor, old_logp: &Tensor) -> Result<Tensor, TchError> {
    let log_ratio = logp.f_sub(old_logp)?.f_clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)?.f_to_kind(Kind::Double)?;
    log_ratio.f_expm1()?.f_sub(&log_ratio)
}

#[cfg(test)]
mod tests;
