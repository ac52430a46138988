//! How fast a learner trains SmolLM2-135M on 2,048 packed tokens (eight sequences of 128 prompt and 128 completion
//! tokens), and what it needs for it. `bench/peers/train_transformers.py` does the same work with transformers.
//!
//! The model is looked for where `cargo xtask setup` puts it (`PL_HOST_CACHE`, or `~/.cache/pl-host`); without it
//! nothing is measured.

#![allow(clippy::expect_used, reason = "a benchmark that can't run should say so and stop")]

use std::path::PathBuf;

use pl_model::{Adapter, Dtype, Keep, Model, Projection};
use pl_record::transition::{Group, Key, Transition};
use pl_trainer::learner::{Learner, Sample, Settings};
use pl_trainer::loss::Clip;
use pl_trainer::plan::Cut;
use tch::Device;

const PROMPT: usize = 128;
const COMPLETION: usize = 128;
const SEQUENCES: usize = 8;

fn main() {
    divan::main();
    // Peak memory is one of a process: run one bench alone to know its own.
    if let Some(peak) = peak_memory() {
        eprintln!("peak memory of this process: {peak}");
    }
}

fn peak_memory() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.trim_start_matches("VmHWM:").trim().to_owned())
}

fn smollm2() -> Option<Model> {
    let cache = std::env::var_os("PL_HOST_CACHE").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME")?;
        Some(PathBuf::from(home).join(".cache/pl-host"))
    })?;
    let path = cache.join("models/smollm2-135m/model.gguf");
    if !path.is_file() {
        eprintln!("skipped: {} is not there", path.display());
        return None;
    }
    Model::load(&path, Device::Cpu, Dtype::F32).inspect_err(|error| eprintln!("skipped: {error}")).ok()
}

fn settings(keep: Keep) -> Settings {
    Settings {
        clip: Clip { low: 0.2, high: 0.28, dual: 3.0 },
        cut: Cut { epochs: 1, mini_batches: 1, token_budget: 2048 },
        weight_decay: 0.0,
        max_grad_norm: 1.0,
        keep,
        seed: 1,
    }
}

/// Transitions of one family begin with one prompt.
fn transition(index: usize, family: usize, policy: u32) -> Transition {
    let tokens = |from: usize, count: usize| (from..from + count).map(|i| (i * 97 % 40_000 + 100) as u32);
    let task = index as u32;
    Transition {
        key: Key { step: 0, task, sample: 0, node_visit: 0, agent: policy, branch: 0 },
        group: Group { step: 0, task, agent: policy, turn: 0, node_visit: None },
        task_id: String::new(),
        agent: String::new(),
        policy,
        turn: 0,
        prompt: tokens(family * 1000, PROMPT).collect(),
        completion: tokens(index * 1000 + PROMPT, COMPLETION).collect(),
        logprobs: vec![-3.0; COMPLETION],
        kept: None,
        temperature: 1.0,
        versions: Vec::new(),
        version: 0,
        team_reward: 0.0,
        local_reward: 0.0,
        reward: 0.0,
        success: false,
        chosen: true,
        action: String::new(),
        state: String::new(),
    }
}

fn update(bencher: divan::Bencher<'_, '_>, learner: Option<Learner>, policies: usize, siblings: usize) {
    let Some(mut learner) = learner else { return };
    let transitions: Vec<_> =
        (0..SEQUENCES).map(|i| transition(i, i / siblings, (i * policies / SEQUENCES) as u32)).collect();
    let tokens = SEQUENCES * (PROMPT + COMPLETION);
    let mut least = f64::INFINITY;
    bencher.counter(divan::counter::ItemsCount::new(tokens)).bench_local(|| {
        let before = processor_seconds();
        let samples = transitions
            .iter()
            .enumerate()
            .map(|(i, transition)| Sample { transition, advantage: if i % 2 == 0 { 1.0 } else { -1.0 } });
        learner
            .plan(0, samples.collect())
            .and_then(|planned| learner.update(&planned, 1e-5, &mut || {}))
            .expect("the update runs");
        least = least.min(processor_seconds() - before);
    });
    eprintln!(" {least:.2} s of processor time at least");
}

/// Time that this process has had on all cores, which others on the machine stretch less than time on the wall.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    // utime and stime, in hundredths of a second.
    (ticks(11) + ticks(12)) / 100.0
}

fn adapters(policies: usize, keep: Keep) -> Option<Learner> {
    smollm2().map(|model| {
        let adapters = (0..policies).map(|policy| {
            let seed = [policy as u8; 32];
            let adapter =
                Adapter::new(&model.config, 16, 32.0, &Projection::ALL, seed).expect("a valid adapter");
            (policy, format!("p{policy}"), adapter)
        });
        Learner::adapters(model.config.clone(), model.weights.shallow(), adapters.collect(), settings(keep))
            .expect("a learner")
    })
}

fn whole(keep: Keep) -> Option<Learner> {
    smollm2().map(|model| {
        Learner::full(model.config, model.weights, Dtype::F32, 0, "all".into(), settings(keep))
            .expect("a learner")
    })
}

/// Adapters of rank 16 on all projections, so many policies sharing the batch.
#[divan::bench(args = [1, 2], sample_count = 4)]
fn lora(bencher: divan::Bencher<'_, '_>, policies: usize) {
    update(bencher, adapters(policies, Keep::Activations), policies, 1);
}

/// Blocks run again on the way back.
#[divan::bench(sample_count = 3)]
fn lora_checkpointed(bencher: divan::Bencher<'_, '_>) {
    update(bencher, adapters(1, Keep::Inputs), 1, 1);
}

/// Two groups of four, each with one prompt, which is fed once per group.
#[divan::bench(sample_count = 3)]
fn lora_siblings(bencher: divan::Bencher<'_, '_>) {
    update(bencher, adapters(1, Keep::Activations), 1, 4);
}

/// All weights.
#[divan::bench(sample_count = 4)]
fn full(bencher: divan::Bencher<'_, '_>) {
    update(bencher, whole(Keep::Activations), 1, 1);
}

/// All weights, blocks run again on the way back.
#[divan::bench(sample_count = 3)]
fn full_checkpointed(bencher: divan::Bencher<'_, '_>) {
    update(bencher, whole(Keep::Inputs), 1, 1);
}
