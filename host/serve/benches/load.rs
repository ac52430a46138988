//! The server under load, beside the embedded engine alone: tokens per second with 64 requests in progress, and the time
//! to the first token, idle and with 64 in progress.
//!
//! `cargo bench -p pl-serve --bench load [-- throughput | first]`; needs SmolLM2 in the cache (`cargo xtask setup`).
//! Prints lines of JSON; `cargo xtask bench servers` makes a table of them.

#![allow(clippy::expect_used, reason = "a benchmark that cannot run stops with the reason")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pl_inference::{BaseModel, LlmEngine, LlmEngineConfig, PolicyWeights};
use pl_model::{Model, TensorSet};
use pl_serve::{ServedModel, ServerConfig, Service};
use pl_types::{Dtype, Generate, Request, Sampling};
use serde_json::{Value, json};
use tch::Device;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// Requests in progress.
const LOAD: u32 = 64;
/// Tokens of a prompt.
const PROMPT: u32 = 64;
/// Tokens of a completion.
const NEW: u32 = 32;
/// Pairs of runs with and without the server, in turn. The median of the pairs' ratios counts: other work on the machine
/// slows both of a pair.
const PAIRS: u32 = 5;
/// Times that the measurements of first tokens are repeated: idle, then under load.
const CYCLES: u32 = 3;
/// Streams of a cycle whose first token is measured, when idle and under load.
const STREAMS: u32 = 5;
/// Tokens of the prompts that make the load for these.
const BUSY_PROMPT: usize = 16;

