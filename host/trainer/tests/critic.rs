//! Generalised advantage estimates and value losses compared with verl's, on the tensors of
//! `tests/conformance/loss/verl-critic.json`.

#![allow(clippy::unwrap_used, reason = "a failing helper fails the test")]

use pl_trainer::advantage::whiten;
use pl_trainer::critic::loss::value_loss;
use pl_trainer::gae::{Discounts, Successor, Turn, estimate};
use serde_json::Value;
use tch::{Kind, Tensor};

const EXACT: f64 = 1e-10;

fn verl() -> Value {
    serde_json::from_str(include_str!("../../../tests/conformance/loss/verl-critic.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

fn assert_close(got: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(expected) {
        assert!((got - expected).abs() < tolerance, "{what}: {got} instead of {expected}");
    }
}

/// The elements at which the mask is 1.
fn kept(values: &[f64], mask: &[f64]) -> Vec<f64> {
    values.iter().zip(mask).filter(|(_, mask)| **mask == 1.0).map(|(value, _)| *value).collect()
}

/// Turns of all rows: positions of adjacent elements at which the mask is 1, and true if the row has a later turn.
fn turns(mask: &[f64], width: usize) -> Vec<(Vec<usize>, bool)> {
    let mut turns = Vec::new();
    for (row, mask) in mask.chunks(width).enumerate() {
        let mut own: Vec<Vec<usize>> = Vec::new();
        for (column, _) in mask.iter().enumerate().filter(|(_, mask)| **mask == 1.0) {
            let position = row * width + column;
            match own.last_mut().filter(|turn| turn.last() == Some(&position.wrapping_sub(1))) {
                Some(turn) => turn.push(position),
                None => own.push(vec![position]),
            }
        }
        let count = own.len();
        turns.extend(own.into_iter().enumerate().map(|(index, turn)| (turn, index + 1 < count)));
    }
    turns
}

#[test]
fn estimates_equal_verls_over_several_turns() {
    let peer = verl();
    let (width, mask) = (peer["width"].as_u64().unwrap() as usize, numbers(&peer["mask"]));
    let turns = turns(&mask, width);
    assert!(turns.iter().filter(|(_, continues)| *continues).count() > 5);
    for case in peer["estimates"].as_array().unwrap() {
        let number = |name: &str| case[name].as_f64().unwrap();
        let (rewards, values) = (numbers(&case["rewards"]), numbers(&case["values"]));
        let select = |turn: &[usize], from: &[f64]| turn.iter().map(|&i| from[i]).collect::<Vec<f64>>();
        let parts: Vec<(Vec<f32>, Vec<f64>)> = turns
            .iter()
            .map(|(turn, _)| {
                (select(turn, &values).into_iter().map(|v| v as f32).collect(), select(turn, &rewards))
            })
            .collect();
        let all: Vec<Turn<'_>> = parts
            .iter()
            .zip(&turns)
            .enumerate()
            .map(|(index, ((values, rewards), (_, continues)))| {
                let successor = if *continues { Successor::Turn(index + 1) } else { Successor::End };
                Turn { values, rewards, successor }
            })
            .collect();
        // verl has one discount for both.
        let gamma = number("gamma");
        let got = estimate(&all, &Discounts { token: gamma, turn: gamma, lambda: number("lambda") });
        let returns: Vec<f64> = got.iter().flat_map(|own| own.returns.iter().copied()).collect();
        assert_close(&returns, &kept(&numbers(&case["returns"]), &mask), EXACT, "returns");
        let mut advantages: Vec<Vec<f64>> = got.into_iter().map(|own| own.advantages).collect();
        whiten(&mut advantages);
        // verl adds 1e-8 to the number of tokens in its whitening.
        let whitened = kept(&numbers(&case["whitened"]), &mask);
        assert_close(&advantages.concat(), &whitened, 1e-8, "whitened advantages");
    }
}

#[test]
fn value_losses_equal_verls() {
    let peer = verl();
    let (width, mask) = (peer["width"].as_u64().unwrap() as usize, numbers(&peer["mask"]));
    let rows: Vec<f64> = mask.chunks(width).map(|row| row.iter().sum()).collect();
    let total: f64 = rows.iter().sum();
    for case in peer["value_losses"].as_array().unwrap() {
        let column = |name: &str| Tensor::from_slice(&kept(&numbers(&case[name]), &mask));
        // verl adds 1e-8 to the length of a completion in its mean over completions.
        let of_row = |&n: &f64| vec![1.0 / ((n + 1e-8) * rows.len() as f64); n as usize];
        let weights: Vec<f64> = match case["aggregation"].as_str().unwrap() {
            "token_mean" => vec![1.0 / total; total as usize],
            _ => rows.iter().flat_map(of_row).collect(),
        };
        let values = column("predicted").set_requires_grad(true);
        let clip = case["clip"].as_f64().unwrap();
        let result = value_loss(&values, &column("old"), &column("returns"), clip).unwrap();
        let loss = (&result.loss * Tensor::from_slice(&weights)).sum(Kind::Double);
        loss.backward();
        assert!((loss.double_value(&[]) - case["loss"].as_f64().unwrap()).abs() < EXACT);
        let gradient = Vec::<f64>::try_from(values.grad()).unwrap();
        assert_close(&gradient, &kept(&numbers(&case["gradient"]), &mask), EXACT, "gradient");
        // verl takes the share of clipped tokens in single precision.
        let clipped = result.clipped.to_kind(Kind::Double).mean(Kind::Double).double_value(&[]);
        assert!((clipped - case["clipped"].as_f64().unwrap()).abs() < 1e-6 && clipped > 0.0);
    }
}
