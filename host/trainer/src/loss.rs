//! The clipped policy loss, as a pure function over per-token tensors.
//!
//! With the ratio `r = exp(logp - old_logp)` and the advantage `A` of a token,
//!
//! ```text
//! L = max(-A r, -A clip(r, 1 - low, 1 + high))        PPO, Schulman et al. 2017 (arXiv:1707.06347);
//!                                                     high > low: clip-higher, DAPO, Yu et al. 2025 (arXiv:2503.14476)
//! L = min(L, -A dual)   where A < 0                   dual clip, Ye et al. 2020 (arXiv:1912.09729)
//! ```
//!
//! The caller takes the mean over tokens, because its divisor is that of the whole mini-batch.

use pl_dsl::workflow::Train;
use tch::{Kind, TchError, Tensor};

/// Bound on the absolute log-ratio before exponentiation, so that a token whose probability has vanished has
/// a large ratio and not an infinite one. e^20 is far outside every clip range.
const MAX_LOG_RATIO: f64 = 20.0;

/// Clipping bounds of the loss.
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

impl From<&Train> for Clip {
    fn from(train: &Train) -> Self {
        Clip { low: train.clip_low, high: train.clip_high, dual: train.dual_clip }
    }
}

/// Per-token results, each of the shape of the inputs.
#[derive(Debug)]
pub struct TokenLoss {
    /// The loss; differentiable with respect to `logp`.
    pub loss: Tensor,
    /// Boolean: true if the range `low … high` removed the token's gradient.
    pub clipped: Tensor,
    /// Boolean: true if the dual clip removed the token's gradient.
    pub dual_clipped: Tensor,
}

/// Computes the clipped loss of each token.
///
/// `logp` and `old_logp` are natural logarithms of the token's probability under the current policy and under
/// the policy that it was sampled from. All three tensors are floats of one shape.
pub fn clipped_policy_loss(
    logp: &Tensor,
    old_logp: &Tensor,
    advantage: &Tensor,
    clip: &Clip,
) -> Result<TokenLoss, TchError> {
    let ratio = logp.f_sub(old_logp)?.f_clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)?.f_exp()?;
    let descent = advantage.f_neg()?;
    let plain = descent.f_mul(&ratio)?;
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

