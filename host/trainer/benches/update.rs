//! Speed and memory of training SmolLM2-135M on 2,048 packed tokens (eight sequences of 128 prompt and 128
//! completion tokens). `bench/peers/train_transformers.py` does the same work with transformers.
//!
//! `cargo bench -p pl-trainer --bench update [-- [--exact] NAME…]` prints a line of JSON for each figure;
//! `cargo xtask bench engine` compares them with the peer's.
//!
//! `PL_HOST_BENCH_DEVICE=cuda` trains in bf16 on the first GPU: eight sequences of 2,048 prompt and 2,048 completion tokens, of
//! which four are in a pass.
//!
//! `PL_HOST_BENCH_SEQUENCE=8192` trains on sequences of this length instead: a prompt, and a completion of 128 tokens, as many
//! sequences as have the same number of tokens together, at least one, all in one pass. `cargo xtask bench contexts` shows how
//! the figures scale.
//!
//! Needs the model where `cargo xtask setup` stores it (`PL_HOST_CACHE`, or `~/.cache/pl-host`), or the one that
//! `PL_HOST_BENCH_MODEL` names; without it, nothing is measured.

#![allow(clippy::expect_used, reason = "a benchmark that cannot run stops with the reason")]

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use pl_dsl::settings::AT_GRPO;
use pl_dsl::workflow::objective::{Advantage, Critic, CriticBase, Objective, Optimizer, PolicyTraining};
use pl_dsl::workflow::{Lora, LrSchedule};
use pl_kernels::cuda::{KernelSettings, first_gpu};
use pl_model::{Adapter, Checkpointing, Model, Projection, TensorSet, TorchDtype};
use pl_trainer::critic::CriticModel;
use pl_trainer::plan::BatchPlan;
use pl_trainer::preparation::TurnOutcome;
use pl_trainer::{Learner, LearnerSettings, NewPolicy, Sample};
use pl_types::{Dtype, Group, Key, Transition};
use serde_json::json;
use tch::{Device, IndexOp, Kind, Tensor};

const SEQUENCES: usize = 8;
/// Tokens of a completion after a prompt of a length that is given.
const COMPLETION: usize = 128;
const RUNS: usize = 3;
/// Time after which no further update is measured: one that takes longer varies less.
const LONG: Duration = Duration::from_secs(30);

/// Sizes and number format of a device's cases.
struct Sizes {
    sequences: usize,
    prompt: usize,
    completion: usize,
    /// Largest number of tokens of a pass.
    pass: usize,
    dtype: Dtype,
}

impl Sizes {
    fn of_device() -> Sizes {
        let sequences = SEQUENCES;
        let sizes = match *DEVICE {
            Device::Cpu => Sizes { sequences, prompt: 128, completion: 128, pass: 2048, dtype: Dtype::F32 },
            _ => Sizes { sequences, prompt: 2048, completion: 2048, pass: 16_384, dtype: Dtype::Bf16 },
        };
        match *SEQUENCE {
            Some(tokens) => sizes.with_sequences_of(tokens),
            None => sizes,
        }
    }

    /// Returns sizes of sequences of a length, with as many tokens in all and in a pass unless one sequence has more.
    fn with_sequences_of(self, tokens: usize) -> Sizes {
        assert!(tokens > COMPLETION, "PL_HOST_BENCH_SEQUENCE is more than {COMPLETION}");
        Sizes {
            sequences: (self.tokens() / tokens).max(1),
            prompt: tokens - COMPLETION,
            completion: COMPLETION,
            pass: self.pass.max(tokens),
            dtype: self.dtype,
        }
    }

    /// Number of tokens of a sequence.
    fn sequence(&self) -> usize {
        self.prompt + self.completion
    }

    /// Number of tokens of all sequences.
    fn tokens(&self) -> usize {
        self.sequences * self.sequence()
    }
}

/// Critic of a case.
#[derive(Clone, Copy, PartialEq)]
enum CriticCase {
    Without,
    /// A critic whose values before the update take forward passes.
    Computed(CriticBase),
    /// A value head on the policy's hidden states. The values before the update were recorded when the tokens were
    /// sampled.
    Recorded,
}

use CriticCase::{Computed, Recorded, Without};

impl CriticCase {
    fn base(self) -> Option<CriticBase> {
        match self {
            Without => None,
            Computed(base) => Some(base),
            Recorded => Some(CriticBase::Policy),
        }
    }
}

