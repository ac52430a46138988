//! Generation speed with SmolLM2-135M in tokens per second, and the upper bound of the machine.
//!
//! `cargo bench -p pl-inference --bench throughput [-- FILTER]`; needs the model in the cache
//! (`cargo xtask setup`), or the one that `PL_HOST_BENCH_MODEL` names. Prints a line of JSON for each figure, as the
//! peers in `bench/peers` do; `cargo xtask bench engine` compares them. Prompts of 32 tokens; only those with a
//! grammar end before their length.
//!
//! With `PL_HOST_BENCH_ROWS=1,16,64` it prints instead how long a pass with each of these numbers of completions takes, without
//! prompts, and how fast prompts of 256 tokens alone are: weights as in the file, with one adapter and with two, as runs that train
//! adapters have them on a CPU.
//! `cargo xtask bench rollouts` compares a run's passes with them.

#![allow(clippy::expect_used, reason = "a benchmark that cannot run stops with the reason")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use pl_inference::{EngineCommand, LlmEngine, LlmEngineConfig};
use pl_kernels::cpu::{Cpu, Epilogue, Matrix, Product, SimdLevel, Term, WeightFormat};
use pl_model::{Config, Model};
use pl_types::{Generate, Grammar, ModelDtype, Sampling};
use serde_json::json;
use tch::Device;
use tokio::runtime::Runtime;

use common::{layer_numbers, model_path, numbers, request, stored_bytes, token_bytes, without_ends};

const PROMPT: u32 = 32;
const NEW: u32 = 128;
const RUNS: u32 = 3;

struct Case {
    name: &'static str,
    requests: u32,
    slots: usize,
    dtype: ModelDtype,
    /// Number of policies, each with an adapter; 0 uses the plain base.
    adapters: usize,
    /// Number of tokens of each completion, by its index.
    length: fn(u32) -> u32,
    /// Grammar of the completions.
    grammar: Option<fn() -> Grammar>,
}

impl Case {
    const fn new(name: &'static str, rows: u32, dtype: ModelDtype) -> Self {
        Self {
            name,
            requests: rows,
            slots: rows as usize,
            dtype,
            adapters: 0,
            length: |_| NEW,
            grammar: None,
        }
    }
}

const SCHEMA: &str = r#"{"type": "array", "items": {"type": "object", "properties": {
    "name": {"type": "string"}, "kind": {"enum": ["plan", "work", "review"]}, "score": {"type": "number"}},
    "required": ["name", "kind", "score"], "additionalProperties": false}}"#;

/// Grammar of designs with three items and two policies, as `pl_dsl::design_grammar` makes it.
const DESIGNS: &str = include_str!("designs.lark");