/// Estimates the divergence KL(old || new) per token sampled from the old policy by `r - 1 - ln r`, where `r`
/// is the ratio new / old (Schulman 2020, "Approximating KL divergence", k3). The estimate is non-negative
/// and unbiased.
pub fn k3(logp: &Tensor, old_logp: &Tensor) -> Result<Tensor, TchError> {
    let log_ratio = logp.f_sub(old_logp)?.f_clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)?.f_to_kind(Kind::Double)?;
    log_ratio.f_expm1()?.f_sub(&log_ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIP: Clip = Clip { low: 0.2, high: 0.3, dual: 3.0 };

    /// Returns loss, gradient, clipped and dual clipped of one token.
    fn token_loss(ratio: f64, advantage: f64, clip: &Clip) -> (f64, f64, bool, bool) {
        let old = Tensor::from_slice(&[-1.0]);
        let logp = Tensor::from_slice(&[-1.0 + ratio.ln()]).set_requires_grad(true);
        let result = clipped_policy_loss(&logp, &old, &Tensor::from_slice(&[advantage]), clip).unwrap();
        result.loss.sum(Kind::Double).backward();
        (
            result.loss.double_value(&[0]),
            logp.grad().double_value(&[0]),
            result.clipped.int64_value(&[0]) == 1,
            result.dual_clipped.int64_value(&[0]) == 1,
        )
    }

    #[test]
    fn loss_and_gradient_of_worked_examples() {
        // (ratio, advantage) -> (loss, d loss / d logp, clipped, dual clipped)
        let cases = [
            // Inside the range: loss -A r, derivative -A r.
            (1.1, 2.0, -2.2, -2.2, false, false),
            (0.9, -2.0, 1.8, 1.8, false, false),
            // Above the range, positive advantage: bounded at 1.3, no gradient.
            (1.5, 2.0, -2.6, 0.0, true, false),
            // 1.25 is inside the higher bound, though outside 1 + low.
            (1.25, 2.0, -2.5, -2.5, false, false),
            // Below the range, positive advantage: not clipped.
            (0.5, 2.0, -1.0, -1.0, false, false),
            // Below the range, negative advantage: bounded at 0.8.
            (0.5, -2.0, 1.6, 0.0, true, false),
            // Above the range, negative advantage: not clipped.
            (2.0, -2.0, 4.0, 4.0, false, false),
            // Far above, negative advantage: bounded at 3 |A|.
            (5.0, -2.0, 6.0, 0.0, false, true),
            // Far above, positive advantage: the dual clip does not apply.
            (5.0, 2.0, -2.6, 0.0, true, false),
        ];
        for (ratio, advantage, loss, gradient, clipped, dual) in cases {
            let got = token_loss(ratio, advantage, &CLIP);
            assert!(
                (got.0 - loss).abs() < 1e-9
                    && (got.1 - gradient).abs() < 1e-9
                    && got.2 == clipped
                    && got.3 == dual,
                "ratio {ratio}, advantage {advantage}: {got:?}"
            );
        }
    }

    #[test]
    fn a_dual_clip_of_zero_is_disabled() {
        let off = Clip { dual: 0.0, ..CLIP };
        assert!((token_loss(5.0, -2.0, &off).0 - 10.0).abs() < 1e-9);
        assert!(!token_loss(5.0, -2.0, &off).3);
    }

    #[test]
    fn the_gradient_equals_the_finite_difference() {
        let step = 1e-6;
        for advantage in [-1.7, -0.3, 0.4, 2.2] {
            for log_ratio in [-1.5, -0.7, -0.1, 0.05, 0.2, 0.6, 1.7] {
                let ratio = f64::exp(log_ratio);
                let slope = (token_loss(ratio * f64::exp(step), advantage, &CLIP).0
                    - token_loss(ratio * f64::exp(-step), advantage, &CLIP).0)
                    / (2.0 * step);
                let gradient = token_loss(ratio, advantage, &CLIP).1;
                assert!(
                    (slope - gradient).abs() < 1e-6,
                    "ratio {ratio}, advantage {advantage}: {slope} and {gradient}"
                );
            }
        }
    }

    #[test]
    fn vanished_probabilities_give_finite_losses() {
        let logp = Tensor::from_slice(&[-0.1f32, -200.0]).set_requires_grad(true);
        let old = Tensor::from_slice(&[-200.0f32, -0.1]);
        let advantage = Tensor::from_slice(&[-1.0f32, 1.0]);
        let off = Clip { dual: 0.0, ..CLIP };
        let result = clipped_policy_loss(&logp, &old, &advantage, &off).unwrap();
        result.loss.sum(Kind::Float).backward();
        assert!(bool::try_from(result.loss.isfinite().all()).unwrap());
        assert!(bool::try_from(logp.grad().isfinite().all()).unwrap());
    }

    #[test]
    fn the_mean_of_k3_is_the_divergence() {
        // Two outcomes, old (0.7, 0.3), new (0.4, 0.6): the mean of k3 under old is KL(old || new).
        let old = Tensor::from_slice(&[0.7f64, 0.3]).log();
        let new = Tensor::from_slice(&[0.4f64, 0.6]).log();
        let mean = (k3(&new, &old).unwrap() * old.exp()).sum(Kind::Double).double_value(&[]);
        let exact = 0.7 * (0.7f64 / 0.4).ln() + 0.3 * (0.3f64 / 0.6).ln();
        assert!((mean - exact).abs() < 1e-12);
        assert_eq!(k3(&old, &old).unwrap().abs().max().double_value(&[]), 0.0);
    }
}
