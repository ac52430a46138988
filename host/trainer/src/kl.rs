//! Estimators of the KL divergence from a reference policy, and its coefficient.
//!
//! With `d = logp - reference` of a token that was sampled from the policy (Schulman 2020, "Approximating KL
//! divergence"),
//!
//! ```text
//! k1 = d        k2 = d² / 2        k3 = exp(-d) - 1 + d
//! ```
//!
//! k1 and k3 estimate the divergence without bias, but their gradients do not estimate its gradient; that of
//! k2 does. `straight_through` has the value of k3 and the gradient of k2. It is the `k3+` of verl.

use pl_dsl::workflow::objective::{KlEstimator, Objective};
use tch::{TchError, Tensor};

use crate::loss::MAX_LOG_RATIO;

/// Largest relative error that an adaptive coefficient reacts to.
const LARGEST_ERROR: f64 = 0.2;

/// Estimates the divergence of each token, differentiable with respect to `logp`. Both tensors are floats of
/// one shape. `d` is clamped to ±20.
pub fn kl_divergence(estimator: KlEstimator, logp: &Tensor, reference: &Tensor) -> Result<Tensor, TchError> {
    let d = logp.f_sub(reference)?.f_clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)?;
    let k2 = || d.f_square()?.f_mul_scalar(0.5);
    let k3 = || d.f_neg()?.f_expm1()?.f_add(&d);
    match estimator {
        KlEstimator::K1 => Ok(d),
        KlEstimator::K2 => k2(),
        KlEstimator::K3 => k3(),
        KlEstimator::StraightThrough => {
            let k2 = k2()?;
            k2.f_sub(&k2.f_detach()?)?.f_add(&k3()?.f_detach()?)
        }
    }
}

/// [`kl_divergence`] of one token.
pub fn kl_of_token(estimator: KlEstimator, logp: f64, reference: f64) -> f64 {
    let d = (logp - reference).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO);
    match estimator {
        KlEstimator::K1 => d,
        KlEstimator::K2 => d * d / 2.0,
        KlEstimator::K3 | KlEstimator::StraightThrough => (-d).exp_m1() + d,
    }
}

/// Coefficient after a step in which the divergence was `kl` per token, over `completions` completions.
///
/// A fixed coefficient stays. An adaptive one (Ziegler et al. 2019, arXiv:1909.08593, section 2.2) is
/// multiplied by `1 + clamp(kl / target - 1, ±0.2) · completions / horizon`.
pub fn next_coefficient(objective: &Objective, coefficient: f64, kl: f64, completions: usize) -> f64 {
    let Some(target) = objective.kl_target else { return coefficient };
    let error = (kl / target - 1.0).clamp(-LARGEST_ERROR, LARGEST_ERROR);
    coefficient * (1.0 + error * completions as f64 / objective.kl_horizon)
}

#[cfg(test)]
mod tests {
    use tch::Kind;

    use super::*;

    const ALL: [KlEstimator; 4] =
        [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3, KlEstimator::StraightThrough];

    #[test]
    fn tensors_and_tokens_give_the_same_values() {
        let (logp, reference) = ([-1.0, -0.2, -30.0, -2.0], [-1.5, -0.2, -1.0, -0.5]);
        for estimator in ALL {
            let tensor =
                kl_divergence(estimator, &Tensor::from_slice(&logp), &Tensor::from_slice(&reference))
                    .unwrap();
            for (i, (logp, reference)) in logp.into_iter().zip(reference).enumerate() {
                let (got, expected) =
                    (kl_of_token(estimator, logp, reference), tensor.double_value(&[i as i64]));
                assert!((got - expected).abs() <= 1e-12 * expected.abs(), "{estimator:?}: {got} {expected}");
            }
        }
    }

    /// The expectation over the policy's own distribution: unbiased values of k1 and k3, an unbiased gradient
    /// of k2 and `straight_through`.
    #[test]
    fn expectations_are_those_of_the_divergence() {
        let logits = Tensor::from_slice(&[0.3, -1.0, 0.8, 0.1]).set_requires_grad(true);
        let reference = Tensor::from_slice(&[0.5, 0.2, -0.3, 0.0]).log_softmax(-1, Kind::Double);
        let logp = logits.log_softmax(-1, Kind::Double);
        let divergence = (logp.exp() * (&logp - &reference)).sum(Kind::Double);
        let exact_gradient = Tensor::run_backward(&[&divergence], &[&logits], true, false).remove(0);
        for estimator in ALL {
            let estimate = kl_divergence(estimator, &logp, &reference).unwrap();
            let expectation = (logp.exp().detach() * estimate).sum(Kind::Double);
            let gap = (expectation.double_value(&[]) - divergence.double_value(&[])).abs();
            assert_eq!(gap < 1e-12, estimator != KlEstimator::K2, "{estimator:?}: {gap}");
            let gradient = Tensor::run_backward(&[&expectation], &[&logits], true, false).remove(0);
            let gap = (gradient - &exact_gradient).abs().max().double_value(&[]);
            let exact = matches!(estimator, KlEstimator::K2 | KlEstimator::StraightThrough);
            assert_eq!(gap < 1e-12, exact, "{estimator:?}: {gap}");
        }
    }

    #[test]
    fn an_adaptive_coefficient_moves_towards_its_target() {
        let fixed = crate::fixtures::objective();
        assert_eq!(next_coefficient(&fixed, 0.1, 5.0, 100), 0.1);
        let adaptive = Objective { kl_target: Some(0.1), kl_horizon: 1000.0, ..fixed };
        // Far above, slightly above, at and far below the target.
        let next = [5.0, 0.11, 0.1, 0.0].map(|kl| next_coefficient(&adaptive, 1.0, kl, 100));
        for (got, expected) in next.into_iter().zip([1.02, 1.01, 1.0, 0.98]) {
            assert!((got - expected).abs() < 1e-12, "{next:?}");
        }
    }
}
