//! Parts that the benchmarks of generation on a CPU share.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pl_inference::{BaseModel, LlmEngine, LlmEngineConfig, PolicyWeights};
use pl_kernels::cpu::{BLOCK, GroupFormat, Heads, KvCache};
use pl_model::{Adapter, Config, Model, Projection, TensorSet};
use pl_types::{ModelDtype, Request, Sampling};

/// Returns the model that `PL_HOST_BENCH_MODEL` names, or SmolLM2-135M where `cargo xtask setup` stores it. Returns `None`,
/// with a line on stderr, if it is missing.
pub fn model_path() -> Option<PathBuf> {
    let Some(named) = std::env::var_os("PL_HOST_BENCH_MODEL").map(PathBuf::from) else {
        return pl_testing::smollm();
    };
    if !named.exists() {
        eprintln!("skipped: {} is missing", named.display());
        return None;
    }
    Some(named)
}

/// Starts an engine with an adapter for each of `adapters` policies, or with the plain base if it is 0.
pub fn start_engine(model: &Model, dtype: ModelDtype, adapters: usize, config: LlmEngineConfig) -> LlmEngine {
    let adapter = |seed: usize| Adapter::new(&model.config, 16, 32.0, &Projection::ALL, [seed as u8; 32]);
    let policies = (0..adapters.max(1))
        .map(|i| {
            let adapter = (adapters > 0).then(|| adapter(i).expect("an adapter"));
            PolicyWeights { base: 0, adapter, version: 0 }
        })
        .collect();
    let base = BaseModel {
        config: model.config.clone(),
        weights: model.weights.shallow(),
        tokenizer: Arc::clone(&model.tokenizer),
        dtype: dtype.tensors().unwrap_or_default(),
    };
    LlmEngine::start(vec![base], policies, config).expect("an engine")
}

/// Returns biases that exclude the tokens which would end a completion.
pub fn without_ends(model: &Model) -> Arc<[(u32, f32)]> {
    model.tokenizer.end_of_turn().iter().map(|id| (*id, f32::NEG_INFINITY)).collect()
}

/// Returns a request with a prompt that begins differently for each range of 20,000 tokens.
pub fn request(seed: u32, policy: usize, prompt: Range<u32>, max_tokens: u32, sampling: Sampling) -> Request {
    Request {
        policy,
        prompt: prompt.map(|n| 1000 + n * 7 % 20_000).collect(),
        seeds: vec![[seed as u8; 32]],
        max_tokens,
        sampling,
        stop: Arc::new([]),
        stop_ids: Arc::new([]),
        top_logprobs: 0,
        listener: None,
    }
}

/// Returns the number of weights in the projections of all layers, by which each token is multiplied.
pub fn layer_numbers(config: &Config) -> f64 {
    let shapes = Projection::ALL.iter().map(|projection| projection.shape(config));
    let layer: i64 = shapes.map(|(inputs, outputs)| inputs * outputs).sum();
    (layer * config.layers as i64) as f64
}

/// Returns the number of weights that a step multiplies by: those of the layers, and the output matrix.
pub fn numbers(config: &Config) -> f64 {
    layer_numbers(config) + (config.vocab * config.hidden) as f64
}

/// Returns the size in bytes of a block of the KV cache.
pub fn block_bytes(config: &Config) -> usize {
    let heads = Heads {
        heads: config.heads as usize,
        kv_heads: config.kv_heads as usize,
        dim: config.head_dim as usize,
    };
    KvCache::new(heads, config.layers).block_bytes()
}

/// Returns the size in bytes of the keys and values of a token.
pub fn token_bytes(config: &Config) -> f64 {
    block_bytes(config) as f64 / BLOCK as f64
}

/// Returns the size in bytes of the weights that a step reads.
pub fn stored_bytes(path: &Path, config: &Config, dtype: ModelDtype) -> f64 {
    match (dtype, dtype.tensors()) {
        (_, Some(dtype)) => numbers(config) * dtype.bytes() as f64,
        (ModelDtype::File, None) => Model::packed_bytes(path).expect("a header") as f64,
        (_, None) => GroupFormat::Q8.bytes(1, numbers(config) as usize) as f64,
    }
}
