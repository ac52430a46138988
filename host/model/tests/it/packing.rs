//! Several sequences in one row of tokens don't affect each other: hidden states equal those of the transformer over each
//! sequence alone, and gradients equal those of autograd.

use pl_model::{
    Adapter, Checkpointing, Config, Error, Family, Gradients, Layer, MIN_SHARED_TOKENS, Model, Packed, Pass,
    Projection, Sequence, TensorSet, TokenSpan, Weights, hidden_states,
};
use tch::{Device, Kind, Tensor};

use crate::{gap, reference, tiny};

/// An adapter with B away from zero, so that it does something.
fn adapter(model: &Model, rank: usize, targets: &[Projection], seed: u8) -> Adapter {
    let adapter = Adapter::new(&model.config, rank, 2.0 * rank as f64, targets, [seed; 32]).unwrap();
    for (at, (name, mut tensor)) in adapter.parameters().into_iter().enumerate() {
        if name.contains("lora_B") {
            tensor.copy_(&(wave(&tensor, at as f64 + f64::from(seed)) * 0.1));
        }
    }
    adapter
}

/// Numbers of a tensor's shape in ±1 that no two elements share.
fn wave(like: &Tensor, phase: f64) -> Tensor {
    (Tensor::arange(like.numel() as i64, (Kind::Double, Device::Cpu)) * 1.7 + phase)
        .sin()
        .view_as(like)
        .to_kind(like.kind())
}

fn sequence(seed: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (seed * 131 + i * i * 17 + i * 7) % 299).collect()
}

/// Sequences with an adapter each: two families with a prompt each, one of which shares its beginning with
/// the other's prompt, completions that agree for a while, one that is the beginning of another, two that are
/// equal, and some that share nothing.
fn sequences() -> Vec<(Vec<u32>, Option<usize>)> {
    let header = sequence(1, 20);
    let with = |parts: &[&[u32]]| parts.concat();
    let (task, other) = (sequence(2, 18), sequence(3, 25));
    let agreed = sequence(4, 17);
    vec![
        (with(&[&header, &task, &sequence(5, 7)]), Some(0)),
        (sequence(6, 19), Some(1)),
        (with(&[&header, &task, &sequence(7, 1)]), Some(0)),
        (with(&[&header, &task, &agreed, &sequence(8, 3)]), Some(0)),
        (with(&[&header, &other, &sequence(9, 4)]), Some(0)),
        (with(&[&header, &task, &agreed, &sequence(10, 6)]), Some(0)),
        (with(&[&header, &task]), Some(0)),
        // The same text under another adapter shares nothing with it.
        (with(&[&header, &task, &sequence(5, 7)]), Some(1)),
        (with(&[&header, &task, &sequence(5, 7)]), None),
        (with(&[&header, &task, &sequence(5, 7)]), None),
        (sequence(11, 1), Some(2)),
    ]
}

fn forest(sequences: &[(Vec<u32>, Option<usize>)]) -> (Packed, Vec<Vec<usize>>) {
    let sequences: Vec<Sequence<'_>> =
        sequences.iter().map(|(tokens, adapter)| Sequence { tokens, adapter: *adapter }).collect();
    Packed::forest(&sequences)
}

fn rows(hidden: &Tensor, rows: &[usize]) -> Tensor {
    let rows: Vec<i64> = rows.iter().map(|row| *row as i64).collect();
    hidden.index_select(0, &Tensor::from_slice(&rows))
}

/// The gradient with respect to the row's hidden states of `sum over sequences of sum(hidden * wave)`.
fn loss_gradient(hidden: &Tensor, all: &[Vec<usize>]) -> Tensor {
    let mut gradient = hidden.zeros_like();
    for (i, own) in all.iter().enumerate() {
        let index: Vec<i64> = own.iter().map(|row| *row as i64).collect();
        let index = Tensor::from_slice(&index);
        let _ = gradient.index_add_(0, &index, &wave(&rows(hidden, own), i as f64));
    }
    gradient
}

