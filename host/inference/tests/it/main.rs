//! The embedded engine: what it samples, what it shares, what it refuses.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

mod batching;
mod publishing;
mod refusals;
mod sampling;
mod sharing;
mod smollm;
mod stopping;

use std::path::PathBuf;
use std::sync::Arc;

use pl_inference::{Base, Engine, EngineConfig, PolicyWeights, Request};
use pl_model::{Adapter, Config, Dtype, Model, Projection};
use tch::Device;

/// A folder of the project's tests.
fn data(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(path)
}

fn tiny() -> Model {
    Model::load(&data("data/tiny"), Device::Cpu, Dtype::F32).unwrap()
}

/// A small model as an engine's base.
fn base(model: &Model) -> Base {
    Base {
        config: model.config.clone(),
        weights: model.weights.shallow(),
        tokenizer: Arc::clone(&model.tokenizer),
    }
}

/// An adapter with B away from zero, so that it changes what is said.
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

/// Three policies on the tiny model: two adapters and the base itself.
fn policies(config: &Config) -> Vec<PolicyWeights> {
    let policy = |adapter, version| PolicyWeights { base: 0, adapter, version };
    vec![
        policy(Some(adapter(config, 4, &Projection::ALL, 1)), 10),
        policy(Some(adapter(config, 3, &[Projection::Q, Projection::Down], 2)), 20),
        policy(None, 30),
    ]
}

fn engine(model: &Model, config: EngineConfig) -> Engine {
    Engine::start(vec![base(model)], policies(&model.config), config).unwrap()
}

fn small() -> EngineConfig {
    EngineConfig { slots: 4, tile: 4, prompt_cache: 1024 }
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
        temperature: 1.0,
        stop: Arc::new([]),
    }
}