/// Name, number of policies (each with an adapter; 0 trains all weights), gradient checkpointing, number of
/// sequences per prompt, critic.
type UpdateCase = (&'static str, usize, Checkpointing, usize, CriticCase);

const CASES: [UpdateCase; 11] = [
    ("train/full", 0, Checkpointing::Off, 1, Without),
    ("train/lora", 1, Checkpointing::Off, 1, Without),
    ("train/lora, 2 adapters", 2, Checkpointing::Off, 1, Without),
    ("train/lora, 4 adapters", 4, Checkpointing::Off, 1, Without),
    // Two groups of four, each with one prompt that is fed once per group.
    ("train/lora, 4 siblings", 1, Checkpointing::Off, 4, Without),
    // Gradient checkpointing.
    ("train/full, checkpointed", 0, Checkpointing::On, 1, Without),
    ("train/lora, checkpointed", 1, Checkpointing::On, 1, Without),
    // PPO with a value head on the policy's hidden states.
    ("train/lora, critic", 1, Checkpointing::Off, 1, Recorded),
    ("train/lora, critic, computed values", 1, Checkpointing::Off, 1, Computed(CriticBase::Policy)),
    // Critics with weights of their own, which take passes of their own.
    ("train/lora, critic adapter", 1, Checkpointing::Off, 1, Computed(CriticBase::Adapter)),
    ("train/lora, critic model", 1, Checkpointing::Off, 1, Computed(CriticBase::Model)),
];

fn main() {
    // As the program does.
    pl_model::libtorch::keep_freed_memory();
    let (flags, names): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|word| word.starts_with('-'));
    let exact = flags.iter().any(|flag| flag == "--exact");
    let is_wanted = |case: &str| {
        let names_case = |name: &String| if exact { case == name } else { case.contains(name.as_str()) };
        names.is_empty() || names.iter().any(names_case)
    };
    let sizes = Sizes::of_device();
    let Some(model) = model(&sizes) else { return };
    let most = model.config.max_positions;
    if SEQUENCE.is_some_and(|tokens| tokens > most) {
        eprintln!("skipped: sequences of {} tokens; the model takes {most}", sizes.sequence());
        return;
    }
    let rate = product_rate(&sizes, &model);
    drop(model);
    // A single sequence has one policy and no siblings; a critic's passes are those of a policy.
    let has_length = |(_, policies, _, siblings, critic): &UpdateCase| {
        SEQUENCE.is_none() || (*policies <= 1 && *siblings == 1 && *critic == Without)
    };
    for (name, policies, checkpointing, siblings, critic) in
        CASES.into_iter().filter(has_length).filter(|case| is_wanted(case.0))
    {
        let learner = if policies == 0 {
            full_learner(&sizes, checkpointing)
        } else {
            adapter_learner(&sizes, policies, checkpointing, critic.base())
        };
        let Some(learner) = learner else { return };
        let Operations { products, attention } = Operations::new(&sizes, &learner);
        // Upper bounds in tokens per second, if the operations took all the time at the rate of matrix products.
        let allows = |operations: f64| rate * 1e9 * sizes.tokens() as f64 / operations;
        let Figures { tokens, cpu_seconds, preparation } =
            update(&sizes, learner, policies.max(1), siblings, critic == Recorded);
        println!(
            "{}",
            json!({
                "name": name,
                "tokens_per_second": tokens,
                "processor_seconds": cpu_seconds,
                "preparation_processor_seconds": preparation,
                // Products alone: with sequences of 256 tokens, attention adds 4 to 5 % to them.
                "machine_allows": allows(products),
                "machine_allows_with_attention": allows(products + attention),
                "tokens": sizes.tokens(),
                "product_operations": products,
                "attention_operations": attention,
                // Peak of the process so far: run a case alone to measure its own.
                "peak_memory_bytes": peak_memory(),
            })
        );
    }
}

/// Speed in GFLOP/s of a matrix product of the size of a feed-forward projection, computed as in training.
fn product_rate(sizes: &Sizes, model: &Model) -> f64 {
    let (rows, inputs, outputs) = (sizes.pass as i64, model.config.hidden, model.config.ffn);
    let random = |rows: i64| {
        let numbers = Tensor::randn([rows, inputs], (Kind::Float, *DEVICE));
        numbers.to_kind(sizes.dtype.kind())
    };
    let (x, matrix) = (random(rows), random(outputs));
    let times = (0..20).map(|_| {
        let start = Instant::now();
        let product = pl_model::linear(&x, &matrix);
        // Waits for the device.
        let _ = std::hint::black_box(product.map(|product| product.i((0, 0)).double_value(&[])));
        start.elapsed().as_secs_f64()
    });
    2.0 * (rows * inputs * outputs) as f64 / times.fold(f64::INFINITY, f64::min) / 1e9
}

/// Operations that an update needs at least.
struct Operations {
    /// Products with weights: the forward pass, the gradient of every input, and with full training that of every weight; the
    /// output matrix for completions only.
    products: f64,
    /// Products of queries and keys, and of their weights and values, from each token to those before it, and two gradients of
    /// each of them.
    attention: f64,
}

