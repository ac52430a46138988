//! Training on a GPU beside the same on a CPU; skipped on machines without one.

use std::path::Path;

use pl_kernels::cuda::{KernelSettings, first_gpu};
use tch::{Device, Kind, Tensor};

use super::{Checkpointing, Gradients, Pass};
use crate::network::adapter::{Adapter, Projection};
use crate::network::config::Config;
use crate::network::packed::Packed;
use crate::network::tensor_set::TensorSet;
use crate::network::weights::{Layer, Weights};

/// Returns the first GPU with its kernels open, or `None` without one.
pub(super) fn gpu() -> Option<Device> {
    let device = first_gpu(&KernelSettings { cache: None, ..KernelSettings::new(Path::new("")) }).unwrap();
    if device.is_none() {
        pl_testing::skip_or_fail(pl_testing::Requirement::Cuda, "no CUDA device");
    }
    device
}

fn config() -> Config {
    let json = r#"{"model_type": "qwen3", "vocab_size": 50, "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 32, "num_hidden_layers": 2, "intermediate_size": 96, "rms_norm_eps": 1e-6,
        "max_position_embeddings": 256, "tie_word_embeddings": true}"#;
    Config::from_json(json, Path::new("config.json")).unwrap()
}

fn random(shape: &[i64]) -> Tensor {
    Tensor::randn(shape, (Kind::Float, Device::Cpu))
}

fn weights(config: &Config) -> Weights {
    let (hidden, head) = (config.hidden, config.head_dim);
    let gain = |width: i64| random(&[width]) * 0.1 + 1.0;
    let matrix = |projection: Projection| {
        let (inputs, outputs) = projection.shape(config);
        (random(&[outputs, inputs]) / (inputs as f64).sqrt()).into()
    };
    let layer = || Layer {
        attention_norm: gain(hidden),
        q: matrix(Projection::Q),
        k: matrix(Projection::K),
        v: matrix(Projection::V),
        q_bias: None,
        k_bias: None,
        v_bias: None,
        q_norm: Some(gain(head)),
        k_norm: Some(gain(head)),
        o: matrix(Projection::O),
        ffn_norm: gain(hidden),
        gate: matrix(Projection::Gate),
        up: matrix(Projection::Up),
        down: matrix(Projection::Down),
    };
    Weights {
        embed: random(&[config.vocab, hidden]).into(),
        layers: (0..config.layers).map(|_| layer()).collect(),
        norm: gain(hidden),
        head: None,
    }
}

/// States, gradients of the weights, then those of two adapters, in f32 on the CPU.
fn train(config: &Config, weights: &Weights, adapters: &[Adapter], slopes: &Tensor) -> Vec<(String, Tensor)> {
    let device = weights.embed.device();
    let adapters: Vec<Adapter> = adapters.iter().map(|adapter| adapter.copy().to_device(device)).collect();
    let adapters: Vec<&Adapter> = adapters.iter().collect();
    let mut all = Vec::new();
    for of_weights in [true, false] {
        let own = if of_weights { &[][..] } else { &adapters };
        let mut packed = Packed::default();
        for (start, len, adapter) in [(0, 60, Some(0)), (7, 41, Some(1)), (3, 30, Some(0)), (20, 25, None)] {
            let tokens: Vec<u32> = (start..start + len).map(|i| i * i % 50).collect();
            packed.push(&tokens, adapter.filter(|_| !of_weights));
        }
        let pass = Pass::forward(config, weights, own, &packed, Checkpointing::Off).unwrap();
        let gradients = Gradients::zeros(of_weights.then_some(weights), own).unwrap();
        all.push(("states".to_owned(), pass.hidden().shallow_clone()));
        let slopes = slopes.to_device(device).to_kind(weights.embed.kind());
        // Twice, because gradients are added.
        pass.backward(&slopes, &gradients).unwrap();
        let again = Pass::forward(config, weights, own, &packed, Checkpointing::On).unwrap();
        again.backward(&slopes, &gradients).unwrap();
        all.extend(gradients.weights.iter().flat_map(TensorSet::parameters));
        all.extend(gradients.adapters.iter().flat_map(TensorSet::parameters));
    }
    all.into_iter().map(|(name, x)| (name, x.to_device(Device::Cpu).to_kind(Kind::Float))).collect()
}

#[test]
fn gradients_on_a_gpu_are_those_of_the_cpu() {
    let Some(gpu) = gpu() else { return };
    tch::manual_seed(1);
    let config = config();
    let weights = weights(&config);
    let adapters: Vec<Adapter> = [4, 16]
        .map(|rank| {
            let adapter = Adapter::new(&config, rank, 16.0, &Projection::ALL, [rank as u8; 32]).unwrap();
            adapter.map(|tensor| tensor + tensor.randn_like() * 0.1)
        })
        .into();
    let slopes = random(&[156, config.hidden]);
    let expected = train(&config, &weights, &adapters, &slopes);
    for (kind, tolerance) in [(Kind::Float, 1e-3), (Kind::BFloat16, 0.06)] {
        let narrow = |tensor: &Tensor| tensor.to_kind(if tensor.dim() == 2 { kind } else { Kind::Float });
        let moved = weights.map(narrow).to_device(gpu);
        let got = train(&config, &moved, &adapters, &slopes);
        assert_eq!(got.len(), expected.len());
        for ((name, got), (_, expected)) in got.iter().zip(&expected) {
            let gap = (got - expected).norm().double_value(&[]) / expected.norm().double_value(&[]);
            assert!(gap < tolerance, "{name} in {kind:?}: {gap}");
        }
    }
}
