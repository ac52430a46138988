//! Losses and advantages compared with TRL's, on the tensors of `tests/conformance/loss/trl.json`.

#![allow(clippy::unwrap_used, reason = "a failing helper fails the test")]

use pl_trainer::advantage::{EPSILON, group_advantages};
use pl_trainer::loss::{Clip, clipped_policy_loss, k3};
use serde_json::Value;
use tch::{Kind, Tensor};

fn reference() -> Value {
    serde_json::from_str(include_str!("../../../tests/conformance/loss/trl.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn gap(got: &Tensor, expected: &Value) -> f64 {
    (got - Tensor::from_slice(&numbers(expected))).abs().max().double_value(&[])
}

#[test]
fn losses_and_gradients_equal_those_of_trl() {
    let loss = &reference()["loss"];
    let [old, advantages] = ["old_logp", "advantages"].map(|name| Tensor::from_slice(&numbers(&loss[name])));
    let cases = loss["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 3);
    let mut bounded = 0;
    for case in cases {
        let [low, high, dual] = ["low", "high", "dual"].map(|name| case[name].as_f64().unwrap());
        let logp = Tensor::from_slice(&numbers(&loss["logp"])).set_requires_grad(true);
        let result = clipped_policy_loss(&logp, &old, &advantages, &Clip { low, high, dual }).unwrap();
        let mean = result.loss.mean(Kind::Double);
        mean.backward();
        assert!(gap(&result.loss, &case["per_token"]) < 1e-12);
        assert!((mean.double_value(&[]) - case["mean"].as_f64().unwrap()).abs() < 1e-12);
        assert!(gap(&logp.grad(), &case["gradient"]) < 1e-12);
        bounded += result.dual_clipped.sum(Kind::Int64).int64_value(&[]);
    }
    assert!(bounded > 0, "at least one token must be bounded by the dual clip");
}

#[test]
fn the_divergence_equals_that_of_trl() {
    let loss = &reference()["loss"];
    let [logp, old] = ["logp", "old_logp"].map(|name| Tensor::from_slice(&numbers(&loss[name])));
    assert!(gap(&k3(&logp, &old).unwrap(), &loss["k3"]) < 1e-12);
}

#[test]
fn advantages_equal_those_of_trl() {
    let reference = &reference()["advantages"];
    let group = reference["group"].as_u64().unwrap() as usize;
    let epsilon = reference["epsilon"].as_f64().unwrap();
    let rewards = numbers(&reference["rewards"]);
    let (scaled, plain) = (numbers(&reference["group_scaled"]), numbers(&reference["unscaled"]));
    for (index, rewards) in rewards.chunks(group).enumerate() {
        let own = index * group..(index + 1) * group;
        for (got, expected) in group_advantages(rewards, false).iter().zip(&plain[own.clone()]) {
            assert!((got - expected).abs() < 1e-12);
        }
        // TRL adds another epsilon to the standard deviation, so each side is multiplied by its own divisor.
        let mean = rewards.iter().sum::<f64>() / group as f64;
        let squares: f64 = rewards.iter().map(|reward| (reward - mean).powi(2)).sum();
        let spread = (squares / (group as f64 - 1.0)).sqrt();
        for (got, expected) in group_advantages(rewards, true).iter().zip(&scaled[own]) {
            assert!((got * (spread + EPSILON) - expected * (spread + epsilon)).abs() < 1e-12);
        }
    }
}