const CASES: [Case; 14] = [
    Case::new("generate/1/f32", 1, ModelDtype::F32),
    Case::new("generate/16/f32", 16, ModelDtype::F32),
    Case::new("generate/64/f32", 64, ModelDtype::F32),
    Case::new("generate/1/f16", 1, ModelDtype::F16),
    Case::new("generate/16/f16", 16, ModelDtype::F16),
    Case::new("generate/1/file", 1, ModelDtype::File),
    Case::new("generate/16/file", 16, ModelDtype::File),
    Case::new("generate/1/q8", 1, ModelDtype::Q8),
    Case::new("generate/16/q8", 16, ModelDtype::Q8),
    Case { adapters: 4, ..Case::new("generate/16/f32, 4 adapters", 16, ModelDtype::F32) },
    Case {
        requests: 64,
        length: |_| 132,
        ..Case::new("generate/16/f32, 64 of 132 tokens", 16, ModelDtype::F32)
    },
    // Token masks: lists of objects, which the limit ends. Also run without, with as many tokens.
    Case {
        requests: 64,
        length: |_| 64,
        grammar: Some(|| Grammar::JsonSchema(SCHEMA.to_owned())),
        ..Case::new("generate/16/f32, 64 with a schema", 16, ModelDtype::F32)
    },
    // Teams of agents, as a designer writes them.
    Case {
        requests: 64,
        length: |_| 200,
        grammar: Some(|| Grammar::Lark(DESIGNS.to_owned())),
        ..Case::new("generate/16/f32, 64 designs", 16, ModelDtype::F32)
    },
    // Short and long completions in mixed order.
    Case {
        requests: 64,
        length: |i| 8 + (i * 37 % 64) * 248 / 63,
        ..Case::new("generate/16/f32, 64 of 8 to 256 tokens", 16, ModelDtype::F32)
    },
];

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let Some(path) = model_path() else { return };
    if let Ok(rows) = std::env::var("PL_HOST_BENCH_ROWS") {
        let number = |text: &str| text.parse::<u32>().expect("PL_HOST_BENCH_ROWS is a list such as 1,16,64");
        return print_pass_times(&path, &rows.split(',').map(number).collect::<Vec<_>>());
    }
    let machine = Machine::measure();
    let instructions = SimdLevel::detect().to_string();
    let kind = match microarchitecture() {
        Some(name) => format!("{instructions}, {name}"),
        None => instructions.clone(),
    };
    println!(
        "{}",
        json!({
            "name": "machine",
            "processor": processor(),
            "threads": std::thread::available_parallelism().map_or(1, usize::from),
            "kind": kind,
            "instructions": instructions,
            "read_gb_per_second": machine.read,
            "product_gflops": machine.products,
        })
    );
    for case in CASES.iter().filter(|case| case.name.contains(&filter)) {
        let model = Model::load(&path, Device::Cpu, case.dtype).expect("the model");
        let Figures { rate, cpu_seconds, lengths } = run(case, &model, None);
        // The same without masks, with completions of the same lengths.
        let unmasked = case.grammar.map(|_| run(case, &model, Some(&lengths)).rate);
        let bytes = stored_bytes(&path, &model.config, case.dtype);
        println!(
            "{}",
            json!({
                "name": case.name,
                "tokens_per_second": rate,
                "cpu_seconds": cpu_seconds,
                "unmasked_tokens_per_second": unmasked,
                "machine_allows": machine.allows(&model.config, case, bytes),
                "machine_allows_with_attention": machine.allows_with_attention(&model.config, case, bytes, &lengths),
            })
        );
    }
}

/// Measures passes with numbers of completions, and prompts without completions.
fn print_pass_times(path: &Path, rows: &[u32]) {
    const FEW: u32 = NEW / 4;
    const PROMPTS: u32 = 8;
    const LONG_PROMPT: u32 = 256;
    let model = Model::load(path, Device::Cpu, ModelDtype::File).expect("the model");
    let runtime = Runtime::new().expect("a runtime");
    let slots = rows.iter().copied().max().unwrap_or(1).max(PROMPTS) as usize;
    let sampling = Sampling { logit_bias: without_ends(&model), ..Sampling::default() };
    for adapters in [1, 2] {
        let engine = start_engine(&model, ModelDtype::File, adapters, slots);
        let seconds = |count: u32, prompt: u32, new: u32| {
            let times = (0..RUNS).map(|_| {
                engine.command(EngineCommand::ClearPrefixes).expect("an engine");
                let start = Instant::now();
                let running: Vec<_> = (0..count)
                    .map(|i| {
                        let tokens = i * prompt..(i + 1) * prompt;
                        let request = request(i, i as usize % adapters, tokens, new, sampling.clone());
                        let engine = engine.clone();
                        runtime.spawn(async move { engine.generate(request).await })
                    })
                    .collect();
                for task in running {
                    runtime.block_on(task).expect("a task").expect("completions");
                }
                start.elapsed().as_secs_f64()
            });
            times.fold(f64::INFINITY, f64::min)
        };
        for rows in rows {
            // Both have the same prompts, and the same passes in which these and completions begin and end.
            let pass = (seconds(*rows, PROMPT, NEW) - seconds(*rows, PROMPT, FEW)) / f64::from(NEW - FEW);
            let name = format!("pass/{rows}/file, {adapters} adapters");
            println!("{}", json!({ "name": name, "adapters": adapters, "rows": rows, "pass_seconds": pass }));
        }
        let rate = f64::from(PROMPTS * LONG_PROMPT) / seconds(PROMPTS, LONG_PROMPT, 1);
        let name = format!("prefill/file, {adapters} adapters");
        println!("{}", json!({ "name": name, "adapters": adapters, "prefilled_tokens_per_second": rate }));
    }
}

