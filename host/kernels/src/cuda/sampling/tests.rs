//! Comparison of the kernels, emulated on the CPU, with the same in f64.

use std::sync::LazyLock;

use tch::{Device, IndexOp};

use super::*;
use crate::cpu::{Distribution, SimdLevel};
use crate::cuda::emulated::Emulated;

fn emulated(seed: u64) -> TokenSampler {
    static LIBRARY: LazyLock<Emulated> = LazyLock::new(|| {
        Emulated::compile(&["emulated.h", "numbers.cu", "sampling.cu", "sampling/emulated.cpp"])
    });
    TokenSampler { launcher: Arc::new(LIBRARY.with_seed(seed)) }
}

/// A row, a temperature and a choice.
type Choice = (i64, f64, f64);

fn sample(logits: &Tensor, choices: &[Choice], seed: u64) -> Vec<(i64, f32)> {
    let columns: Vec<f64> = choices
        .iter()
        .map(|choice| choice.0 as f64)
        .chain(choices.iter().map(|choice| choice.1))
        .chain(choices.iter().map(|choice| choice.2))
        .collect();
    let choices = Tensor::from_slice(&columns).view([3, -1]);
    let out: Vec<i32> = emulated(seed).sample(logits, &choices).unwrap().view(-1).try_into().unwrap();
    let (tokens, bits) = out.split_at(out.len() / 2);
    tokens
        .iter()
        .zip(bits)
        .map(|(token, bits)| (i64::from(*token), f32::from_bits(bits.cast_unsigned())))
        .collect()
}

/// Checks a token at a quantile: the probabilities of the tokens before it add up to at most the quantile, and with its own to
/// more. Returns true if the token of the CPU's sampler is the same.
fn check(logits: &Tensor, (row, temperature, choice): Choice, (token, logp): (i64, f32)) -> bool {
    let own: Vec<f32> = logits.get(row).try_into().unwrap();
    let scaled: Vec<f64> = own.iter().map(|z| f64::from(*z / temperature as f32)).collect();
    let largest = scaled.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scaled.iter().map(|z| (z - largest).exp()).collect();
    let total: f64 = weights.iter().sum();
    let what = format!("row {row} of {}, {temperature}, {choice}: {token}", own.len());
    let expected = scaled[token as usize] - largest - total.ln();
    assert!(
        logp as f64 == expected || (f64::from(logp) - expected).abs() < 1e-5 * expected.abs().max(1.0),
        "{what}: {logp} {expected}"
    );
    let mut buffer = vec![0.0; own.len()];
    let cpu = Distribution::new(SimdLevel::detect(), &own, temperature as f32, &mut buffer);
    if choice < LIKELIEST {
        assert_eq!(given(token as u32), choice, "{what}");
        return true;
    }
    if choice == LIKELIEST {
        assert_eq!(Some(token as usize), cpu.likeliest(&own), "{what}");
        return true;
    }
    assert!(weights[token as usize] > 0.0 && logp.is_finite(), "{what}: without probability");
    let before = weights[..token as usize].iter().sum::<f64>() / total;
    let after = before + weights[token as usize] / total;
    assert!(before - 1e-6 <= choice && choice < after + 1e-6, "{what}: between {before} and {after}");
    cpu.sample(&buffer, choice) == Some(token as usize)
}

#[test]
fn tokens_are_those_of_the_softmax() {
    tch::manual_seed(1);
    let quantiles = [0.0, 1e-9, 0.2, 0.5, 0.77, 0.999_999, 1.0 - f64::EPSILON / 2.0];
    let (mut same, mut all) = (0, 0);
    for (vocab, rows, spread) in [(1, 1, 1.0), (7, 4, 2.0), (1001, 4, 4.0), (4096, 2, 8.0), (49_152, 2, 3.0)]
    {
        let logits = Tensor::randn([rows, vocab], (Kind::Float, Device::Cpu)) * spread;
        // Ties and tokens without probability, in particular the first and last ones.
        if vocab > 1 {
            let _ = logits.i((0, ..)).clamp_max_(spread);
            let _ = logits.i((rows - 1, ..vocab / 3)).fill_(f64::NEG_INFINITY);
            let _ = logits.i((rows - 1, vocab - vocab / 4..)).fill_(f64::NEG_INFINITY);
        }
        let temperatures = if vocab > 10_000 { vec![0.7] } else { vec![0.3, 0.7, 1.0, 2.0] };
        let mut choices: Vec<Choice> = Vec::new();
        for row in 0..rows {
            for temperature in &temperatures {
                for choice in quantiles.into_iter().chain([LIKELIEST, given(0), given(vocab as u32 / 2)]) {
                    choices.push((row, *temperature, choice));
                }
            }
        }
        let got = sample(&logits, &choices, 1);
        for (choice, got) in choices.iter().zip(&got) {
            same += usize::from(check(&logits, *choice, *got));
            all += 1;
        }
        let bits = |tokens: &[(i64, f32)]| tokens.iter().map(|t| (t.0, t.1.to_bits())).collect::<Vec<_>>();
        assert_eq!(bits(&sample(&logits, &choices, 2)), bits(&got), "{vocab}: another order of threads");
        // A row alone, at another address.
        let row = rows - 1;
        let alone = Tensor::cat(&[Tensor::zeros([1], (Kind::Float, Device::Cpu)), logits.get(row)], 0);
        let alone = alone.i(1..).view([1, vocab]);
        let own = |choice: &Choice| choice.0 == row;
        let of_row: Vec<Choice> = choices.iter().filter(|c| own(c)).map(|c| (0, c.1, c.2)).collect();
        let expected: Vec<_> = choices.iter().zip(&got).filter(|(c, _)| own(c)).map(|(_, t)| *t).collect();
        assert_eq!(bits(&sample(&alone, &of_row, 3)), bits(&expected), "{vocab}: a row alone");
    }
    // Sums are rounded differently, so few tokens at the border of two quantiles differ.
    assert!(same * 100 >= all * 95, "{same} of {all} tokens equal those of the CPU");
}

