//! Losses of objectives compared with an independent implementation, and gradients with finite differences.

use pl_dsl::workflow::objective::{
    Correction, KlEstimator, KlPlace, Objective, OldLogprobs, Ratio, TrustRegion,
};
use tch::{Kind, Tensor};

use super::*;
use crate::fixtures::objective;

/// Two completions of three tokens: log-ratios within and beyond all bounds, advantages of both signs.
const OLD: [f64; 6] = [-1.2, -0.7, -2.0, -0.4, -3.0, -0.9];
const MOVED: [f64; 6] = [0.05, -0.6, 0.7, -0.1, 1.6, -0.35];
const ADVANTAGES: [f64; 6] = [1.3, 1.3, 1.3, -0.8, -0.8, -0.8];
const REFERENCE: [f64; 6] = [-1.0, -0.9, -1.5, -0.6, -2.0, -1.4];
const CORRECTIONS: [f64; 6] = [1.0, 0.4, 2.0, 0.0, 1.1, 0.7];
const KL: f64 = 0.3;

fn logps() -> [f64; 6] {
    std::array::from_fn(|i| OLD[i] + MOVED[i])
}

fn mean_moved(logp: &[f64; 6], i: usize) -> f64 {
    let own = i / 3 * 3..i / 3 * 3 + 3;
    own.map(|j| logp[j] - OLD[j]).sum::<f64>() / 3.0
}

/// The sum of the tokens' losses in plain numbers. Where the loss stops a gradient, it uses `fixed` instead of
/// `logp`.
fn plain_loss(objective: &Objective, logp: &[f64; 6], fixed: &[f64; 6]) -> f64 {
    let Objective { clip_low, clip_high, dual_clip, correction_low, correction_high, .. } = *objective;
    (0..6)
        .map(|i| {
            let a = ADVANTAGES[i];
            let clip = |r: f64| r.clamp(1.0 - clip_low, 1.0 + clip_high);
            let ratio = |logp: &[f64; 6]| match objective.ratio {
                Ratio::Token | Ratio::None => (logp[i] - OLD[i]).exp(),
                Ratio::Sequence => (mean_moved(fixed, i) + logp[i] - fixed[i]).exp(),
            };
            let r = ratio(logp);
            let moved = fixed[i].exp() - OLD[i].exp();
            let policy = match objective.trust_region {
                _ if objective.ratio == Ratio::None => -a * logp[i],
                TrustRegion::None => -a * r,
                TrustRegion::Clip => {
                    let loss = (-a * r).max(-a * clip(r));
                    if dual_clip > 0.0 && a < 0.0 { loss.min(-a * dual_clip) } else { loss }
                }
                TrustRegion::Cispo => -clip(ratio(fixed)) * a * logp[i],
                TrustRegion::Mask if (a > 0.0 && moved > clip_high) || (a <= 0.0 && moved < -clip_low) => 0.0,
                TrustRegion::Mask => -ratio(fixed) * a * logp[i],
            };
            let weight = if objective.old_logprobs == OldLogprobs::Recompute {
                if objective.correction == Correction::None { 1.0 } else { CORRECTIONS[i] }
            } else {
                let w = (fixed[i] - OLD[i]).exp();
                let is_kept = |w: f64| w >= correction_low && w <= correction_high;
                match objective.correction {
                    Correction::None => 1.0,
                    Correction::Tis => w.min(correction_high),
                    Correction::Icepop => {
                        if is_kept(w) {
                            w
                        } else {
                            0.0
                        }
                    }
                    Correction::SequenceMask => f64::from(is_kept(mean_moved(fixed, i).exp())),
                }
            };
            let d = logp[i] - REFERENCE[i];
            let kl = match objective.kl_estimator {
                _ if objective.kl == 0.0 => 0.0,
                KlEstimator::K1 => d,
                KlEstimator::K2 => d * d / 2.0,
                KlEstimator::K3 => (-d).exp() - 1.0 + d,
                KlEstimator::StraightThrough => {
                    let fixed = fixed[i] - REFERENCE[i];
                    d * d / 2.0 - fixed * fixed / 2.0 + (-fixed).exp() - 1.0 + fixed
                }
            };
            weight * policy + objective.kl * kl
        })
        .sum()
}