/// Starts an engine with a number of slots, and otherwise as by default.
fn start_engine(model: &Model, dtype: ModelDtype, adapters: usize, slots: usize) -> LlmEngine {
    common::start_engine(model, dtype, adapters, LlmEngineConfig { slots, ..LlmEngineConfig::default() })
}

struct Figures {
    /// Tokens per second of the fastest run.
    rate: f64,
    /// CPU time of that run.
    cpu_seconds: f64,
    /// Tokens of each completion of all runs.
    lengths: Vec<u32>,
}

/// Runs a case, or without its grammar if the lengths of the completions are given.
fn run(case: &Case, model: &Model, given: Option<&[u32]>) -> Figures {
    let engine = start_engine(model, case.dtype, case.adapters, case.slots);
    let runtime = Runtime::new().expect("a runtime");
    let grammar = case.grammar.filter(|_| given.is_none());
    let biases: Arc<[(u32, f32)]> = if grammar.is_some() { Arc::default() } else { without_ends(model) };
    let grammar = grammar.map(|make| Arc::new(make()));
    let mut best = Figures { rate: 0.0, cpu_seconds: 0.0, lengths: Vec::new() };
    for round in 0..RUNS {
        let (start, cpu_before) = (Instant::now(), cpu_seconds());
        let running: Vec<_> = (0..case.requests)
            .map(|i| {
                let first = (round * case.requests + i) * PROMPT;
                let max_tokens = match given {
                    Some(lengths) => lengths[(round * case.requests + i) as usize],
                    None => (case.length)(i),
                };
                let sampling = Sampling {
                    logit_bias: Arc::clone(&biases),
                    grammar: grammar.clone(),
                    ..Sampling::default()
                };
                let policy = i as usize % case.adapters.max(1);
                let request = request(i, policy, first..first + PROMPT, max_tokens, sampling);
                let engine = engine.clone();
                runtime.spawn(async move { engine.generate(request).await })
            })
            .collect();
        let lengths: Vec<u32> = running
            .into_iter()
            .map(|task| runtime.block_on(task).expect("a task").expect("completions")[0].tokens.len() as u32)
            .collect();
        let tokens: u32 = lengths.iter().sum();
        let rate = f64::from(tokens) / start.elapsed().as_secs_f64();
        if rate > best.rate {
            (best.rate, best.cpu_seconds) = (rate, cpu_seconds() - cpu_before);
        }
        best.lengths.extend(lengths);
    }
    best
}

/// Measured limits of the machine.
struct Machine {
    /// Memory read bandwidth of all cores in GB/s.
    read: f64,
    /// Speed of f32 matrix products on all cores in GFLOP/s.
    products: f64,
}

impl Machine {
    fn measure() -> Self {
        let cpu = Cpu::new(std::thread::available_parallelism().map_or(1, usize::from)).expect("threads");
        Self { read: read_rate(&cpu), products: product_rate(&cpu) }
    }

    /// Upper bound in tokens per second: each step only reads the weights once, or only multiplies by them.
    fn allows(&self, config: &Config, case: &Case, bytes: f64) -> f64 {
        let rows = case.slots as f64;
        let reading = bytes / (self.read * 1e9);
        let multiplying = 2.0 * numbers(config) * rows / (self.products * 1e9);
        rows / reading.max(multiplying)
    }