#[test]
fn frequencies_follow_the_distribution() {
    let logits = Tensor::from_slice(&[1.0f32, 0.0, f32::NEG_INFINITY, 2.0, -1.0, 1.5]).view([1, 6]);
    let temperature = 0.7;
    let weights: Vec<f64> = (0..6).map(|i| (logits.double_value(&[0, i]) / temperature).exp()).collect();
    let total: f64 = weights.iter().sum();
    // Quantiles that fill [0, 1) evenly, so that counts are exact to one.
    let samples = 400;
    let choices: Vec<Choice> =
        (0..samples).map(|i| (0, temperature, (f64::from(i) + 0.5) / f64::from(samples))).collect();
    let mut counts = [0f64; 6];
    for (token, logp) in sample(&logits, &choices, 1) {
        counts[token as usize] += 1.0;
        assert!((f64::from(logp) - (weights[token as usize] / total).ln()).abs() < 1e-6);
    }
    for (count, weight) in counts.iter().zip(weights) {
        assert!((count - weight / total * f64::from(samples)).abs() <= 1.0, "{counts:?}");
    }
}

/// Tokens of one part have all the probability, but those of other parts come first and last.
#[test]
fn parts_without_probability_have_no_token() {
    for vocab in [3 * PART, 3 * PART + 5] {
        let logits = Tensor::full([1, vocab], -1e6, (Kind::Float, Device::Cpu));
        let _ = logits.i((.., PART + 10..PART + 12)).fill_(3.0);
        let choices = [0.0, 0.49, 0.51, 1.0 - f64::EPSILON / 2.0].map(|quantile| (0, 1.0, quantile));
        let tokens: Vec<i64> = sample(&logits, &choices, 1).into_iter().map(|(token, _)| token).collect();
        assert_eq!(tokens, [PART + 10, PART + 10, PART + 11, PART + 11]);
    }
}

#[test]
fn rows_that_are_not_distributions_have_no_log_probability() {
    for vocab in [7i64, 5000] {
        let logits = Tensor::randn([5, vocab], (Kind::Float, Device::Cpu));
        let _ = logits.i((0, vocab - 2)).fill_(f64::NAN);
        let _ = logits.i((1, ..)).fill_(f64::NEG_INFINITY);
        let _ = logits.i((2, 1)).fill_(f64::INFINITY);
        let _ = logits.i((3, ..)).fill_(f64::NAN);
        let rows = [0, 1, 2, 3, 4];
        for choice in [0.0, 0.5, 0.999_999, LIKELIEST, given(3)] {
            let choices = rows.map(|row| (row, 0.8, choice));
            let got = sample(&logits, &choices, 1);
            assert!(got.iter().all(|(token, _)| (0..vocab).contains(token)), "{got:?}");
            assert!(got[..4].iter().all(|(_, logp)| !logp.is_finite()), "{choice}: {got:?}");
            if choice < LIKELIEST {
                assert!(got[..4].iter().all(|(_, logp)| logp.is_nan()), "{choice}: {got:?}");
            }
            assert!(got[4].1.is_finite(), "another row: {got:?}");
        }
        for (row, choice) in [(-1, 0.5), (5, 0.5), (4, given(vocab as u32)), (4, given(u32::MAX))] {
            let (token, logp) = sample(&logits, &[(row, 1.0, choice)], 1)[0];
            assert!(token == 0 && logp.is_nan(), "row {row}, {choice}: {token} {logp}");
        }
    }
}

#[test]
fn tensors_that_the_kernels_do_not_take_are_errors() {
    let logits = Tensor::randn([2, 9], (Kind::Float, Device::Cpu));
    let choices = |count: i64| Tensor::zeros([3, count], (Kind::Double, Device::Cpu));
    assert_eq!(emulated(1).sample(&logits, &choices(0)).unwrap().size(), [2, 0]);
    for (logits, choices, what) in [
        (logits.to_kind(Kind::Half), choices(1), "the logits"),
        (logits.tr(), choices(1), "the logits"),
        (logits.narrow(1, 0, 0), choices(1), "the logits"),
        (logits.get(0), choices(1), "the logits"),
        (logits.shallow_clone(), choices(1).to_kind(Kind::Float), "the choices"),
        (logits.shallow_clone(), choices(1).tr(), "the choices"),
    ] {
        let error = emulated(1).sample(&logits, &choices).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}