fn main() {
    let Some(path) = pl_testing::smollm() else { return };
    let model = Model::load(&path, Device::Cpu, Dtype::F32).expect("the model");
    let base = BaseModel {
        config: model.config.clone(),
        weights: model.weights.shallow(),
        tokenizer: Arc::clone(&model.tokenizer),
        dtype: Dtype::F32,
    };
    let policy = PolicyWeights { base: 0, adapter: None, version: 0 };
    let config = LlmEngineConfig { slots: LOAD as usize, ..LlmEngineConfig::default() };
    let engine = LlmEngine::start(vec![base], vec![policy], config).expect("an engine");
    let runtime = Runtime::new().expect("a runtime");
    let address = serve(&runtime, &model, &engine);
    // Excludes the tokens that would end a completion.
    let bias: Vec<u32> = model.tokenizer.end_of_turn().to_vec();
    let bench = Bench { engine, runtime, address, bias };

    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    if "throughput".contains(&filter) {
        bench.throughput();
    }
    if "first token".contains(&filter) {
        bench.first_tokens();
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn print(line: Value) {
    println!("{line}");
}

/// Starts a server over an engine.
fn serve(runtime: &Runtime, model: &Model, engine: &LlmEngine) -> SocketAddr {
    let served = ServedModel {
        name: "base".into(),
        policy: 0,
        tokenizer: Arc::clone(&model.tokenizer),
        template: Arc::clone(&model.template),
        max_positions: model.config.max_positions,
        date: "2024-02-29".parse().expect("a date"),
        base: "base".into(),
        model_hash: String::new(),
        is_adapter: false,
    };
    let service = Service::new(vec![served], None, Arc::new(engine.clone()), ServerConfig::default());
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
    let address = listener.local_addr().expect("an address");
    runtime.spawn(pl_serve::serve(listener, service, std::future::pending()));
    address
}

struct Bench {
    engine: LlmEngine,
    runtime: Runtime,
    address: SocketAddr,
    /// Tokens that end a completion.
    bias: Vec<u32>,
}

impl Bench {
    /// A prompt of a round that no other prompt begins like.
    fn prompt(round: u32, number: u32) -> Vec<u32> {
        let first = (round * 1000 + number) * PROMPT;
        (first..first + PROMPT).map(|n| 1000 + n * 7919 % 40_000).collect()
    }

    fn request(&self, prompt: Vec<u32>, max_tokens: u32) -> Request {
        let biases = self.bias.iter().map(|id| (*id, -100.0)).collect();
        Request {
            policy: 0,
            prompt: prompt.into(),
            seeds: vec![[7; 32]],
            max_tokens,
            sampling: Sampling { logit_bias: biases, ..Sampling::default() },
            stop: Arc::new([]),
            stop_ids: Arc::new([]),
            top_logprobs: 0,
            listener: None,
        }
    }

    fn body(&self, prompt: &[u32], max_tokens: u32, stream: bool) -> Value {
        let bias: serde_json::Map<String, Value> =
            self.bias.iter().map(|id| (id.to_string(), json!(-100))).collect();
        json!({
            "model": "base", "prompt": prompt, "max_tokens": max_tokens, "seed": 7, "stream": stream,
            "logprobs": 0, "return_token_ids": true, "logit_bias": bias,
        })
    }

    /// Tokens per second with and without the server.
    fn throughput(&self) {
        self.embedded(0);
        let pairs = (1..=PAIRS).map(|pair| (self.embedded(2 * pair), self.served(2 * pair + 1)));
        let (embedded, served): (Vec<f64>, Vec<f64>) = pairs.unzip();
        print(json!({
            "name": "throughput/64",
            "embedded_tokens_per_second": median(embedded.iter().copied()),
            "served_tokens_per_second": median(served.iter().copied()),
            "ratio": median(served.iter().zip(&embedded).map(|(served, embedded)| served / embedded)),
        }));
    }

    /// Tokens per second of the engine alone.
    fn embedded(&self, round: u32) -> f64 {
        let start = Instant::now();
        let running: Vec<_> = (0..LOAD)
            .map(|number| {
                let (engine, request) = (self.engine.clone(), self.request(Self::prompt(round, number), NEW));
                self.runtime.spawn(async move { engine.generate(request).await })
            })
            .collect();
        let tokens: usize = running
            .into_iter()
            .map(|task| self.runtime.block_on(task).expect("a task").expect("completions")[0].tokens.len())
            .sum();
        tokens as f64 / start.elapsed().as_secs_f64()
    }

    /// Tokens per second over HTTP.
    fn served(&self, round: u32) -> f64 {
        let start = Instant::now();
        let tokens: usize = std::thread::scope(|scope| {
            let running: Vec<_> =
                (0..LOAD).map(|number| scope.spawn(move || self.complete(round, number))).collect();
            running.into_iter().map(|client| client.join().expect("a client")).sum()
        });
        tokens as f64 / start.elapsed().as_secs_f64()
    }

    /// Sends a request and returns the number of tokens of its answer.
    fn complete(&self, round: u32, number: u32) -> usize {
        let body = self.body(&Self::prompt(round, number), NEW, false).to_string();
        let mut connection = self.send(&body);
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("an answer");
        let json = answer.split_once("\r\n\r\n").expect("a body").1;
        let json: Value = serde_json::from_str(json).expect("JSON");
        json["choices"][0]["token_ids"].as_array().expect("tokens").len()
    }

    fn send(&self, body: &str) -> TcpStream {
        let mut connection = TcpStream::connect(self.address).expect("a connection");
        connection.set_nodelay(true).expect("a connection");
        let head = format!(
            "POST /v1/completions HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        connection.write_all(format!("{head}{body}").as_bytes()).expect("a connection");
        connection
    }

    /// Time from sending a request to the event with its first token. Reads the stream to its end.
    fn first_token(&self, round: u32, number: u32) -> Duration {
        let body = self.body(&Self::prompt(round, number), 2, true).to_string();
        let start = Instant::now();
        let mut reader = BufReader::new(self.send(&body));
        let mut line = String::new();
        while !line.starts_with("data: ") {
            line.clear();
            assert!(reader.read_line(&mut line).expect("an event") > 0, "the stream has ended");
        }
        let elapsed = start.elapsed();
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).expect("the rest");
        elapsed
    }

    /// Time of a prefill by the engine alone.
    fn prefill(&self, round: u32) -> Duration {
        let start = Instant::now();
        let request = self.request(Self::prompt(round, 0), 1);
        self.runtime.block_on(self.engine.generate(request)).expect("a completion");
        start.elapsed()
    }

    /// Time to the first token beside that of the engine: a prefill when idle, and a prefill and two steps with other
    /// requests in progress.
    fn first_tokens(&self) {
        let seconds = |duration: Duration| duration.as_secs_f64();
        let (mut alone, mut idle, mut steps, mut loaded) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for cycle in 0..CYCLES {
            let rounds = 100 + cycle * 4 * STREAMS;
            for at in 0..STREAMS {
                alone.push(seconds(self.prefill(rounds + at)));
                idle.push(seconds(self.first_token(rounds + STREAMS + at, 0)));
            }
            let busy = self.busy(rounds + 2 * STREAMS);
            for at in 0..STREAMS {
                let step = self.step();
                steps.push(seconds(step));
                // Requests arrive at any time of a step.
                std::thread::sleep(step * at / STREAMS);
                loaded.push(seconds(self.first_token(rounds + 3 * STREAMS + at, 0)));
            }
            drop(busy);
        }
        let prefill = median(alone.iter().copied());
        print(json!({
            "name": "first token/idle",
            "served_ms": median(idle.iter().copied()) * 1e3,
            "prefill_ms": prefill * 1e3,
            "ratio": median(idle.iter().zip(&alone).map(|(idle, alone)| idle / alone)),
        }));
        let (step, loaded) = (median(steps.into_iter()), median(loaded.into_iter()));
        let allowed = prefill + 2.0 * step;
        print(json!({
            "name": "first token/64",
            "served_ms": loaded * 1e3,
            "step_ms": step * 1e3,
            "prefill_and_two_steps_ms": allowed * 1e3,
            "ratio": loaded / allowed,
        }));
    }

    /// Requests for long completions in all slots but the one for the request that is measured. The server ends them
    /// when their connections close.
    fn busy(&self, round: u32) -> Vec<TcpStream> {
        let before = self.engine.stats().prefills;
        let body = |number| {
            let mut prompt = Self::prompt(round, number);
            prompt.truncate(BUSY_PROMPT);
            self.body(&prompt, 2000, false).to_string()
        };
        let connections = (1..LOAD).map(|number| self.send(&body(number))).collect();
        while self.engine.stats().prefills < before + u64::from(LOAD) - 1 {
            std::thread::sleep(Duration::from_millis(10));
        }
        connections
    }

    /// Mean time of four steps of the engine.
    fn step(&self) -> Duration {
        let wait = |count: u64| {
            while self.engine.stats().steps < count {
                std::thread::sleep(Duration::from_micros(200));
            }
            Instant::now()
        };
        let first = self.engine.stats().steps + 1;
        let begin = wait(first);
        (wait(first + 4) - begin) / 4
    }
}