    /// The same with the other work that there is: each step also reads the keys and values of its contexts, and multiplies by the
    /// prompts of completions with these lengths.
    fn allows_with_attention(&self, config: &Config, case: &Case, bytes: f64, lengths: &[u32]) -> f64 {
        let prompt = f64::from(PROMPT);
        let lengths = || lengths.iter().copied().map(f64::from);
        let tokens: f64 = lengths().sum();
        // A token attends to its prompt and, in the mean, to half of its completion.
        let attended: f64 = lengths().map(|length| length * (prompt + length / 2.0)).sum();
        let read = bytes * tokens / case.slots as f64 + token_bytes(config) * attended;
        let multiplying = 2.0 * numbers(config) * tokens / (self.products * 1e9);
        let prompts = 2.0 * layer_numbers(config) * prompt * lengths().count() as f64 / (self.products * 1e9);
        tokens / (multiplying + prompts).max(read / (self.read * 1e9))
    }
}

fn fastest(mut work: impl FnMut()) -> f64 {
    let times = (0..7).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

fn read_rate(cpu: &Cpu) -> f64 {
    const PART: usize = 1 << 20;
    let memory: Vec<u64> = (0..64 * PART as u64).collect();
    let seconds = fastest(|| {
        cpu.parallel_for(64, |part| {
            let sum = memory[part * PART..][..PART].iter().fold(0u64, |sum, n| sum ^ n);
            std::hint::black_box(sum);
        });
    });
    size_of_val(memory.as_slice()) as f64 / seconds / 1e9
}

fn product_rate(cpu: &Cpu) -> f64 {
    const ROWS: usize = 256;
    const OUTPUTS: usize = 1536;
    const INPUTS: usize = 576;
    let matrix = Matrix::pack(cpu, &vec![0.5; OUTPUTS * INPUTS], OUTPUTS, INPUTS, WeightFormat::F32);
    let (x, mut out) = (vec![0.25f32; ROWS * INPUTS], vec![0f32; ROWS * OUTPUTS]);
    let seconds = fastest(|| {
        let term = Term { rows: 0..ROWS, x: &x, stride: INPUTS, offset: 0, matrix: &matrix };
        let product = Product { rows: 0..ROWS, terms: &[term], epilogue: Epilogue::Store, offset: 0 };
        cpu.products(&[product], &mut out, OUTPUTS);
    });
    2.0 * (ROWS * OUTPUTS * INPUTS) as f64 / seconds / 1e9
}

/// Returns the processor's name.
fn processor() -> String {
    let name = processor_fact("model name").unwrap_or_else(|| "unknown".to_owned());
    match microarchitecture() {
        Some(own) => format!("{name} ({own})"),
        None => name,
    }
}

/// Returns the microarchitecture of an AMD CPU with AVX-512, which its name in a virtual machine omits, or `None` on other CPUs. Zen 4
/// executes 512-bit instructions as two 256-bit halves.
fn microarchitecture() -> Option<&'static str> {
    if processor_fact("vendor_id")? != "AuthenticAMD" || SimdLevel::detect() != SimdLevel::Avx512 {
        return None;
    }
    let number = |name: &str| processor_fact(name)?.parse::<u32>().ok();
    match (number("cpu family")?, number("model")?) {
        (25, _) => Some("Zen 4"),
        (26, 0..0x50 | 0x60..0x80) => Some("Zen 5"),
        _ => None,
    }
}

fn processor_fact(name: &str) -> Option<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let mut facts = info.lines().filter_map(|line| line.split_once(": "));
    facts.find(|(own, _)| own.trim() == name).map(|(_, fact)| fact.to_owned())
}

/// CPU time of this process on all cores, in seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    // utime and stime, in hundredths of a second.
    (ticks(11) + ticks(12)) / 100.0
}
