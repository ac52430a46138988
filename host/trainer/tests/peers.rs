//! Losses, advantages, corrections and divergences compared with TRL's and verl's, on the tensors of
//! `tests/conformance/loss`.

#![allow(clippy::unwrap_used, reason = "a failing helper fails the test")]

use pl_dsl::workflow::objective::{
    Aggregation, Baseline, Correction, KlEstimator, Objective, Ratio, Scale, TrustRegion,
};
use pl_trainer::advantage::{EPSILON, TurnReturn, group_advantages, grouped_advantages, whiten};
use pl_trainer::aggregation::{CompletionCounts, token_weight};
use pl_trainer::correction::{CorrectionBounds, correction_weights};
use pl_trainer::kl::{kl_divergence, next_coefficient};
use pl_trainer::loss::{Clip, TokenInputs, TokenLoss, k3, policy_loss};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tch::{Kind, Tensor};

const EXACT: f64 = 1e-10;
/// Amount that verl adds to the length of a completion in its mean over completions.
const VERL_EPSILON: f64 = 1e-8;

fn trl() -> Value {
    serde_json::from_str(include_str!("../../../tests/conformance/loss/trl.json")).unwrap()
}

fn verl() -> Value {
    serde_json::from_str(include_str!("../../../tests/conformance/loss/verl.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn sizes(value: &Value) -> Vec<usize> {
    numbers(value).into_iter().map(|number| number as usize).collect()
}

fn number(case: &Value, name: &str) -> f64 {
    case[name].as_f64().unwrap()
}

fn text<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap()
}

fn word<T: DeserializeOwned>(word: &str) -> T {
    serde_json::from_value(Value::from(word)).unwrap()
}

fn gap(got: &Tensor, expected: &[f64]) -> f64 {
    (got - Tensor::from_slice(expected)).abs().max().double_value(&[])
}

/// Completions of different lengths, padded by the peers to rows of one length.
struct Completions {
    width: usize,
    lengths: Vec<usize>,
}

impl Completions {
    fn new(case: &Value, width: usize) -> Self {
        Self { width, lengths: sizes(&case["lengths"]) }
    }

    /// Drops the padding.
    fn flat(&self, padded: &Value) -> Vec<f64> {
        let padded = numbers(padded);
        let rows = padded.chunks(self.width).zip(&self.lengths);
        rows.flat_map(|(row, &length)| row[..length].iter().copied()).collect()
    }

    /// Repeats a number per completion for each of its tokens.
    fn spread(&self, values: &[f64]) -> Vec<f64> {
        let rows = values.iter().zip(&self.lengths);
        rows.flat_map(|(&value, &length)| std::iter::repeat_n(value, length)).collect()
    }

    /// Means over each completion, spread over its tokens.
    fn means(&self, values: &[f64]) -> Vec<f64> {
        let mut rest = values;
        let means: Vec<f64> = self
            .lengths
            .iter()
            .map(|&length| {
                let (own, others) = rest.split_at(length);
                rest = others;
                own.iter().sum::<f64>() / length as f64
            })
            .collect();
        self.spread(&means)
    }

    /// Weights of all tokens in the loss, as f64. `epsilon` is what a peer adds to the length of a completion in its
    /// mean over completions.
    fn weights(&self, aggregation: Aggregation, divisor: u32, epsilon: f64) -> Vec<f64> {
        let counts = CompletionCounts { completions: self.lengths.len(), tokens: self.lengths.iter().sum() };
        let weight = |&length: &usize| {
            // The exact quotients: f32 is what the trainer multiplies with.
            let weight = match aggregation {
                Aggregation::TokenMean => 1.0 / counts.tokens as f64,
                Aggregation::SequenceMean => 1.0 / (counts.completions as f64 * (length as f64 + epsilon)),
                Aggregation::Constant => 1.0 / (counts.completions as f64 * f64::from(divisor)),
            };
            assert!((f64::from(token_weight(aggregation, divisor, length, counts)) - weight).abs() < 1e-8);
            weight
        };
        self.spread(&self.lengths.iter().map(weight).collect::<Vec<_>>())
    }
}

/// Loss of all tokens and its gradient.
fn weighted_loss(
    logp: &[f64],
    weights: &[f64],
    loss: impl Fn(&Tensor) -> TokenLoss,
) -> (f64, Tensor, TokenLoss) {
    let logp = Tensor::from_slice(logp).set_requires_grad(true);
    let result = loss(&logp);
    let mean = (&result.loss * Tensor::from_slice(weights)).sum(Kind::Double);
    mean.backward();
    (mean.double_value(&[]), logp.grad(), result)
}

#[test]
fn losses_and_gradients_equal_those_of_trl() {
    let loss = &trl()["loss"];
    let [old, advantages] = ["old_logp", "advantages"].map(|name| Tensor::from_slice(&numbers(&loss[name])));
    let cases = loss["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 3);
    let mut bounded = 0;
    for case in cases {
        let [low, high, dual] = ["low", "high", "dual"].map(|name| number(case, name));
        let count = old.numel();
        let (mean, gradient, result) =
            weighted_loss(&numbers(&loss["logp"]), &vec![1.0 / count as f64; count], |logp| {
                let inputs =
                    TokenInputs { logp, old_logp: &old, advantage: &advantages, sequence_log_ratio: None };
                policy_loss(&inputs, Ratio::Token, TrustRegion::Clip, &Clip { low, high, dual }).unwrap()
            });
        assert!(gap(&result.loss, &numbers(&case["per_token"])) < EXACT);
        assert!((mean - number(case, "mean")).abs() < EXACT);
        assert!(gap(&gradient, &numbers(&case["gradient"])) < EXACT);
        bounded += result.dual_clipped.sum(Kind::Int64).int64_value(&[]);
    }
    assert!(bounded > 0, "at least one token must be bounded by the dual clip");
}

#[test]
fn cispo_gspo_and_means_equal_those_of_trl() {
    let vectors = &trl()["other_losses"];
    let completions = Completions::new(vectors, sizes(&Value::from(vec![vectors["tokens"].clone()]))[0]);
    let [logp, old] = ["logp", "old_logp"].map(|name| completions.flat(&vectors[name]));
    let advantages = completions.spread(&numbers(&vectors["advantages"]));
    let log_ratios: Vec<f64> = logp.iter().zip(&old).map(|(new, old)| new - old).collect();
    let sequence = Tensor::from_slice(&completions.means(&log_ratios));
    let (old, advantages) = (Tensor::from_slice(&old), Tensor::from_slice(&advantages));
    let mut clipped = 0;
    for case in vectors["cases"].as_array().unwrap() {
        let (kind, level) = (text(case, "kind"), text(case, "level"));
        let aggregation = match kind {
            "cispo" => Aggregation::TokenMean,
            "grpo" => Aggregation::SequenceMean,
            _ => Aggregation::Constant,
        };
        // TRL's bound of CISPO is the ratio itself, and there is no lower one.
        let (region, clip) = match kind {
            "cispo" => (TrustRegion::Cispo, Clip { low: 1.0, high: number(case, "high") - 1.0, dual: 0.0 }),
            _ => {
                (TrustRegion::Clip, Clip { low: number(case, "low"), high: number(case, "high"), dual: 0.0 })
            }
        };
        let weights = completions.weights(aggregation, 20, 0.0);
        let (loss, gradient, result) = weighted_loss(&logp, &weights, |logp| {
            let inputs = TokenInputs {
                logp,
                old_logp: &old,
                advantage: &advantages,
                sequence_log_ratio: Some(&sequence),
            };
            policy_loss(&inputs, word(level), region, &clip).unwrap()
        });
        assert!((loss - number(case, "loss")).abs() < EXACT, "{kind} {level}");
        assert!(gap(&gradient, &completions.flat(&case["gradient"])) < EXACT, "{kind} {level}");
        clipped += result.clipped.sum(Kind::Int64).int64_value(&[]);
    }
    assert!(clipped > 10, "{clipped}");
}

#[test]
fn losses_and_gradients_equal_those_of_verl() {
    let vectors = &verl()["losses"];
    let completions = Completions::new(vectors, vectors["tokens"].as_u64().unwrap() as usize);
    let [logp, old, sampler, advantages] =
        ["logp", "old_logp", "sampler", "advantages"].map(|name| completions.flat(&vectors[name]));
    let log_ratios: Vec<f64> = logp.iter().zip(&old).map(|(new, old)| new - old).collect();
    let sequence = Tensor::from_slice(&completions.means(&log_ratios));
    let (old, sampler, advantages) =
        (Tensor::from_slice(&old), Tensor::from_slice(&sampler), Tensor::from_slice(&advantages));
    let bounds = CorrectionBounds { low: 0.0, high: 2.0 };
    let log_weights = &old - &sampler;
    let correction =
        correction_weights(Correction::Tis, bounds, &log_weights, &log_weights).unwrap().unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 7 * 3 * 2);
    let mut clipped = std::collections::BTreeMap::<String, i64>::new();
    for case in cases {
        let name = text(case, "name");
        let (ratio, region) = match name {
            "vanilla" => (Ratio::Token, TrustRegion::Clip),
            "gspo" => (Ratio::Sequence, TrustRegion::Clip),
            "cispo" => (Ratio::Token, TrustRegion::Cispo),
            "dppo_tv" => (Ratio::Token, TrustRegion::Mask),
            _ => (Ratio::None, TrustRegion::None),
        };
        let dual = if name == "vanilla" { number(case, "bound") } else { 0.0 };
        let clip = Clip { low: number(case, "low"), high: number(case, "high"), dual };
        let mut weights = completions.weights(word(text(case, "aggregation")), 20, VERL_EPSILON);
        if case["corrected"] == true {
            let correction = Vec::<f64>::try_from(&correction).unwrap();
            weights.iter_mut().zip(correction).for_each(|(weight, correction)| *weight *= correction);
        }
        let (loss, gradient, result) = weighted_loss(&logp, &weights, |logp| {
            let inputs = TokenInputs {
                logp,
                old_logp: &old,
                advantage: &advantages,
                sequence_log_ratio: Some(&sequence),
            };
            policy_loss(&inputs, ratio, region, &clip).unwrap()
        });
        assert!((loss - number(case, "loss")).abs() < EXACT, "{case}");
        assert!(gap(&gradient, &completions.flat(&case["gradient"])) < EXACT, "{case}");
        *clipped.entry(name.to_owned()).or_default() += result.clipped.sum(Kind::Int64).int64_value(&[]);
    }
    for name in ["vanilla", "gspo", "cispo", "dppo_tv"] {
        assert!(clipped[name] > 5, "{name}: {}", clipped[name]);
    }
}

#[test]
fn divergences_equal_those_of_the_peers() {
    let loss = &trl()["loss"];
    let [logp, old] = ["logp", "old_logp"].map(|name| Tensor::from_slice(&numbers(&loss[name])));
    let ours = kl_divergence(KlEstimator::K3, &old, &logp).unwrap();
    assert!(gap(&ours, &numbers(&loss["k3"])) < EXACT);
    assert!(gap(&k3(&logp, &old).unwrap(), &numbers(&loss["k3"])) < EXACT);
    let vectors = &verl()["losses"];
    let reference = Tensor::from_slice(&numbers(&vectors["reference"]));
    for (name, expected) in vectors["divergences"].as_object().unwrap() {
        let logp = Tensor::from_slice(&numbers(&vectors["logp"])).set_requires_grad(true);
        let divergence = kl_divergence(word(name), &logp, &reference).unwrap();
        divergence.sum(Kind::Double).backward();
        assert!(gap(&divergence, &numbers(&expected["values"])) < EXACT, "{name}");
        assert!(gap(&logp.grad(), &numbers(&expected["gradient"])) < EXACT, "{name}");
    }
}

#[test]
fn corrections_equal_those_of_verl() {
    let vectors = &verl()["losses"];
    let completions = Completions::new(vectors, vectors["tokens"].as_u64().unwrap() as usize);
    let [old, sampler] = ["old_logp", "sampler"].map(|name| completions.flat(&vectors[name]));
    let log_ratios: Vec<f64> = old.iter().zip(&sampler).map(|(old, sampler)| old - sampler).collect();
    let means = Tensor::from_slice(&completions.means(&log_ratios));
    let log_ratios = Tensor::from_slice(&log_ratios);
    let cases = [("tis", 0.0, 2.0), ("icepop", 0.75, 1.4), ("sequence_mask", 0.95, 1.1)];
    for (name, low, high) in cases {
        let bounds = CorrectionBounds { low, high };
        let weights = correction_weights(word(name), bounds, &log_ratios, &means).unwrap().unwrap();
        let expected = completions.flat(&vectors["corrections"][name]);
        assert!(gap(&weights, &expected) < EXACT, "{name}");
        let largest = expected.iter().copied().fold(0.0, f64::max);
        assert!(expected.contains(&0.0) || (largest - high).abs() < EXACT, "{name}");
    }
}

/// Returns of different episodes.
fn apart(returns: &[f64]) -> Vec<TurnReturn> {
    returns.iter().enumerate().map(|(episode, &value)| TurnReturn { episode, value }).collect()
}

#[test]
fn advantages_equal_those_of_trl() {
    let reference = &trl()["advantages"];
    let group = reference["group"].as_u64().unwrap() as usize;
    let epsilon = number(reference, "epsilon");
    let rewards = numbers(&reference["rewards"]);
    let (scaled, plain) = (numbers(&reference["group_scaled"]), numbers(&reference["unscaled"]));
    for (index, rewards) in rewards.chunks(group).enumerate() {
        let own = index * group..(index + 1) * group;
        let unscaled = group_advantages(&apart(rewards), Baseline::Mean, Scale::None);
        for (got, expected) in unscaled.iter().zip(&plain[own.clone()]) {
            assert!((got - expected).abs() < EXACT);
        }
        // TRL adds another epsilon to the standard deviation, so each side is multiplied by its own divisor.
        let mean = rewards.iter().sum::<f64>() / group as f64;
        let squares: f64 = rewards.iter().map(|reward| (reward - mean).powi(2)).sum();
        let spread = (squares / (group as f64 - 1.0)).sqrt();
        let got = group_advantages(&apart(rewards), Baseline::Mean, Scale::Group);
        for (got, expected) in got.iter().zip(&scaled[own]) {
            assert!((got * (spread + EPSILON) - expected * (spread + epsilon)).abs() < EXACT);
        }
    }
}

#[test]
fn advantages_equal_those_of_verl() {
    let vectors = &verl()["advantages"];
    let lengths = sizes(&vectors["lengths"]);
    let completions = Completions::new(vectors, *lengths.iter().max().unwrap());
    let (groups, scores) = (sizes(&vectors["groups"]), numbers(&vectors["scores"]));
    let grouped = |baseline, scale| {
        grouped_advantages(groups.iter().copied().zip(apart(&scores)), baseline, scale).values
    };
    let close = |got: &[f64], expected: &[f64], exact: f64| {
        assert_eq!(got.len(), expected.len());
        let gap = got.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(gap < exact, "{gap}: {got:?} and {expected:?}");
    };
    let near = |got: &[f64], expected: &[f64]| close(got, expected, EXACT);
    // verl adds 1e-8 to the number of tokens in the mean and the variance of its whitening.
    let near_whitened = |got: &[f64], expected: &[f64]| close(got, expected, 1e-9);
    near(&grouped(Baseline::Mean, Scale::Group), &numbers(&vectors["grpo"]));
    near(&grouped(Baseline::Mean, Scale::None), &numbers(&vectors["dr_grpo"]));
    near(&grouped(Baseline::LeaveOneOut, Scale::None), &numbers(&vectors["rloo"]));

    let tokens = |values: &[f64]| -> Vec<Vec<f64>> {
        values.iter().zip(&lengths).map(|(&value, &length)| vec![value; length]).collect()
    };
    let mut batch = tokens(&grouped(Baseline::Mean, Scale::Batch));
    whiten(&mut batch);
    near_whitened(&batch.concat(), &completions.flat(&vectors["batch"]));
    let mut returns = tokens(&scores);
    whiten(&mut returns);
    near_whitened(&returns.concat(), &completions.flat(&vectors["reinforce_pp"]));
}

#[test]
fn the_adaptive_coefficient_equals_that_of_verl() {
    let vectors = verl()["advantages"]["adaptive"].clone();
    let objective: Objective = serde_json::from_value(serde_json::json!({
        "algorithm": "ppo", "returns": "step", "gamma": 1.0, "gamma_turn": 1.0, "lambda": 1.0, "advantage": "gae",
        "group_by": { "agent": true, "turn": true }, "baseline": "none", "scale": "batch", "ratio": "token",
        "trust_region": "clip", "clip_low": 0.2, "clip_high": 0.2, "dual_clip": 0.0, "old_logprobs": "sampler",
        "correction": "none", "correction_low": 0.0, "correction_high": 2.0, "aggregation": "token_mean",
        "divisor": null, "kl": vectors["start"], "kl_estimator": "k1", "kl_in": "reward",
        "kl_target": vectors["target"], "kl_horizon": vectors["horizon"], "entropy": 0.0, "overlong": "keep",
        "overlong_buffer": 0, "overlong_penalty": 1.0,
    }))
    .unwrap();
    let mut coefficient = objective.kl;
    let steps = vectors["measured"].as_array().unwrap().iter().zip(numbers(&vectors["coefficients"]));
    for (measured, expected) in steps {
        let [kl, completions] = numbers(measured)[..] else { panic!("{measured}") };
        coefficient = next_coefficient(&objective, coefficient, kl, completions as usize);
        assert!((coefficient - expected).abs() < EXACT);
    }
}
