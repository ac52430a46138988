//! Several sequences in one row of tokens are what they are alone, gradients included.

use pl_model::{Adapter, Model, Packed, Projection, hidden_states};
use tch::{Kind, Tensor};

use crate::{gap, tiny};

/// An adapter with B away from zero, so that it does something.
fn adapter(model: &Model, rank: usize, targets: &[Projection], seed: u8) -> Adapter {
    let adapter = Adapter::new(&model.config, rank, 2.0 * rank as f64, targets, [seed; 32]).unwrap();
    tch::manual_seed(i64::from(seed));
    for (name, mut tensor) in adapter.parameters() {
        if name.contains("lora_B") {
            let _ = tensor.normal_(0.0, 0.1);
        }
    }
    adapter.set_trainable(true);
    adapter
}

fn sequence(seed: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (seed * 131 + i * i * 17 + i * 7) % 299).collect()
}

/// A loss that weighs every element differently.
fn loss(hidden: &Tensor) -> Tensor {
    let weights = Tensor::arange(hidden.numel() as i64, (Kind::Float, hidden.device())).sin();
    (hidden.view([-1]) * weights).sum(Kind::Float)
}

#[test]
fn states_and_gradients_equal_those_alone() {
    let model = tiny();
    let adapters = [
        adapter(&model, 4, &Projection::ALL, 1),
        adapter(&model, 2, &[Projection::Q, Projection::Down], 2),
        adapter(&model, 3, &[Projection::V, Projection::O], 3),
    ];
    let all: Vec<&Adapter> = adapters.iter().collect();
    // Runs of one adapter, the same adapter apart, the base alone, a span of one token.
    let spans =
        [(7, Some(0)), (19, Some(1)), (5, Some(1)), (1, Some(0)), (12, None), (9, Some(0)), (16, Some(2))];
    let mut packed = Packed::default();
    for (i, (len, adapter)) in spans.iter().enumerate() {
        packed.push(&sequence(i as u32, *len), *adapter);
    }
    let together = hidden_states(&model.config, &model.weights, &all, &packed);

    let mut losses = Tensor::from(0f32);
    for (i, (span, (len, adapter))) in packed.spans.iter().zip(&spans).enumerate() {
        let mut one = Packed::default();
        one.push(&sequence(i as u32, *len), *adapter);
        let alone = hidden_states(&model.config, &model.weights, &all, &one);
        let rows = together.narrow(0, span.start as i64, span.len as i64);
        assert!(gap(&alone, &rows) < 1e-5, "span {i}: {}", gap(&alone, &rows));
        losses += loss(&alone);
    }
    losses.backward();
    let alone: Vec<Tensor> = gradients(&adapters);
    for adapter in &adapters {
        for (_, mut tensor) in adapter.parameters() {
            tensor.zero_grad();
        }
    }
    let summed = packed.spans.iter().fold(Tensor::from(0f32), |sum, span| {
        sum + loss(&together.narrow(0, span.start as i64, span.len as i64))
    });
    summed.backward();
    for (a, b) in alone.iter().zip(gradients(&adapters)) {
        let size = a.abs().max().double_value(&[]);
        assert!(size > 0.0, "every factor must get a gradient");
        assert!(gap(a, &b) < 1e-4 * size.max(1.0), "{} of {size}", gap(a, &b));
    }
}

fn gradients(adapters: &[Adapter]) -> Vec<Tensor> {
    adapters.iter().flat_map(Adapter::parameters).map(|(_, tensor)| tensor.grad().copy()).collect()
}

#[test]
fn an_adapter_without_spans_gets_no_gradient() {
    let model = tiny();
    let adapters = [adapter(&model, 4, &Projection::ALL, 1), adapter(&model, 4, &Projection::ALL, 2)];
    let mut packed = Packed::default();
    packed.push(&sequence(1, 10), Some(1));
    packed.push(&sequence(2, 10), None);
    let all: Vec<&Adapter> = adapters.iter().collect();
    loss(&hidden_states(&model.config, &model.weights, &all, &packed)).backward();
    assert!(adapters[0].parameters().iter().all(|(_, tensor)| !tensor.grad().defined()));
    assert!(adapters[1].parameters().iter().all(|(_, tensor)| tensor.grad().defined()));
}

#[test]
fn the_base_trains_too() {
    let model = tiny();
    model.weights.set_trainable(true);
    let mut packed = Packed::default();
    packed.push(&sequence(1, 10), None);
    loss(&hidden_states(&model.config, &model.weights, &[], &packed)).backward();
    for (name, tensor) in model.weights.parameters() {
        assert!(tensor.grad().defined() && tensor.grad().abs().max().double_value(&[]) > 0.0, "{name}");
    }
    let copy = model.weights.copy();
    assert!(!copy.embed.requires_grad());
    let _ = tch::no_grad(|| model.weights.norm.shallow_clone().fill_(0.0));
    assert!(copy.norm.abs().max().double_value(&[]) > 0.0, "a copy has memory of its own");
}