impl Operations {
    fn new(sizes: &Sizes, learner: &Learner) -> Operations {
        let config = learner.config();
        let is_full = learner.policies().iter().any(|policy| policy.adapter.is_none());
        let passes = if is_full { 3.0 } else { 2.0 };
        let shapes = Projection::ALL.iter().map(|projection| projection.shape(config));
        let layer: i64 = shapes.map(|(inputs, outputs)| inputs * outputs).sum();
        let share = sizes.completion as f64 / sizes.sequence() as f64;
        let numbers = (layer * config.layers as i64) as f64 + share * (config.vocab * config.hidden) as f64;
        let pairs = sizes.sequences as f64 * (sizes.sequence() * (sizes.sequence() + 1) / 2) as f64;
        Operations {
            products: 2.0 * passes * numbers * sizes.tokens() as f64,
            attention: 3.0 * 4.0 * (config.q_width() * config.layers as i64) as f64 * pairs,
        }
    }
}

/// Returns the largest amount of memory in bytes that the process has had so far. Returns `None` where the system does not tell.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// The number of tokens that `PL_HOST_BENCH_SEQUENCE` names.
static SEQUENCE: LazyLock<Option<usize>> = LazyLock::new(|| {
    let number = |text: String| text.parse::<usize>().expect("PL_HOST_BENCH_SEQUENCE is a number of tokens");
    std::env::var("PL_HOST_BENCH_SEQUENCE").ok().map(number)
});

/// The device that `PL_HOST_BENCH_DEVICE` names: `cuda`, with the kernels for it, or the CPU.
static DEVICE: LazyLock<Device> = LazyLock::new(|| {
    if std::env::var_os("PL_HOST_BENCH_DEVICE").is_none_or(|name| name != "cuda") {
        return Device::Cpu;
    }
    let cache = pl_testing::cache();
    let device = first_gpu(&KernelSettings::new(&cache)).expect("libtorch's CUDA libraries with kernels");
    device.expect("a CUDA device")
});

fn model(sizes: &Sizes) -> Option<Model> {
    let path = match std::env::var_os("PL_HOST_BENCH_MODEL") {
        Some(named) => PathBuf::from(named),
        None => pl_testing::smollm()?,
    };
    if !path.exists() {
        eprintln!("skipped: {} is missing", path.display());
        return None;
    }
    Model::load(&path, *DEVICE, sizes.dtype).inspect_err(|error| eprintln!("skipped: {error}")).ok()
}

fn settings(sizes: &Sizes, checkpointing: Checkpointing) -> LearnerSettings {
    LearnerSettings {
        batch_plan: BatchPlan { epochs: 1, mini_batches: 1, token_budget: sizes.pass, ranks: 1 },
        checkpointing,
        steps: 1,
        seed: 1,
        uses_sampled_values: true,
        record_tokens: false,
    }
}

/// A policy with the default objective, or with PPO's advantages and a critic.
fn new_policy(sizes: &Sizes, policy: usize, critic: Option<CriticBase>) -> NewPolicy {
    let lora = Lora {
        rank: 16,
        alpha: 32.0,
        targets: ["q", "k", "v", "o", "gate", "up", "down"].map(str::to_owned).to_vec(),
    };
    let critic = critic.map(|on| Critic {
        on,
        model: None,
        lora: (on == CriticBase::Adapter).then_some(lora),
        learning_rate: 1e-4,
        warmup: 0,
        clip: 0.5,
        weight: 0.1,
    });
    let objective = Objective {
        advantage: if critic.is_some() { Advantage::Gae } else { Advantage::Group },
        lambda: 1.0,
        correction_low: 0.5,
        ..AT_GRPO
    };
    let optimizer = Optimizer {
        learning_rate: 1e-5,
        lr_schedule: LrSchedule::Constant,
        warmup: 0,
        weight_decay: 0.0,
        beta1: 0.9,
        beta2: 0.999,
        max_grad_norm: 1.0,
    };
    let training = PolicyTraining {
        objective,
        optimizer,
        freeze: 0,
        update_every: 1,
        steps_per_update: 1,
        staleness: None,
        critic,
    };
    let max_tokens = sizes.completion as u32;
    NewPolicy {
        policy,
        name: format!("p{policy}"),
        training,
        max_tokens,
        has_start: false,
        critic_model: None,
    }
}

/// The model of a critic that has one of its own.
fn critic_model(sizes: &Sizes, critic: Option<CriticBase>) -> Option<CriticModel> {
    if critic != Some(CriticBase::Model) {
        return None;
    }
    let model = model(sizes)?;
    Some(CriticModel::trained(model.config, model.weights, sizes.dtype).expect("a model"))
}

