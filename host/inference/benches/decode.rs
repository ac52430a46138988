//! Tokens per second of decoding SmolLM2.
//!
//! `cargo bench -p pl-inference`; needs the model in the cache (`cargo xtask setup`). What its matrix products alone
//! would allow: `cargo bench -p pl-kernels`.

use std::path::PathBuf;
use std::sync::Arc;

use divan::Bencher;
use divan::counter::ItemsCount;
use pl_inference::{Base, Engine, EngineConfig, Generate, PolicyWeights, Request, Sampling};
use pl_model::{Adapter, Dtype, Model, Projection};
use tch::Device;
use tokio::runtime::Runtime;

/// Prompt tokens: what a problem with instructions takes.
const PROMPT: usize = 200;
/// New tokens of each completion, at most.
const NEW: u32 = 48;

fn main() {
    divan::main();
}

fn model(dtype: Dtype) -> Option<Model> {
    let cache = std::env::var_os("PL_HOST_CACHE")
        .map(PathBuf::from)
        .or_else(|| Some(std::env::home_dir()?.join(".cache/pl-host")))?;
    match Model::load(&cache.join("models/smollm2-135m/model.gguf"), Device::Cpu, dtype) {
        Ok(model) => Some(model),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// Completions at a time, with a quarter of them on each of four adapters or all on the base alone.
#[divan::bench(args = [(1, Dtype::F32, false), (16, Dtype::F32, false), (16, Dtype::F32, true), (64, Dtype::F32, false), (1, Dtype::F16, false), (16, Dtype::F16, false)], sample_count = 3, sample_size = 1)]
fn completions(bencher: Bencher, (count, dtype, adapters): (usize, Dtype, bool)) {
    let Some(model) = model(dtype) else { return };
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
        dtype,
    };
    let (Ok(engine), Ok(runtime)) =
        (Engine::start(vec![base], policies, EngineConfig::default()), Runtime::new())
    else {
        return;
    };
    let run = || {
        let running: Vec<_> = (0..4usize)
            .map(|policy| Request {
                policy,
                prompt: Arc::clone(&prompt),
                seeds: (0..count).filter(|i| i % 4 == policy).map(|i| [i as u8; 32]).collect(),
                max_tokens: NEW,
                sampling: Sampling::default(),
                stop: Arc::new([]),
                stop_ids: Arc::new([]),
                top_logprobs: 0,
                listener: None,
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