/// Random weights of a config, of one number format.
fn random(config: &Config, kind: Kind) -> Weights {
    let mut phase = 0.0;
    let mut next = |shape: &[i64], spread: f64, centre: f64| {
        phase += 1.0;
        wave(&Tensor::zeros(shape, (kind, Device::Cpu)), phase) * spread + centre
    };
    let (h, q, kv, f) = (config.hidden, config.q_width(), config.kv_width(), config.ffn);
    let layers = (0..config.layers)
        .map(|_| {
            let mut bias = |width| (config.family == Family::Qwen2).then(|| next(&[width], 0.3, 0.0));
            let (q_bias, k_bias, v_bias) = (bias(q), bias(kv), bias(kv));
            let mut gain = || (config.family == Family::Qwen3).then(|| next(&[config.head_dim], 0.3, 1.0));
            let (q_norm, k_norm) = (gain(), gain());
            Layer {
                attention_norm: next(&[h], 0.3, 1.0),
                q: next(&[q, h], 0.4, 0.0).into(),
                k: next(&[kv, h], 0.4, 0.0).into(),
                v: next(&[kv, h], 0.4, 0.0).into(),
                q_bias,
                k_bias,
                v_bias,
                q_norm,
                k_norm,
                o: next(&[h, q], 0.4, 0.0).into(),
                ffn_norm: next(&[h], 0.3, 1.0),
                gate: next(&[f, h], 0.4, 0.0).into(),
                up: next(&[f, h], 0.4, 0.0).into(),
                down: next(&[h, f], 0.4, 0.0).into(),
            }
        })
        .collect();
    let embed = next(&[config.vocab, h], 1.0, 0.0).into();
    Weights { embed, layers, norm: next(&[h], 0.3, 1.0), head: None }
}

fn close(got: &Tensor, expected: &Tensor, tolerance: f64, what: &str) {
    let size = expected.abs().max().double_value(&[]);
    assert!(size > 0.0, "{what} must get a gradient");
    assert!(gap(got, expected) < tolerance * size.max(1.0), "{what}: {} of {size}", gap(got, expected));
}

#[test]
fn common_prefixes_are_stored_once_and_every_sequence_is_complete() {
    let sequences = sequences();
    let (packed, rows) = forest(&sequences);
    for ((tokens, _), rows) in sequences.iter().zip(&rows) {
        let found: Vec<u32> = rows.iter().map(|row| packed.tokens[*row]).collect();
        assert_eq!(&found, tokens);
    }
    // Adapter 0: header, task, agreed, four tails, the other task and its tail. Adapter 1: its two. The base:
    // one text for two sequences. Adapter 2: one token.
    let zero = 20 + 18 + 17 + (7 + 1 + 3 + 6) + (25 + 4);
    assert_eq!(packed.tokens.len(), zero + 19 + (20 + 18 + 7) + (20 + 18 + 7) + 1);
    assert!(packed.spans.iter().all(|span| span.parent.is_none() || span.len > 0));
    let apart: usize = sequences.iter().map(|(tokens, _)| tokens.len()).sum();
    assert!(packed.tokens.len() < apart * 6 / 10);
    // Too little in common is not worth a span.
    let short = [
        (sequence(1, MIN_SHARED_TOKENS - 1), sequence(5, 4)),
        (sequence(1, MIN_SHARED_TOKENS - 1), vec![7; 4]),
    ];
    let short: Vec<_> = short.into_iter().map(|(a, b)| ([a, b].concat(), None)).collect();
    assert_eq!(forest(&short).0.spans.len(), 2);
}

