//! Tokens per second of decoding SmolLM2, beside what its matrix products alone would allow.
//!
//! `cargo bench -p pl-inference`; needs the model in the cache (`cargo xtask setup`).

use std::path::PathBuf;
use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use pl_inference::{Base, Engine, EngineConfig, Generate, PolicyWeights, Request};
use pl_model::{Adapter, Dtype, Model, Projection};
use tch::{Device, Kind, Tensor};
use tokio::runtime::Runtime;

/// Prompt tokens: what a problem with instructions takes.
const PROMPT: usize = 200;
/// New tokens of each completion, at most.
const NEW: u32 = 48;

fn main() {
    divan::main();
}

fn model() -> Option<Model> {
    let cache = std::env::var_os("PL_HOST_CACHE")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".cache/pl-host")))?;
    match Model::load(&cache.join("models/smollm2-135m/model.gguf"), Device::Cpu, Dtype::F32) {
        Ok(model) => Some(model),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// Completions at a time, with a quarter of them on each of four adapters or all on the base alone.
#[divan::bench(args = [(1, false), (16, false), (16, true), (32, false), (64, false)], sample_count = 3, sample_size = 1)]
fn completions(bencher: Bencher, (count, adapters): (usize, bool)) {
    let Some(model) = model() else { return };
    let prompt: Arc<[u32]> = (0..PROMPT as u32).map(|i| 1000 + i * i % 20_000).collect();
    let adapter = |i: usize| {
        adapters
            .then(|| Adapter::new(&model.config, 16, 32.0, &Projection::ALL, [i as u8; 32]).ok())
            .flatten()
    };
    let policies = (0..4).map(|i| PolicyWeights { base: 0, adapter: adapter(i), version: 0 }).collect();
    let base = Base {
        config: model.config.clone(),
        weights: model.weights.shallow(),
        tokenizer: Arc::clone(&model.tokenizer),
    };
    let tile = count.max(16);
    let config = EngineConfig { slots: tile, tile, prompt_cache: 4096 };
    let (Ok(engine), Ok(runtime)) = (Engine::start(vec![base], policies, config), Runtime::new()) else {
        return;
    };
    let run = || {
        let running: Vec<_> = (0..4usize)
            .map(|policy| Request {
                policy,
                prompt: Arc::clone(&prompt),
                seeds: (0..count).filter(|i| i % 4 == policy).map(|i| [i as u8; 32]).collect(),
                max_tokens: NEW,
                temperature: 1.0,
                stop: Arc::new([]),
            })
            .filter(|request| !request.seeds.is_empty())
            .map(|request| {
                let engine = engine.clone();
                runtime.spawn(async move { engine.generate(request).await.map(|done| done.len()) })
            })
            .collect();
        for task in running {
            let _ = divan::black_box(runtime.block_on(task));
        }
    };
    // The first run fills the prompt cache; seeds are fixed, so that all others sample as many tokens.
    run();
    let before = engine.stats().generated_tokens;
    run();
    let tokens = engine.stats().generated_tokens - before;
    bencher.counter(ItemsCount::new(tokens)).bench_local(run);
}

/// The matrix products of one step alone: what the others are measured against.
#[divan::bench(args = [1, 16, 32, 64], sample_count = 10, sample_size = 1)]
fn products(bencher: Bencher, rows: i64) {
    let Some(model) = model() else { return };
    let matrices: Vec<(Tensor, Tensor)> = model
        .weights
        .parameters()
        .into_iter()
        .map(|(_, matrix)| matrix)
        .filter(|matrix| matrix.size().len() == 2)
        .map(|matrix| (Tensor::ones([rows, matrix.size()[1]], (Kind::Float, Device::Cpu)), matrix))
        .collect();
    let _no_grad = tch::no_grad_guard();
    bencher.counter(ItemsCount::new(rows as u64)).bench_local(|| {
        for (x, matrix) in &matrices {
            let _ = divan::black_box(x.linear(matrix, None::<&Tensor>));
        }
    });
}
