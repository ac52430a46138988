//! Generation with long contexts: time of a prompt, time of a pass of one completion and of 16 of the same prompt, the work that
//! each of them takes, and memory.
//!
//! `cargo bench -p pl-inference --bench contexts` prints a line of JSON for each figure; `cargo xtask bench contexts` shows
//! how they scale. `PL_HOST_BENCH_CONTEXTS` lists the lengths, as in `256,2048,8192`: numbers of tokens of prompt and
//! completion together. Lengths beyond the model's positions are left out. The model is SmolLM2-135M where `cargo xtask setup`
//! stores it, or the one that `PL_HOST_BENCH_MODEL` names, in f32 or the format that `PL_HOST_BENCH_DTYPE` names (`file`).
//!
//! The peak of memory is that of the process so far: with one length in a process it is the length's own.

#![allow(clippy::expect_used, reason = "a benchmark that cannot run stops with the reason")]

mod common;

use std::time::{Duration, Instant};

use pl_inference::{EngineCommand, LlmEngineConfig};
use pl_kernels::cpu::BLOCK;
use pl_model::{Config, Model};
use pl_types::{Generate, ModelDtype, Request, Sampling};
use serde_json::json;
use tch::Device;
use tokio::runtime::Runtime;

use common::{
    block_bytes, layer_numbers, model_path, numbers, request, start_engine, stored_bytes, token_bytes,
    without_ends,
};

const CONTEXTS: &str = "256,2048,8192";
/// Tokens of the completions whose times are subtracted from each other. What is left are passes alone.
const FEW: u32 = 8;
const NEW: u32 = 32;
/// Completions of one prompt.
const SIBLINGS: u32 = 16;
const RUNS: u32 = 3;
/// Time after which nothing is run again: what takes longer varies less.
const LONG: Duration = Duration::from_secs(10);

fn main() {
    // As the program does.
    pl_model::libtorch::keep_freed_memory();
    let Some(path) = model_path() else { return };
    let dtype = std::env::var("PL_HOST_BENCH_DTYPE").map_or(ModelDtype::F32, |name| {
        name.parse().expect("PL_HOST_BENCH_DTYPE is a number format, such as f32 or file")
    });
    let contexts = std::env::var("PL_HOST_BENCH_CONTEXTS").unwrap_or_else(|_| CONTEXTS.to_owned());
    let model = Model::load(&path, Device::Cpu, dtype).expect("the model");
    let weight_bytes = stored_bytes(&path, &model.config, dtype);
    for context in contexts.split(',') {
        let context: u32 = context.trim().parse().expect("PL_HOST_BENCH_CONTEXTS is a list such as 256,2048");
        assert!(context > NEW, "a context of {context} tokens has no room for {NEW} new ones");
        let most = model.config.max_positions;
        if context as usize > most {
            eprintln!("skipped: a context of {context} tokens; the model takes {most}");
            continue;
        }
        measure(&model, dtype, weight_bytes, context);
    }
}

/// Measures a context with an engine of its own and prints its figures.
fn measure(model: &Model, dtype: ModelDtype, weight_bytes: f64, context: u32) {
    let config = &model.config;
    let prompt = context - NEW;
    let kv_cache = kv_cache(config, prompt);
    let settings = LlmEngineConfig { slots: SIBLINGS as usize, kv_cache, ..LlmEngineConfig::default() };
    let engine = start_engine(model, dtype, 0, settings);
    let runtime = Runtime::new().expect("a runtime");
    let sampling = Sampling { logit_bias: without_ends(model), ..Sampling::default() };
    let generate = |completions: u32, prompt: u32, new: u32| {
        let request = Request {
            seeds: (0..completions).map(|i| [i as u8; 32]).collect(),
            ..request(0, 0, 0..prompt, new, sampling.clone())
        };
        runtime.block_on(engine.generate(request)).expect("completions");
    };
    // Threads and buffers exist from then on.
    generate(SIBLINGS, FEW, FEW);

    let before = engine.stats();
    let seconds = shortest(|| {
        engine.command(EngineCommand::ClearPrefixes).expect("an engine");
        generate(1, prompt, 1);
    });
    let work = engine.stats().since(&before);
    let tokens = work.prefilled_tokens as f64 / work.prefills as f64;
    // The logits of the last token alone.
    let products = 2.0 * (layer_numbers(config) * tokens + numbers(config) - layer_numbers(config));
    println!(
        "{}",
        json!({
            "name": format!("prefill/{context}"),
            "context": context,
            "tokens": tokens,
            "tokens_per_second": tokens / seconds,
            "product_operations": products,
            "attention_operations": attention_operations(config, tokens * (tokens + 1.0) / 2.0),
        })
    );

    // From here on the prompt is in the prefix cache.
    for completions in [1, SIBLINGS] {
        let before = engine.stats();
        let [few, new] = [FEW, NEW].map(|tokens| shortest(|| generate(completions, prompt, tokens)));
        let work = engine.stats().since(&before);
        assert_eq!(work.preemptions, 0, "the KV cache has room for all completions");
        let rows = f64::from(completions);
        // Mean number of tokens that the passes in between attend to, by completion.
        let attended = f64::from(prompt) + f64::from(FEW + NEW - 1) / 2.0;
        let own = (attended - f64::from(prompt)) * rows;
        let token_bytes = token_bytes(config);
        println!(
            "{}",
            json!({
                "name": format!("decode/{context}, {completions}"),
                "context": context,
                "completions": completions,
                "pass_seconds": (new - few) / f64::from(NEW - FEW),
                "product_operations": 2.0 * numbers(config) * rows,
                "attention_operations": attention_operations(config, attended * rows),
                "weight_bytes": weight_bytes,
                // As if each completion read all of its context. The kernel reads whole parts of a prompt once for several.
                "kv_bytes": token_bytes * attended * rows,
                // Each byte of the cache as often as it is stored.
                "kv_bytes_prompt_once": token_bytes * (f64::from(prompt) + own),
            })
        );
    }
    println!(
        "{}",
        json!({
            "name": format!("memory/{context}"),
            "context": context,
            "kv_cache_bytes": kv_cache,
            "peak_memory_bytes": peak_memory(),
        })
    );
}

/// Returns the shortest time of several runs in seconds, or that of fewer if they are long.
fn shortest(mut run: impl FnMut()) -> f64 {
    let began = Instant::now();
    let mut shortest = f64::INFINITY;
    for _ in 0..RUNS {
        let start = Instant::now();
        run();
        shortest = start.elapsed().as_secs_f64().min(shortest);
        if began.elapsed() > LONG {
            break;
        }
    }
    shortest
}

/// Returns the number of operations of attention between pairs of a query and a key in every layer: the products for scores and
/// for sums of values.
fn attention_operations(config: &Config, pairs: f64) -> f64 {
    4.0 * (config.q_width() * config.layers as i64) as f64 * pairs
}

/// Returns the size in bytes, in whole MiB as workflows state it, of a KV cache for all completions of one prompt.
fn kv_cache(config: &Config, prompt: u32) -> u64 {
    // Of each completion: a copy of the prompt's last block, and a block to grow into.
    let own = SIBLINGS as usize * ((NEW as usize).div_ceil(BLOCK) + 2);
    let blocks = (prompt as usize).div_ceil(BLOCK) + own;
    ((blocks * block_bytes(config)) as u64).next_multiple_of(1 << 20)
}

/// Returns the largest amount of memory in bytes that the process has had so far. Returns `None` where the system does not tell.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}
