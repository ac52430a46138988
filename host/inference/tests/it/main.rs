//! The embedded engine: sampling, batching, prefix sharing, publishing and refusals.

#![allow(clippy::unwrap_used, reason = "a failing helper fails the test")]

mod batching;
mod commands;
mod during_update;
mod grammars;
mod packed_weights;
mod publishing;
mod refusals;
mod request_options;
mod sampling;
mod sharing;
mod smollm;
mod stopping;

use std::path::PathBuf;
use std::sync::Arc;

use pl_inference::{BaseModel, LlmEngine, LlmEngineConfig, PolicyWeights};
use pl_model::{Adapter, Config, Model, Projection, TensorSet};
use pl_types::{Dtype, Request, Sampling};
use tch::Device;

/// A path in the project's folder of tests.
fn data(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(path)
}

fn tiny() -> Model {
    Model::load(data("data/tiny"), Device::Cpu, Dtype::F32).unwrap()
}

/// A model as a base of an engine.
fn base(model: &Model) -> BaseModel {
    BaseModel {
        config: model.config.clone(),
        weights: model.weights.shallow(),
        tokenizer: Arc::clone(&model.tokenizer),
        dtype: Dtype::F32,
    }
}

/// An adapter whose B factors are not zero, so that it changes the output.
fn adapter(config: &Config, rank: usize, targets: &[Projection], seed: u8) -> Adapter {
    let adapter = Adapter::new(config, rank, 2.0 * rank as f64, targets, [seed; 32]).unwrap();
    tch::manual_seed(i64::from(seed));
    for (name, mut tensor) in adapter.parameters() {
        if name.contains("lora_B") {
            let _ = tensor.normal_(0.0, 0.3);
        }
    }
    adapter
}

/// Three policies on the tiny model: two adapters and the plain base.
fn policies(config: &Config) -> Vec<PolicyWeights> {
    let policy = |adapter, version| PolicyWeights { base: 0, adapter, version };
    vec![
        policy(Some(adapter(config, 4, &Projection::ALL, 1)), 10),
        policy(Some(adapter(config, 3, &[Projection::Q, Projection::Down], 2)), 20),
        policy(None, 30),
    ]
}

fn engine(model: &Model, config: LlmEngineConfig) -> LlmEngine {
    LlmEngine::start(vec![base(model)], policies(&model.config), config).unwrap()
}

fn small() -> LlmEngineConfig {
    LlmEngineConfig { slots: 4, threads: 2, ..LlmEngineConfig::default() }
}

fn prompt(seed: u32, len: usize) -> Arc<[u32]> {
    (0..len as u32).map(|i| (seed * 131 + i * i * 17 + i * 7) % 296 + 3).collect()
}

fn request(policy: usize, prompt: Arc<[u32]>, seeds: &[u8]) -> Request {
    Request {
        policy,
        prompt,
        seeds: seeds.iter().map(|seed| [*seed; 32]).collect(),
        max_tokens: 12,
        sampling: Sampling::default(),
        stop: Arc::new([]),
        stop_ids: Arc::new([]),
        top_logprobs: 0,
        listener: None,
    }
}
