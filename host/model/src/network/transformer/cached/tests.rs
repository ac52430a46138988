//! Generation over a cache beside a pass over the whole sequence.

use std::path::Path;

use tch::{Device, Kind};

use super::*;
use crate::Model;
use crate::network::adapter::Adapter;
use crate::network::packed::Packed;
use crate::network::tensor_set::TensorSet;
use crate::network::transformer::{AdapterRun, hidden_states};

const MODELS: [&str; 3] =
    ["data/tiny", "conformance/logits/grouped-untied", "conformance/logits/multi-tied-sharded"];
const TOKENS: [u32; 7] = [3, 1, 7, 5, 2, 1, 6];

fn load(name: &str) -> Model {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(name);
    Model::load(&folder, Device::Cpu, pl_types::Dtype::F32).unwrap()
}

/// An adapter on all projections that does something.
fn adapter(config: &Config) -> Adapter {
    let adapter = Adapter::new(config, 3, 6.0, &Projection::ALL, [1; 32]).unwrap();
    adapter.map(|tensor| Tensor::randn(tensor.size().as_slice(), (Kind::Float, Device::Cpu)) * 0.05)
}

/// The same weights in memory of their own, with the matrices of one input together.
fn placed(weights: &Weights) -> Weights {
    let mut own = weights.copy();
    own.layers.iter_mut().for_each(crate::network::weights::Layer::place_together);
    own
}

/// Causal attention of all tokens to the slots of a cache.
fn attention(config: &Config, q: &Tensor, cache: &Tensor, slots: &Tensor) -> Result<Tensor, TchError> {
    let group = config.heads / config.kv_heads;
    let own = cache.f_index_select(0, slots)?.f_repeat_interleave_self_int(group, 2, None)?;
    let [q, k, v] =
        [q.shallow_clone(), own.select(1, 0), own.select(1, 1)].map(|x| x.transpose(0, 1).unsqueeze(0));
    let mixed = Tensor::f_scaled_dot_product_attention(&q, &k, &v, None::<Tensor>, 0.0, true, None, false)?;
    mixed.squeeze_dim(0).transpose(0, 1).f_reshape([-1, config.q_width()])
}

/// Hidden states of [`TOKENS`], and the caches after them.
fn run(config: &Config, weights: &Weights, adapter: Option<&Adapter>) -> (Tensor, Vec<Tensor>) {
    let slots = Tensor::from_slice(&[9i64, 2, 30, 31, 0, 12, 5]);
    let shape = [32, 2, config.kv_heads, config.head_dim];
    let cache: Vec<Tensor> =
        (0..config.layers).map(|_| Tensor::zeros(shape, (weights.embed.kind(), Device::Cpu))).collect();
    let tokens: Vec<i64> = TOKENS.iter().map(|id| i64::from(*id)).collect();
    let rows = adapter.map(|adapter| AdapterRun { rows: 2..TOKENS.len(), adapter, finite: true });
    let rows = AdapterRows::new(rows.into_iter().collect()).unwrap();
    let rope = Rope::new(config, TOKENS.len(), Device::Cpu);
    let attend = |layer: usize, q: &Tensor| {
        assert!(q.is_contiguous());
        attention(config, q, &cache[layer], &slots)
    };
    let tokens = Tensor::from_slice(&tokens);
    let hidden = forward_cached(config, weights, rows, &tokens, rope, &cache, &slots, attend).unwrap();
    (hidden, cache)
}

fn gap(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.size(), b.size());
    (a - b).abs().max().double_value(&[])
}

#[test]
fn hidden_states_equal_those_of_a_pass() {
    for name in MODELS {
        let Model { config, weights, .. } = load(name);
        let mut packed = Packed::default();
        packed.push(&TOKENS, None);
        let expected = hidden_states(&config, &weights, &[], &packed).unwrap();
        let gap = gap(&run(&config, &weights, None).0, &expected);
        assert!(gap < 1e-4, "{name}: {gap}");
    }
}

#[test]
fn matrices_placed_together_compute_as_apart() {
    tch::manual_seed(1);
    for name in MODELS {
        let Model { config, weights, .. } = load(name);
        let (adapter, together) = (adapter(&config), placed(&weights));
        for layer in &together.layers {
            assert!(adjacent([&layer.q, &layer.k, &layer.v]).is_some(), "{name}");
            assert!(adjacent([&layer.gate, &layer.up]).is_some(), "{name}");
        }
        for adapter in [None, Some(&adapter)] {
            let (hidden, cache) = run(&config, &together, adapter);
            let (expected, expected_cache) = run(&config, &weights, adapter);
            assert!(gap(&hidden, &expected) < 1e-4, "{name}");
            for (got, expected) in cache.iter().zip(&expected_cache) {
                assert!(gap(got, expected) < 1e-4, "{name}");
            }
        }
    }
}

#[test]
fn matrices_placed_together_have_the_same_numbers_and_change_alone() {
    let Model { weights, .. } = load("data/tiny");
    let together = placed(&weights);
    assert_eq!(together.parameters(), weights.parameters());
    assert_eq!(together.checksum().unwrap(), weights.checksum().unwrap());
    let layer = &together.layers[0];
    let mut k = layer.k.to_tensor().unwrap();
    let _ = no_grad(|| k.zero_());
    let stacked = adjacent([&layer.q, &layer.k, &layer.v]).unwrap();
    let parts = [&weights.layers[0].q, &layer.k, &weights.layers[0].v].map(|part| part.to_tensor().unwrap());
    assert!(stacked.equal(&Tensor::cat(&parts, 0)));
    assert!(adjacent([&layer.k, &layer.q, &layer.v]).is_none(), "another order");
    assert!(adjacent([&layer.up, &layer.down]).is_none(), "other allocations");
    assert!(adjacent([&weights.layers[0].gate, &weights.layers[0].gate]).is_none(), "the same one twice");
}
