//! Explained gradients compared with those of the update, and explanations as text.

use pl_dsl::settings::ALGORITHMS;
use pl_dsl::workflow::objective::{Correction, KlPlace, OldLogprobs};
use pl_types::Key;
use tch::{Kind, Tensor};

use super::*;
use crate::loss::TokenInputs;
use crate::objective::{ObjectiveInputs, needs_sequence_ratio, objective_loss};

const LOGPS: [f32; 5] = [-0.1, -1.0, -2.0, -0.02, -4.0];
const SAMPLED: [f32; 5] = [-0.12, -1.6, -0.4, -0.02, -9.0];
const REFERENCE: [f32; 5] = [-0.3, -0.9, -2.0, -0.5, -3.0];

fn record(advantages: [f32; 5]) -> TrainedCompletion {
    TrainedCompletion {
        key: Key { step: 1, task: 0, sample: 0, node_visit: 0, agent: 0, branch: 0, call: 0 },
        epoch: 0,
        optimizer_steps: 0,
        loss_weight: 0.125,
        kl_coefficient: 0.04,
        masked: false,
        credit: Some(Credit { value: 2.0, group_size: 4, group_mean: 1.0, group_deviation: 0.5 }),
        advantages: advantages.to_vec(),
        logprobs: Some(LOGPS.to_vec()),
        entropies: None,
        clipped: None,
        old_logprobs: None,
        reference_logprobs: Some(REFERENCE.to_vec()),
        importance_weights: None,
    }
}

/// Derivatives of the loss that an update computes.
fn derivatives(objective: &Objective, record: &TrainedCompletion) -> Vec<f64> {
    let tensor = |values: &[f32]| Tensor::from_slice(values).to_kind(Kind::Double);
    let logp = tensor(&LOGPS).set_requires_grad(true);
    let (old_logp, reference) = (tensor(&SAMPLED), tensor(&REFERENCE));
    let mean = (&logp - &old_logp).detach().mean(Kind::Double) * Tensor::ones_like(&old_logp);
    let inputs = ObjectiveInputs {
        tokens: TokenInputs {
            logp: &logp,
            old_logp: &old_logp,
            advantage: &tensor(&record.advantages),
            sequence_log_ratio: needs_sequence_ratio(objective).then_some(&mean),
        },
        reference: has_kl_in_loss(objective).then_some(&reference),
        correction: None,
        kl_coefficient: record.kl_coefficient,
    };
    let result = objective_loss(objective, &inputs).unwrap();
    (result.loss * f64::from(record.loss_weight)).sum(Kind::Double).backward();
    Vec::<f64>::try_from(logp.grad()).unwrap()
}

#[test]
fn the_explained_gradient_is_that_of_the_update() {
    let mut objectives: Vec<Objective> = ALGORITHMS.iter().map(|one| one.objective).collect();
    let base = objectives[0];
    for trust_region in [TrustRegion::Clip, TrustRegion::Cispo, TrustRegion::Mask, TrustRegion::None] {
        for ratio in [Ratio::Token, Ratio::Sequence] {
            objectives.push(Objective { trust_region, ratio, ..base });
        }
    }
    for kl_estimator in [KlEstimator::K1, KlEstimator::K2, KlEstimator::K3, KlEstimator::StraightThrough] {
        objectives.push(Objective { kl: 0.04, kl_in: KlPlace::Loss, kl_estimator, ..base });
    }
    for objective in objectives {
        for advantages in [[1.0, 2.0, 0.5, -1.0, 0.0], [-1.0, -2.0, -0.5, 1.0, -0.25]] {
            let record = record(advantages);
            let expected = derivatives(&objective, &record);
            for (token, expected) in expected.into_iter().enumerate() {
                let explained = explain_token(&objective, &record, &SAMPLED, token).unwrap();
                let gap = (explained.derivative - expected).abs();
                assert!(
                    gap <= 1e-9 * (1.0 + expected.abs()),
                    "{objective:?} {token}: {explained:?} {expected}"
                );
                assert_eq!(explained.terms[0].value, f64::from(record.advantages[token]));
            }
        }
    }
}

#[test]
fn importance_weights_scale_the_gradient() {
    let objective = Objective {
        correction: Correction::Tis,
        old_logprobs: OldLogprobs::Recompute,
        ..ALGORITHMS[0].objective
    };
    let plain = record([1.0; 5]);
    let weighted = TrainedCompletion { importance_weights: Some(vec![0.5; 5]), ..plain.clone() };
    let [plain, weighted] =
        [plain, weighted].map(|record| explain_token(&objective, &record, &SAMPLED, 0).unwrap().derivative);
    assert_eq!(weighted, plain * 0.5);
}

#[test]
fn an_explanation_reads_as_the_formula_with_its_numbers() {
    let explained = explain_token(&ALGORITHMS[0].objective, &record([2.0; 5]), &SAMPLED, 1).unwrap();
    let lines: Vec<String> = explained
        .terms
        .iter()
        .map(|term| format!("{}: {} = {} = {}", term.name, term.formula, term.numbers, show(term.value)))
        .collect();
    assert_eq!(
        lines,
        [
            "A: (R − mean(G)) / (std(G) + 1e-6) = (2 − 1) / 0.5; G has 4 completions = 2",
            "ratio: r = exp(log p − log p_sampled) = exp(−1 − (−1.6)) = 1.822",
            "L: max(−A r, −A clip(r, 0.8, 1.28)), at most −3 A where A < 0 = max(−3.644, −2.56) = −2.56",
            "share: 1 / tokens of the mini-batch =  = 0.125",
            "gradient: ∂L / ∂ log p · share = 0 · 0.125 = 0",
        ]
    );
    assert_eq!(explained.summary, "The token has no gradient: its ratio 1.822 is outside of 0.8 to 1.28.");
}

#[test]
fn completions_that_were_not_computed_say_why() {
    let objective = ALGORITHMS[0].objective;
    let skipped = TrainedCompletion { logprobs: None, ..record([0.0; 5]) };
    let masked = TrainedCompletion { masked: true, ..skipped.clone() };
    let summary =
        |record: &TrainedCompletion| explain_token(&objective, record, &SAMPLED, 0).unwrap().summary;
    assert!(summary(&skipped).contains("it was not computed"));
    assert!(summary(&masked).contains("left out"));
    assert_eq!(explain_token(&objective, &skipped, &SAMPLED, 5), None);
}
