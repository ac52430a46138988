//! The head in chunks compared with autograd over all logits.

use tch::{Device, Kind};

use super::*;
use crate::fixtures::close;

const ROWS: i64 = 23;
const WIDTH: i64 = 8;
const VOCABULARY: i64 = 50;

struct Case {
    hidden: Tensor,
    unembed: WeightMatrix,
    tokens: Tensor,
    temperatures: Tensor,
    weights: Tensor,
    support: SampledSupport,
}

fn case() -> Case {
    tch::manual_seed(3);
    let options = (Kind::Float, Device::Cpu);
    let tokens = Tensor::randint(VOCABULARY, [ROWS], (Kind::Int64, Device::Cpu));
    // Every third row has the whole vocabulary; the first of the others only the token itself.
    let mut support = SampledSupport::default();
    for (row, token) in Vec::<i64>::try_from(&tokens).unwrap().into_iter().enumerate() {
        let count = if row % 3 == 2 { 0 } else { row as i64 + 1 };
        support.push(&(0..count).map(|i| ((token + i * 3) % VOCABULARY) as u32).collect::<Vec<_>>());
    }
    Case {
        support,
        hidden: Tensor::randn([ROWS, WIDTH], options),
        unembed: Tensor::randn([VOCABULARY, WIDTH], options).into(),
        tokens,
        temperatures: Tensor::rand([ROWS], options) + 0.5,
        weights: Tensor::randn([ROWS], options),
    }
}

impl Case {
    /// `[N, V]`, true for ids outside of a row's support.
    fn truncated_ids(&self) -> Tensor {
        let mut truncated = vec![false; (ROWS * VOCABULARY) as usize];
        for (row, bounds) in self.support.offsets.windows(2).enumerate() {
            let own = &self.support.ids[bounds[0]..bounds[1]];
            for id in 0..VOCABULARY {
                truncated[row * VOCABULARY as usize + id as usize] = !own.is_empty() && !own.contains(&id);
            }
        }
        Tensor::from_slice(&truncated).view([ROWS, VOCABULARY])
    }
}

/// The loss is `sum(weights · logp²)`: its derivative depends on the log-probabilities.
fn chunked(case: &Case, temperatures: bool, support: bool, chunk: i64) -> (Tensor, HeadOutput, Tensor) {
    let input = HeadInput {
        hidden: &case.hidden,
        tokens: &case.tokens,
        temperatures: temperatures.then_some(&case.temperatures),
        support: support.then_some(&case.support),
    };
    let unembed_gradient = case.unembed.to_tensor().unwrap().zeros_like();
    let mut logps = Vec::new();
    let options =
        HeadOptions { entropy: true, entropy_slopes: None, chunk, unembed_gradient: Some(&unembed_gradient) };
    let head = forward_backward(&input, &case.unembed, &options, |range, logp| {
        logps.push(logp.shallow_clone());
        let weights = case.weights.narrow(0, range.start, range.end - range.start);
        Ok(weights * logp * 2.0)
    })
    .unwrap();
    let part = logprobs(&input, 3..ROWS, &case.unembed, chunk).unwrap();
    close(&part, &Tensor::cat(&logps, 0).narrow(0, 3, ROWS - 3), 1e-6);
    (Tensor::cat(&logps, 0), head, unembed_gradient)
}

#[test]
fn results_equal_autograd_on_the_full_tensor() {
    for (temperatures, support) in [(false, false), (true, false), (false, true), (true, true)] {
        let case = case();
        let (logp, head, unembed_gradient) = chunked(&case, temperatures, support, 5);

        let hidden = case.hidden.copy().set_requires_grad(true);
        let unembed = case.unembed.to_tensor().unwrap().copy().set_requires_grad(true);
        let mut logits = hidden.mm(&unembed.tr());
        if temperatures {
            logits /= case.temperatures.unsqueeze(1);
        }
        if support {
            logits = logits.masked_fill(&case.truncated_ids(), f64::from(f32::MIN));
        }
        let all = logits.log_softmax(-1, Kind::Float);
        let expected = all.gather(1, &case.tokens.unsqueeze(1), false).squeeze_dim(1);
        (&case.weights * expected.square()).sum(Kind::Float).backward();

        close(&logp, &expected, 1e-5);
        close(&head.hidden_gradient, &hidden.grad(), 1e-4);
        close(&unembed_gradient, &unembed.grad(), 1e-4);
        let entropy = -(all.exp() * &all).sum_dim_intlist(-1, false, Kind::Float);
        close(&head.entropy.unwrap(), &entropy, 1e-5);
    }
}

