//! Generation on libtorch with and without CUDA graphs: speed in tokens per second, and how far the results differ.
//!
//! `PL_HOST_BENCH_DEVICE=cuda cargo bench -p pl-inference --bench decode [-- MODEL [CASE]]` prints a line of JSON for each number of
//! completions at a time. The model is a folder or file, SmolLM2-135M where `cargo xtask setup` stores it unless one is
//! named. Completions have 128 tokens unless the model ends them, and are sampled with the same random numbers by both:
//! `largest_gap` is that of the log-probabilities of tokens up to the first one that differs, `equal_tokens` the share of
//! tokens before it. Without a GPU nothing is recorded, and both are the same.

#![allow(clippy::expect_used, reason = "a benchmark that cannot run stops with the reason")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use pl_inference::{Backend, BaseModel, LlmEngine, LlmEngineConfig, PolicyWeights};
use pl_kernels::cuda::{KernelSettings, first_gpu};
use pl_model::{Adapter, Model, Projection, TensorSet};
use pl_types::{Completion, Dtype, Generate, Request, Sampling};
use serde_json::json;
use tch::{Device, Kind};
use tokio::runtime::Runtime;

const PROMPT: u32 = 32;

struct Case {
    rows: u32,
    /// Number of policies, each with an adapter; 0 uses the plain base.
    adapters: usize,
}

/// Result of a run.
struct Run {
    completions: Vec<Completion>,
    /// Tokens per second, of the faster of two rounds after the first, which records.
    rate: f64,
    replayed_steps: u64,
    steps_ahead: u64,
    steps: u64,
}

fn main() {
    let cache = pl_testing::cache();
    let device = device(&cache);
    let mut arguments = std::env::args().skip(1).filter(|argument| !argument.starts_with('-'));
    let (named, wanted) = (arguments.next().map(PathBuf::from), arguments.next());
    let Some(path) = named.or_else(pl_testing::smollm) else { return };
    if !path.exists() {
        eprintln!("skipped: {} is missing", path.display());
        return;
    }
    let dtype = if device == Device::Cpu { Dtype::F32 } else { Dtype::Bf16 };
    let model = Model::load(&path, device, dtype).expect("the model");
    let (new, cases) = match device {
        // Shows that it runs.
        Device::Cpu => (8, vec![Case { rows: 1, adapters: 0 }, Case { rows: 4, adapters: 2 }]),
        _ => (
            128,
            vec![
                Case { rows: 1, adapters: 0 },
                Case { rows: 64, adapters: 0 },
                Case { rows: 256, adapters: 0 },
                Case { rows: 64, adapters: 2 },
            ],
        ),
    };
    for case in cases {
        let name = format!("decode/{}, {} adapters", case.rows, case.adapters);
        if wanted.as_ref().is_some_and(|wanted| *wanted != name) {
            continue;
        }
        let [eager, graphs] =
            [true, false].map(|enforce_eager| run(&model, dtype, &case, new, enforce_eager));
        let (mut equal, mut gap) = (0, 0f32);
        let pairs = eager.completions.iter().zip(&graphs.completions);
        let total: usize = eager.completions.iter().map(|completion| completion.tokens.len()).sum();
        for (expected, got) in pairs {
            let tokens = expected.tokens.iter().zip(&got.tokens);
            let common = tokens.take_while(|(a, b)| a == b).count();
            equal += common;
            for (a, b) in expected.logprobs.iter().zip(&got.logprobs).take(common) {
                gap = gap.max((a - b).abs());
            }
        }
        println!(
            "{}",
            json!({
                "name": name,
                "eager_tokens_per_second": eager.rate,
                "graphs_tokens_per_second": graphs.rate,
                "steps": graphs.steps,
                "replayed_steps": graphs.replayed_steps,
                "steps_ahead": graphs.steps_ahead,
                "equal_tokens": equal as f64 / total as f64,
                "largest_gap": gap,
            })
        );
    }
}

/// Returns the device that `PL_HOST_BENCH_DEVICE` names: `cuda`, with the kernels for it, or the CPU.
fn device(cache: &std::path::Path) -> Device {
    if std::env::var_os("PL_HOST_BENCH_DEVICE").is_none_or(|name| name != "cuda") {
        return Device::Cpu;
    }
    let device = first_gpu(&KernelSettings::new(cache)).expect("libtorch's CUDA libraries with kernels");
    device.expect("a CUDA device")
}

fn run(model: &Model, dtype: Dtype, case: &Case, new: u32, enforce_eager: bool) -> Run {
    let adapter = |seed: usize| {
        let adapter =
            Adapter::new(&model.config, 16, 32.0, &Projection::ALL, [seed as u8; 32]).expect("an adapter");
        tch::manual_seed(seed as i64);
        // Small, but not without effect.
        adapter.map(|tensor| tensor + tensor.randn_like().to_kind(Kind::Float) * 1e-3)
    };
    let policies = (0..case.adapters.max(1))
        .map(|seed| PolicyWeights {
            base: 0,
            adapter: (case.adapters > 0).then(|| adapter(seed)),
            version: 0,
        })
        .collect();
    let base = BaseModel {
        config: model.config.clone(),
        weights: model.weights.shallow(),
        tokenizer: Arc::clone(&model.tokenizer),
        dtype,
    };
    let config = LlmEngineConfig {
        slots: case.rows as usize,
        kv_cache: if model.weights.device() == Device::Cpu { 1 << 30 } else { 8 << 30 },
        backend: Some(Backend::Libtorch),
        enforce_eager,
        ..LlmEngineConfig::default()
    };
    let engine = LlmEngine::start(vec![base], policies, config).expect("an engine");
    let runtime = Runtime::new().expect("a runtime");
    let vocabulary = model.config.vocab as u32;
    let mut best = Run { completions: Vec::new(), rate: 0.0, replayed_steps: 0, steps_ahead: 0, steps: 0 };
    for round in 0..3 {
        let start = Instant::now();
        let running: Vec<_> = (0..case.rows)
            .map(|index| {
                let first = (round * case.rows + index) * PROMPT;
                let request = Request {
                    policy: index as usize % case.adapters.max(1),
                    prompt: (first..first + PROMPT).map(|n| 3 + n * 7 % (vocabulary - 3)).collect(),
                    seeds: vec![[index as u8; 32]],
                    max_tokens: new,
                    sampling: Sampling::default(),
                    stop: Arc::new([]),
                    stop_ids: Arc::new([]),
                    top_logprobs: 0,
                    listener: None,
                };
                let engine = engine.clone();
                runtime.spawn(async move { engine.generate(request).await })
            })
            .collect();
        let completions: Vec<Completion> = running
            .into_iter()
            .flat_map(|task| runtime.block_on(task).expect("a task").expect("completions"))
            .collect();
        let tokens: usize = completions.iter().map(|completion| completion.tokens.len()).sum();
        if round > 0 {
            best.rate = best.rate.max(tokens as f64 / start.elapsed().as_secs_f64());
        }
        best.completions.extend(completions);
    }
    let stats = engine.stats();
    (best.steps, best.replayed_steps, best.steps_ahead) =
        (stats.steps, stats.replayed_steps, stats.steps_ahead);
    best
}