#[test]
fn states_and_adapter_gradients_equal_those_alone() {
    let model = tiny();
    let adapters = [
        adapter(&model, 4, &Projection::ALL, 1),
        adapter(&model, 2, &[Projection::Q, Projection::Down], 2),
        adapter(&model, 3, &[Projection::V, Projection::O], 3),
    ];
    let all: Vec<&Adapter> = adapters.iter().collect();
    let sequences = sequences();
    let (packed, rows) = forest(&sequences);
    let pass = Pass::forward(&model.config, &model.weights, &all, &packed, Checkpointing::Off).unwrap();

    let references: Vec<Adapter> = adapters.iter().map(Adapter::copy).collect();
    references.iter().for_each(|adapter| adapter.set_trainable(true));
    let mut loss = Tensor::from(0f32);
    for (i, ((tokens, adapter), own)) in sequences.iter().zip(&rows).enumerate() {
        let reference = adapter.map(|adapter| &references[adapter]);
        let hidden = reference::hidden_states(&model.config, &model.weights, reference, tokens);
        let got = self::rows(pass.hidden(), own);
        assert!(gap(&hidden, &got) < 1e-5, "sequence {i}: {}", gap(&hidden, &got));
        if adapter.is_some() {
            loss += (&hidden * wave(&hidden, i as f64)).sum(Kind::Float);
        }
    }
    loss.backward();

    let gradients = Gradients::zeros(None, &all).unwrap();
    let gradient = loss_gradient(pass.hidden(), &rows);
    pass.backward(&gradient, &gradients).unwrap();
    for (got, reference) in gradients.adapters.iter().zip(&references) {
        for ((name, got), (_, reference)) in got.parameters().iter().zip(reference.parameters()) {
            close(got, &reference.grad(), 1e-5, name);
        }
    }
    assert!(
        gap(&hidden_states(&model.config, &model.weights, &all, &packed).unwrap(), &{
            let again =
                Pass::forward(&model.config, &model.weights, &all, &packed, Checkpointing::On).unwrap();
            again.hidden().shallow_clone()
        }) == 0.0
    );
}

#[test]
fn gradients_of_all_weights_equal_autograd_in_every_family() {
    // In double precision: how far sums in single precision are apart depends on the CPU's instructions.
    for family in [Family::Llama, Family::Qwen2, Family::Qwen3] {
        let config = Config { family, head_dim: 8, ..tiny().config };
        let weights = random(&config, Kind::Double);
        let sequences: Vec<_> = sequences().into_iter().map(|(tokens, _)| (tokens, None)).collect();
        let (packed, rows) = forest(&sequences);

        let reference = weights.copy();
        reference.set_trainable(true);
        let mut loss = Tensor::from(0f64);
        for (i, (tokens, _)) in sequences.iter().enumerate() {
            let hidden = reference::hidden_states(&config, &reference, None, tokens);
            loss += (&hidden * wave(&hidden, i as f64)).sum(Kind::Double);
        }
        loss.backward();

        let mut kept = Vec::new();
        for keep in [Checkpointing::Off, Checkpointing::On] {
            let pass = Pass::forward(&config, &weights, &[], &packed, keep).unwrap();
            let gradients = Gradients::zeros(Some(&weights), &[]).unwrap();
            let gradient = loss_gradient(pass.hidden(), &rows);
            pass.backward(&gradient, &gradients).unwrap();
            kept.push(gradients.weights.unwrap().parameters());
        }
        for ((name, got), (_, reference)) in kept[0].iter().zip(reference.parameters()) {
            close(got, &reference.grad(), 1e-10, &format!("{family:?} {name}"));
        }
        for ((name, got), (_, again)) in kept[0].iter().zip(&kept[1]) {
            assert!(got.equal(again), "{name} differs when blocks are run again");
        }
    }
}

