//! Logits equal transformers' (data from tests/conformance/make.py).

use std::collections::HashMap;
use std::path::Path;

use pl_model::{Adapter, Model, Packed, hidden_states};
use pl_types::Dtype;
use tch::{Device, Kind, Tensor};

use crate::{data, gap, tiny};

/// The tokens and the reference's logits in a file.
pub(crate) fn expected(path: &Path) -> (Vec<u32>, Tensor) {
    let tensors: HashMap<String, Tensor> = Tensor::read_safetensors(path).unwrap().into_iter().collect();
    let tokens: Vec<i64> = (&tensors["tokens"]).try_into().unwrap();
    (tokens.into_iter().map(|id| id as u32).collect(), tensors["logits"].shallow_clone())
}

/// The logits of one sequence, `[T, V]`.
pub(crate) fn logits(model: &Model, adapters: &[&Adapter], tokens: &[u32]) -> Tensor {
    let mut packed = Packed::default();
    packed.push(tokens, (!adapters.is_empty()).then_some(0));
    hidden_states(&model.config, &model.weights, adapters, &packed)
        .unwrap()
        .matmul(&model.weights.unembed().to_tensor().unwrap().tr())
}

fn matches(name: &str) {
    let folder = format!("conformance/logits/{name}");
    let model = Model::load(data(&folder), Device::Cpu, Dtype::F32).unwrap();
    let (tokens, expected) = expected(&data(&folder).join("expected.safetensors"));
    let got = logits(&model, &[], &tokens);
    assert!(gap(&got, &expected) < 1e-4, "{name}: {}", gap(&got, &expected));
    // The logits are of a size at which 1e-4 says something.
    assert!(expected.std(false).double_value(&[]) > 0.1, "{name}");
}

#[test]
fn grouped_heads_untied() {
    matches("grouped-untied");
}

#[test]
fn tied_in_shards_other_rotary_base() {
    matches("multi-tied-sharded");
}

#[test]
fn one_key_head_wide_heads_bf16() {
    matches("single-kv-wide-head-bf16");
}

#[test]
fn peft_adapter() {
    let model = tiny();
    let adapter = Adapter::load(data("conformance/adapter"), &model.config).unwrap();
    assert_eq!((adapter.rank, adapter.alpha, adapter.targets().len()), (4, 6.0, 4));
    let (tokens, expected) = expected(&data("conformance/adapter/expected.safetensors"));
    let rows = Tensor::arange_start_step(0, tokens.len() as i64, 6, (Kind::Int64, Device::Cpu));
    let with = logits(&model, &[&adapter], &tokens).index_select(0, &rows);
    assert!(gap(&with, &expected) < 1e-4, "{}", gap(&with, &expected));
    let without = logits(&model, &[], &tokens).index_select(0, &rows);
    assert!(gap(&without, &expected) > 0.1, "the adapter must make a difference");
}

/// Each token of a greedy answer is the likeliest given the ones before, in one pass (the engine's tests
/// generate all twenty answers).
#[test]
fn smollm_greedy_tokens() {
    let Some(path) = pl_testing::smollm() else { return };
    let model = Model::load(&path, Device::Cpu, Dtype::F32).unwrap();
    assert!(model.config.tied);
    let rows: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(data("conformance/smollm2-greedy.json")).unwrap())
            .unwrap();
    let ids = |value: &serde_json::Value| -> Vec<u32> { serde_json::from_value(value.clone()).unwrap() };
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 20);
    for row in rows.iter().step_by(4) {
        let (prompt, completion) = (ids(&row["prompt"]), ids(&row["completion"]));
        assert_eq!(model.tokenizer.encode(row["rendered"].as_str().unwrap()).unwrap(), prompt);
        let all = [prompt.as_slice(), &completion].concat();
        let got = tch::no_grad(|| logits(&model, &[], &all));
        let best: Vec<i64> = got
            .narrow(0, prompt.len() as i64 - 1, completion.len() as i64)
            .argmax(-1, false)
            .try_into()
            .unwrap();
        let best: Vec<u32> = best.into_iter().map(|id| id as u32).collect();
        assert_eq!(best, completion, "{}", row["question"]);
    }
}
