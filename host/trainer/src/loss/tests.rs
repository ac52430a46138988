//! Worked examples of the losses.

use super::*;

const CLIP: Clip = Clip { low: 0.2, high: 0.3, dual: 3.0 };

/// Returns loss, gradient, clipped and dual clipped of one token.
fn token_loss(ratio: f64, advantage: f64, clip: &Clip) -> (f64, f64, bool, bool) {
    let old = Tensor::from_slice(&[-1.0]);
    let logp = Tensor::from_slice(&[-1.0 + ratio.ln()]).set_requires_grad(true);
    let advantage = Tensor::from_slice(&[advantage]);
    let inputs = TokenInputs { logp: &logp, old_logp: &old, advantage: &advantage, sequence_log_ratio: None };
    let result = policy_loss(&inputs, Ratio::Token, TrustRegion::Clip, clip).unwrap();
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
    let inputs = TokenInputs { logp: &logp, old_logp: &old, advantage: &advantage, sequence_log_ratio: None };
    for region in [TrustRegion::Clip, TrustRegion::Cispo, TrustRegion::Mask, TrustRegion::None] {
        let result = policy_loss(&inputs, Ratio::Token, region, &off).unwrap();
        result.loss.sum(Kind::Float).backward();
        assert!(bool::try_from(result.loss.isfinite().all()).unwrap(), "{region:?}");
        assert!(bool::try_from(logp.grad().isfinite().all()).unwrap(), "{region:?}");
    }
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