#[test]
fn gradients_are_the_slopes_of_the_loss() {
    // In double precision, along a direction through all weights at once, the adapter's included.
    for family in [Family::Llama, Family::Qwen2, Family::Qwen3] {
        let config = Config { family, head_dim: 8, ..tiny().config };
        let weights = random(&config, Kind::Double);
        let sequences: Vec<_> = sequences().into_iter().map(|(tokens, _)| (tokens, None)).collect();
        let (packed, rows) = forest(&sequences);
        let loss = |shift: f64| {
            let moved = weights.copy();
            for (i, (_, mut tensor)) in moved.parameters().into_iter().enumerate() {
                tensor += wave(&tensor, i as f64 + 0.5) * shift;
            }
            let hidden = hidden_states(&config, &moved, &[], &packed).unwrap();
            (&hidden * loss_gradient(&hidden, &rows)).sum(Kind::Double).double_value(&[])
        };
        let pass = Pass::forward(&config, &weights, &[], &packed, Checkpointing::Off).unwrap();
        let gradients = Gradients::zeros(Some(&weights), &[]).unwrap();
        let gradient = loss_gradient(pass.hidden(), &rows);
        pass.backward(&gradient, &gradients).unwrap();
        let slope: f64 = gradients
            .weights
            .unwrap()
            .parameters()
            .iter()
            .enumerate()
            .map(|(i, (_, t))| (t * wave(t, i as f64 + 0.5)).sum(Kind::Double).double_value(&[]))
            .sum();
        let step = 1e-6;
        let measured = (loss(step) - loss(-step)) / (2.0 * step);
        assert!((slope - measured).abs() < 1e-6 * slope.abs().max(1.0), "{family:?}: {slope} and {measured}");
    }
}

#[test]
fn an_adapter_without_rows_gets_no_gradient() {
    let model = tiny();
    let adapters = [adapter(&model, 4, &Projection::ALL, 1), adapter(&model, 4, &Projection::ALL, 2)];
    let all: Vec<&Adapter> = adapters.iter().collect();
    let mut packed = Packed::default();
    packed.push(&sequence(1, 10), Some(1));
    packed.push(&sequence(2, 10), None);
    let pass = Pass::forward(&model.config, &model.weights, &all, &packed, Checkpointing::Off).unwrap();
    let gradients = Gradients::zeros(None, &all).unwrap();
    let gradient = wave(pass.hidden(), 1.0);
    pass.backward(&gradient, &gradients).unwrap();
    let largest = |adapter: &Adapter| {
        let parts = adapter.parameters();
        parts.iter().map(|(_, t)| t.abs().max().double_value(&[])).fold(0.0, f64::max)
    };
    assert_eq!(largest(&gradients.adapters[0]), 0.0);
    assert!(largest(&gradients.adapters[1]) > 0.0);
    gradients.clear().unwrap();
    assert_eq!(largest(&gradients.adapters[1]), 0.0);
}

#[test]
fn invalid_spans_are_refused() {
    let model = tiny();
    let span = |start, len| TokenSpan { start, len, adapter: None, parent: None };
    let row = |spans: Vec<TokenSpan>| Packed { tokens: vec![1; 8], spans };
    let cases = [
        (row(vec![span(0, 4), span(5, 3)]), "span 1 does not start at the end of the previous span"),
        (row(vec![span(0, 4)]), "the spans cover 4 of 8 tokens"),
        (row(vec![span(0, 8), span(8, 0)]), "span 1 has no tokens"),
        (
            row(vec![TokenSpan { adapter: Some(0), ..span(0, 8) }]),
            "span 0 names an adapter that does not exist",
        ),
        (row(vec![TokenSpan { parent: Some(0), ..span(0, 8) }]), "a parent that is not before it"),
        (Packed::default(), "it has no tokens"),
    ];
    for (packed, expected) in cases {
        let error = hidden_states(&model.config, &model.weights, &[], &packed).unwrap_err();
        assert!(matches!(error, Error::Packed(_)) && error.to_string().contains(expected), "{error}");
    }
    // A token outside of the vocabulary is libtorch's to refuse: an error, no panic.
    let mut packed = Packed::default();
    packed.push(&[100_000], None);
    let error = hidden_states(&model.config, &model.weights, &[], &packed).unwrap_err();
    assert!(matches!(error, Error::Torch(_)), "{error}");
}

#[test]
fn a_copy_has_memory_of_its_own() {
    let model = tiny();
    model.weights.set_trainable(true);
    let copy = model.weights.copy();
    assert!(!copy.embed.tensor().unwrap().requires_grad());
    let _ = tch::no_grad(|| model.weights.norm.shallow_clone().fill_(0.0));
    assert!(copy.norm.abs().max().double_value(&[]) > 0.0);
}