#[test]
fn the_gradient_of_an_entropy_bonus_equals_autograd() {
    for (temperatures, support) in [(false, false), (true, false), (false, true), (true, true)] {
        let case = case();
        let input = HeadInput {
            hidden: &case.hidden,
            tokens: &case.tokens,
            temperatures: temperatures.then_some(&case.temperatures),
            support: support.then_some(&case.support),
        };
        // One slope of each sign, and rows without a bonus.
        let slopes = (case.weights.clamp(-0.5, 1.0) * 0.3).contiguous();
        let unembed_gradient = case.unembed.to_tensor().unwrap().zeros_like();
        let options = HeadOptions {
            entropy: true,
            entropy_slopes: Some(&slopes),
            chunk: 5,
            unembed_gradient: Some(&unembed_gradient),
        };
        let head = forward_backward(&input, &case.unembed, &options, |range, logp| {
            Ok(case.weights.narrow(0, range.start, range.end - range.start) * logp * 2.0)
        })
        .unwrap();

        let hidden = case.hidden.copy().set_requires_grad(true);
        let unembed = case.unembed.to_tensor().unwrap().copy().set_requires_grad(true);
        let mut logits = hidden.mm(&unembed.tr());
        if temperatures {
            logits /= case.temperatures.unsqueeze(1);
        }
        if support {
            logits = logits.masked_fill(&case.truncated_ids(), -1e30);
        }
        let all = logits.log_softmax(-1, Kind::Float);
        let logp = all.gather(1, &case.tokens.unsqueeze(1), false).squeeze_dim(1);
        let entropy = -(all.exp() * &all).sum_dim_intlist(-1, false, Kind::Float);
        ((&case.weights * logp.square()).sum(Kind::Float) + (&slopes * &entropy).sum(Kind::Float)).backward();
        close(&head.entropy.unwrap(), &entropy, 1e-5);
        close(&head.hidden_gradient, &hidden.grad(), 1e-4);
        close(&unembed_gradient, &unembed.grad(), 1e-4);
    }
}

/// The kernels have tests of their own; this one tests their use.
#[test]
fn a_head_without_logits_in_memory_gives_the_same_results() {
    for temperatures in [false, true] {
        let case = case();
        let (logp, expected, expected_unembed) = chunked(&case, temperatures, false, CHUNK);
        let input = HeadInput {
            hidden: &case.hidden,
            tokens: &case.tokens,
            temperatures: temperatures.then_some(&case.temperatures),
            support: None,
        };
        let unembed_gradient = case.unembed.to_tensor().unwrap().zeros_like();
        let options = HeadOptions {
            entropy: true,
            entropy_slopes: None,
            chunk: CHUNK,
            unembed_gradient: Some(&unembed_gradient),
        };
        let mut logps = Vec::new();
        let reference = cuda::head::ReferenceHead;
        let head =
            without_logits(&reference, &input, case.unembed.tensor().unwrap(), &options, 7, |range, logp| {
                logps.push(logp.shallow_clone());
                Ok(case.weights.narrow(0, range.start, range.end - range.start) * logp * 2.0)
            })
            .unwrap();
        close(&Tensor::cat(&logps, 0), &logp, 1e-5);
        close(&head.hidden_gradient, &expected.hidden_gradient, 1e-4);
        close(&head.entropy.unwrap(), &expected.entropy.unwrap(), 1e-5);
        close(&unembed_gradient, &expected_unembed, 1e-4);
    }
}

#[test]
fn a_head_without_logits_in_memory_gives_entropies_only_if_they_are_requested() {
    let case = case();
    let input = HeadInput { hidden: &case.hidden, tokens: &case.tokens, temperatures: None, support: None };
    for entropy in [false, true] {
        let options = HeadOptions { entropy, entropy_slopes: None, chunk: CHUNK, unembed_gradient: None };
        let unembed = case.unembed.tensor().unwrap();
        let reference = cuda::head::ReferenceHead;
        let head = without_logits(&reference, &input, unembed, &options, 7, |_, logp| Ok(logp.zeros_like()))
            .unwrap();
        assert_eq!(head.entropy.is_some(), entropy);
    }
}

#[test]
fn chunk_sizes_change_only_rounding() {
    let case = case();
    let (logp, head, unembed_gradient) = chunked(&case, true, true, ROWS);
    for chunk in [1, 7, ROWS + 9] {
        let (l, h, u) = chunked(&case, true, true, chunk);
        close(&l, &logp, 1e-5);
        close(&h.hidden_gradient, &head.hidden_gradient, 1e-4);
        close(&h.entropy.unwrap(), head.entropy.as_ref().unwrap(), 1e-5);
        close(&u, &unembed_gradient, 1e-4);
    }
}

#[test]
fn chunks_are_processed_in_order() {
    let case = case();
    let input = HeadInput { hidden: &case.hidden, tokens: &case.tokens, temperatures: None, support: None };
    let mut sizes = Vec::new();
    let options = HeadOptions { entropy: false, entropy_slopes: None, chunk: 4, unembed_gradient: None };
    let head = forward_backward(&input, &case.unembed, &options, |range, logp| {
        sizes.push(logp.size()[0]);
        assert_eq!(range.end - range.start, logp.size()[0]);
        Ok(logp.zeros_like())
    })
    .unwrap();
    assert_eq!(sizes, [4, 4, 4, 4, 4, 3]);
    assert!(head.entropy.is_none());
    assert_eq!(head.hidden_gradient.abs().max().double_value(&[]), 0.0);
}