/// All combinations of a ratio and a trust region, of corrections, and of KL terms.
fn objectives() -> Vec<Objective> {
    let mut all = Vec::new();
    for ratio in [Ratio::Token, Ratio::Sequence, Ratio::None] {
        for trust_region in [TrustRegion::Clip, TrustRegion::Cispo, TrustRegion::Mask, TrustRegion::None] {
            if ratio == Ratio::None && trust_region != TrustRegion::None {
                continue;
            }
            let dual_clip = if trust_region == TrustRegion::Clip { 3.0 } else { 0.0 };
            let own = Objective { ratio, trust_region, dual_clip, ..objective() };
            let recompute = Objective { old_logprobs: OldLogprobs::Recompute, ..own };
            all.push(Objective { correction: Correction::Tis, ..recompute });
            all.push(recompute);
            for kl_estimator in
                [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3, KlEstimator::StraightThrough]
            {
                all.push(Objective { kl: KL, kl_estimator, kl_in: KlPlace::Loss, ..own });
            }
            all.push(own);
        }
    }
    for correction in [Correction::Tis, Correction::Icepop, Correction::SequenceMask] {
        let (ratio, trust_region) = (Ratio::None, TrustRegion::None);
        let (correction_low, correction_high) = (0.8, 1.8);
        let own =
            Objective { ratio, trust_region, correction, correction_low, correction_high, ..objective() };
        all.push(own);
    }
    all
}

fn loss_and_gradient(objective: &Objective, logp: &[f64; 6]) -> (f64, [f64; 6]) {
    let leaf = Tensor::from_slice(logp).set_requires_grad(true);
    let means: [f64; 6] = std::array::from_fn(|i| mean_moved(logp, i));
    let [old, advantage, reference, correction, means] =
        [OLD, ADVANTAGES, REFERENCE, CORRECTIONS, means].map(|values| Tensor::from_slice(&values));
    let sequence_log_ratio = needs_sequence_ratio(objective).then_some(&means);
    let inputs = ObjectiveInputs {
        tokens: TokenInputs { logp: &leaf, old_logp: &old, advantage: &advantage, sequence_log_ratio },
        reference: has_kl_in_loss(objective).then_some(&reference),
        correction: has_planned_correction(objective).then_some(&correction),
        kl_coefficient: objective.kl,
    };
    let loss = objective_loss(objective, &inputs).unwrap().loss.sum(Kind::Double);
    loss.backward();
    (loss.double_value(&[]), Vec::try_from(leaf.grad()).unwrap().try_into().unwrap())
}

#[test]
fn losses_equal_plain_numbers_and_gradients_their_finite_differences() {
    let step = 1e-6;
    let logp = logps();
    let all = objectives();
    assert_eq!(all.len(), 9 * 7 + 3);
    for objective in all {
        let (loss, gradient) = loss_and_gradient(&objective, &logp);
        assert!((loss - plain_loss(&objective, &logp, &logp)).abs() < 1e-12, "{objective:?}");
        for i in 0..6 {
            let moved = |by: f64| {
                let mut moved = logp;
                moved[i] += by;
                plain_loss(&objective, &moved, &logp)
            };
            let slope = (moved(step) - moved(-step)) / (2.0 * step);
            assert!((slope - gradient[i]).abs() < 1e-6, "{i}: {slope} and {}: {objective:?}", gradient[i]);
        }
    }
}

#[test]
fn objectives_say_what_they_need() {
    let default = objective();
    assert!(!needs_sequence_ratio(&default) && !needs_reference(&default));
    assert!(!needs_recomputed_logprobs(&default) && !trains_without_advantage(&default));
    let in_reward = Objective { kl: 0.1, kl_in: KlPlace::Reward, ..objective() };
    assert!(needs_reference(&in_reward) && !has_kl_in_loss(&in_reward));
    assert!(!trains_without_advantage(&in_reward));
    assert!(trains_without_advantage(&Objective { kl: 0.1, ..objective() }));
    assert!(trains_without_advantage(&Objective { entropy: 0.1, ..objective() }));
    let recompute = Objective { old_logprobs: OldLogprobs::Recompute, ..objective() };
    assert!(needs_recomputed_logprobs(&recompute) && !has_planned_correction(&recompute));
    assert!(has_planned_correction(&Objective { correction: Correction::Tis, ..recompute }));
}
