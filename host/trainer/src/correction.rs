//! Importance weights for the distance between the policy that sampled, μ, and the policy π that the loss
//! assumes to have sampled. With `w = π(token) / μ(token)`,
//!
//! ```text
//! tis             min(w, high)                         truncated importance sampling, Yao et al. 2025
//! icepop          w if low ≤ w ≤ high, otherwise 0     Ling team 2025, arXiv:2510.18855
//! sequence_mask   1 if the geometric mean of the completion's weights is within low … high, otherwise 0
//! ```
//!
//! Weights are constants: no gradient flows through them. A token of weight 0 still counts in the divisor of
//! the loss. `sequence_mask` is the `seq_mean_k1` of verl, whose bounds are those of μ / π; the sequence mask of
//! TRL compares the product of the weights instead of their mean, and keeps it as a weight.

use pl_dsl::workflow::objective::{Correction, Objective};
use tch::{TchError, Tensor};

use crate::loss::MAX_LOG_RATIO;

/// Bounds of a correction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CorrectionBounds {
    pub low: f64,
    pub high: f64,
}

impl From<&Objective> for CorrectionBounds {
    fn from(objective: &Objective) -> Self {
        Self { low: objective.correction_low, high: objective.correction_high }
    }
}

/// Weights of tokens with the log-ratios `ln(π / μ)`. `sequence_log_ratio` is the mean of the log-ratios of
/// each token's completion. All tensors are floats of one shape. Returns `None` if nothing is corrected.
pub fn correction_weights(
    correction: Correction,
    bounds: CorrectionBounds,
    log_ratio: &Tensor,
    sequence_log_ratio: &Tensor,
) -> Result<Option<Tensor>, TchError> {
    let CorrectionBounds { low, high } = bounds;
    let weight = |log_ratio: &Tensor| log_ratio.f_clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)?.f_exp();
    let is_kept = |weight: &Tensor| weight.f_ge(low)?.f_logical_and(&weight.f_le(high)?);
    Ok(Some(match correction {
        Correction::None => return Ok(None),
        Correction::Tis => weight(log_ratio)?.f_clamp_max(high)?,
        Correction::Icepop => {
            let weight = weight(log_ratio)?;
            weight.f_mul(&is_kept(&weight)?)?
        }
        Correction::SequenceMask => is_kept(&weight(sequence_log_ratio)?)?.f_to_kind(log_ratio.kind())?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_a_worked_example() {
        let log_ratio = Tensor::from_slice(&[0.25f64, 0.75, 1.0, 1.5, 3.0].map(f64::ln));
        let sequence = Tensor::from_slice(&[0.25f64, 0.75, 1.0, 1.5, 3.0].map(f64::ln)).flip([0]);
        let weights = |correction| {
            let bounds = CorrectionBounds { low: 0.5, high: 2.0 };
            let weights = correction_weights(correction, bounds, &log_ratio, &sequence).unwrap();
            weights.map(|weights| Vec::<f64>::try_from(weights).unwrap())
        };
        let near = |got: Option<Vec<f64>>, expected: [f64; 5]| {
            assert!(got.unwrap().iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12));
        };
        assert_eq!(weights(Correction::None), None);
        near(weights(Correction::Tis), [0.25, 0.75, 1.0, 1.5, 2.0]);
        near(weights(Correction::Icepop), [0.0, 0.75, 1.0, 1.5, 0.0]);
        near(weights(Correction::SequenceMask), [0.0, 1.0, 1.0, 1.0, 0.0]);
    }
}