/// A transition; those of one family have the same prompt.
fn transition(sizes: &Sizes, index: usize, family: usize, policy: u32) -> Transition {
    let (prompt, completion) = (sizes.prompt, sizes.completion);
    let tokens = |from: usize, count: usize| (from..from + count).map(|i| (i * 97 % 40_000 + 100) as u32);
    let task = index as u32;
    Transition {
        key: Key { step: 0, task, sample: 0, node_visit: 0, agent: policy, branch: 0, call: 0 },
        group: Group { step: 0, task, agent: policy, turn: 0, node_visit: None },
        task_id: String::new(),
        agent: String::new(),
        policy,
        turn: 0,
        prompt: tokens(family * 1000, prompt).collect(),
        completion: tokens(index * 1000 + prompt, completion).collect(),
        logprobs: vec![-3.0; completion],
        support: None,
        temperature: 1.0,
        max_tokens: completion as u32,
        cut_off: false,
        final_call: true,
        versions: Vec::new(),
        version: 0,
        version_changes: Vec::new(),
        team_reward: 0.0,
        local_reward: 0.0,
        reward: 0.0,
        success: false,
        chosen: true,
        action: String::new(),
        state: String::new(),
        next_prompt: None,
        values: None,
    }
}

/// Best figures of several updates.
struct Figures {
    /// Tokens per second of the update and its preparation.
    tokens: f64,
    /// CPU time of the same.
    cpu_seconds: f64,
    /// CPU time of the preparation alone, which computes a critic's values.
    preparation: f64,
}

/// Updates a learner several times.
fn update(sizes: &Sizes, mut learner: Learner, policies: usize, siblings: usize, recorded: bool) -> Figures {
    let has_critic = learner.policies().iter().any(|policy| policy.critic.is_some());
    let values = recorded.then(|| vec![0.0; sizes.completion]);
    let transitions: Vec<_> = (0..sizes.sequences)
        .map(|i| transition(sizes, i, i / siblings, (i * policies / sizes.sequences) as u32))
        .map(|transition| Transition { values: values.clone(), ..transition })
        .collect();
    let (mut seconds, mut cpu, mut preparation) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
    let began = Instant::now();
    for _ in 0..RUNS {
        let (start, before) = (Instant::now(), cpu_seconds());
        let reward = |i: usize| if i.is_multiple_of(2) { 1.0 } else { -1.0 };
        let planned = if has_critic {
            let outcome = |i: usize| TurnOutcome { reward: reward(i), success: false };
            let outcomes: Vec<_> = transitions.iter().enumerate().map(|(i, t)| (t, outcome(i))).collect();
            learner.prepare(1, &outcomes, None)
        } else {
            let samples = transitions.iter().enumerate().map(|(i, t)| Sample::new(t, reward(i)));
            learner.plan(1, samples.collect())
        }
        .expect("the transitions are valid");
        preparation = preparation.min(cpu_seconds() - before);
        learner.update(&planned, &mut || {}).expect("the update runs");
        seconds = seconds.min(start.elapsed().as_secs_f64());
        cpu = cpu.min(cpu_seconds() - before);
        if began.elapsed() > LONG {
            break;
        }
    }
    let tokens = sizes.tokens() as f64 / seconds;
    Figures { tokens, cpu_seconds: cpu, preparation }
}

/// CPU time of this process on all cores in seconds, which depends less on other processes than elapsed time.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    // utime and stime, in hundredths of a second.
    (ticks(11) + ticks(12)) / 100.0
}

/// A learner of adapters of rank 16 on all projections.
fn adapter_learner(
    sizes: &Sizes,
    policies: usize,
    checkpointing: Checkpointing,
    critic: Option<CriticBase>,
) -> Option<Learner> {
    model(sizes).map(|model| {
        let adapters = (0..policies).map(|policy| {
            let seed = [policy as u8; 32];
            let adapter =
                Adapter::new(&model.config, 16, 32.0, &Projection::ALL, seed).expect("a valid adapter");
            let adapter = adapter.to_device(*DEVICE);
            (
                NewPolicy { critic_model: critic_model(sizes, critic), ..new_policy(sizes, policy, critic) },
                adapter,
            )
        });
        Learner::adapters(
            model.config.clone(),
            model.weights.shallow(),
            adapters.collect(),
            settings(sizes, checkpointing),
        )
        .expect("a learner")
    })
}

/// A learner of all weights.
fn full_learner(sizes: &Sizes, checkpointing: Checkpointing) -> Option<Learner> {
    model(sizes).map(|model| {
        let (policy, settings) = (new_policy(sizes, 0, None), settings(sizes, checkpointing));
        Learner::full(model.config, model.weights, sizes.dtype, policy, settings).expect("a learner")
    })
}
