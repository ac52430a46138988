//! The viewer over a large run: a million episodes in ten thousand steps, which are generated first.
//!
//! `cargo bench -p pl-viewer` prints the times after which pages are drawn in Chromium, if there is one, then those of
//! requests, and the memory of this process, which is the server. With a number as its argument, the run has that many steps. `PL_HOST_LARGE_RUN` names a folder to keep the run in.

#![allow(clippy::unwrap_used, reason = "a bench: a panic is how it fails")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use pl_record::{Lock, RunFolder, TraceFile, Traces};
use pl_testing::chromium::Page;
use pl_types::TrainedCompletion;
use pl_viewer::{AccessToken, SettingDoc, TokenTexts, Unavailable, Viewer, Workflows, serve};
use serde_json::{Value, json};

const STEPS: u64 = 10_000;
const EPISODES: u32 = 100;

/// Workflows without models.
struct NoWorkflows;

impl Workflows for NoWorkflows {
    fn tokenizer(&self, _: &Path, _: Option<&str>, _: &str) -> Result<Arc<dyn TokenTexts>, Unavailable> {
        Err(Unavailable("there is no model".into()))
    }

    fn gradient(
        &self,
        _: &Path,
        _: &str,
        _: &TrainedCompletion,
        _: &[f32],
        _: usize,
    ) -> Result<Value, Unavailable> {
        Err(Unavailable("there is no model".into()))
    }

    fn setting_docs(&self) -> Vec<SettingDoc> {
        Vec::new()
    }

    fn graph(&self, _: &Path) -> Result<Value, Unavailable> {
        Err(Unavailable("there is no graph".into()))
    }

    fn design_graph(&self, _: &Path, _: Option<&str>, _: &str) -> Result<Value, Unavailable> {
        Err(Unavailable("no graph in this test".into()))
    }

    fn best_designs(&self, _: &Path, _: usize) -> Result<Vec<Value>, Unavailable> {
        Ok(Vec::new())
    }
}

fn main() {
    let steps = std::env::args().skip(1).find_map(|argument| argument.parse().ok()).unwrap_or(STEPS);
    let kept = std::env::var_os("PL_HOST_LARGE_RUN").map(PathBuf::from);
    let temporary = tempfile::tempdir().unwrap();
    let runs = kept.unwrap_or_else(|| temporary.path().to_path_buf());
    if !runs.join("large").exists() {
        let started = Instant::now();
        generate(&runs.join("large"), steps);
        println!("generated {steps} steps of {EPISODES} episodes in {:.0?}", started.elapsed());
    }
    println!("{:.1} MB on disk", bytes_of(&runs.join("large")) as f64 / 1e6);
    let middle = steps / 2;
    measure_pages(&Client::start(&runs), middle);
    let server = Client::start(&runs);
    println!("open {}", server.page());
    measure("list of runs", || drop(server.get("/api/runs")));
    for log in ["metrics", "timings"] {
        measure(&format!("curves of {log}"), || {
            drop(server.get(&format!("/api/curves?run=large&log={log}&points=400")));
        });
    }
    measure("the whole log", || server.log("metrics"));
    measure("first page of episodes", || drop(server.get("/api/episodes?run=large&descending=true")));
    measure("page in the middle", || {
        drop(server.get(&format!("/api/episodes?run=large&from={middle}&to={middle}")));
    });
    measure("an episode, first time", || drop(server.get("/api/episode?run=large&episode=7.50.0")));
    measure("another episode", || {
        drop(server.get(&format!("/api/episode?run=large&episode={middle}.99.0")));
    });
    measure("by reward, first time", || server.all("sort=reward&descending=true"));
    for sort in ["reward", "tokens", "turns", "task", "end"] {
        measure(&format!("by {sort}, again"), || server.all(&format!("sort={sort}&descending=true")));
    }
    measure("solved, by reward", || server.all("outcome=solved&sort=reward"));
    measure("of one task, by reward", || server.all("task=train-42&sort=reward"));
    measure("by the reward of one agent", || server.all("agent=tool&sort=reward&descending=true"));
    measure("the last page by reward", || server.all("sort=reward&offset=999900"));
    let peak = status("VmHWM");
    println!("{:<36} {:>9.0} MB now, {peak:.0} MB at most", "memory of the server", status("VmRSS"));
    if std::env::var_os("PL_HOST_LARGE_WAIT").is_some() {
        std::io::stdin().read_exact(&mut [0]).unwrap();
    }
}

/// Times from the request of the page's address to what it shows, each in a page of its own. Nothing is cached before the
/// first one.
fn measure_pages(server: &Client, step: u64) {
    let pages = [
        ("curves of the run", "runs".to_owned(), ".chart path.line"),
        ("newest episodes", "episodes?run=large".to_owned(), "table.episodes tbody a"),
        ("an episode", format!("episode?run=large&episode={step}.50.0"), ".turn"),
    ];
    for (name, hash, element) in pages {
        let Some(mut page) = Page::open(&format!("{}#{hash}", server.page()), 1200, 900) else { return };
        page.wait_for(&format!("document.querySelector('{element}')"));
        let drawn = page.eval("performance.now()").as_f64().unwrap();
        let paint = page.eval("performance.getEntriesByName('first-contentful-paint')[0]?.startTime");
        println!(
            "{:<36} {drawn:>9.1} ms, first paint {:.1} ms",
            format!("browser: {name}"),
            paint.as_f64().unwrap()
        );
    }
}

fn measure(name: &str, work: impl FnOnce()) {
    let started = Instant::now();
    work();
    println!("{name:<36} {:>9.1} ms", started.elapsed().as_secs_f64() * 1e3);
}

/// Memory of this process in MB.
fn status(field: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1e3
}

fn bytes_of(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| match entry.file_type().unwrap().is_dir() {
            true => bytes_of(&entry.path()),
            false => entry.metadata().unwrap().len(),
        })
        .sum()
}

struct Client {
    address: SocketAddr,
    token: String,
}

impl Client {
    /// Starts a server.
    fn start(runs: &Path) -> Client {
        let viewer = Viewer::new(vec![runs.to_path_buf()], Arc::new(NoWorkflows));
        let token = AccessToken::random();
        let (sender, address) = std::sync::mpsc::channel();
        let shown = token.as_str().to_owned();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                serve(listener, viewer, token, std::future::pending()).await.unwrap();
            });
        });
        Client { address: address.recv().unwrap(), token: shown }
    }

    /// Address of the page.
    fn page(&self) -> String {
        format!("http://{}/?token={}", self.address, self.token)
    }

    fn get(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(self.address).unwrap();
        let head = format!(
            "GET {path} HTTP/1.1\r\nConnection: close\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\r\n",
            self.address, self.token
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let body = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
        let value: Value = serde_json::from_slice(&answer[body..]).unwrap();
        assert!(value.get("error").is_none(), "{path}: {value}");
        value
    }

    fn log(&self, log: &str) {
        let (mut offset, mut line) = (0, 0);
        loop {
            let piece = self.get(&format!("/api/log?run=large&log={log}&offset={offset}&line={line}"));
            (offset, line) = (piece["offset"].as_u64().unwrap(), piece["line"].as_u64().unwrap());
            if piece["more"] == false {
                break;
            }
        }
    }

    /// Asks until every file was read, as the page does.
    fn all(&self, query: &str) {
        while self.get(&format!("/api/episodes?run=large&{query}"))["unread"] != 0 {}
    }
}

fn generate(root: &Path, steps: u64) {
    let lock = Lock {
        version: "0.1.0".into(),
        contract: "0.1".into(),
        seed: 0,
        date: None,
        device: "cpu".into(),
        threads: 1,
        plugins: [].into(),
        grants: [].into(),
        models: [].into(),
        dtypes: [].into(),
        starts: [].into(),
        data: [].into(),
        images: [].into(),
        permissions: [].into(),
    };
    let workflow = json!({ "folder": "/", "workflow": {
        "name": "large", "agents": [{ "name": "tool" }, { "name": "reason" }], "train": { "steps": steps },
    }});
    let mut folder = RunFolder::create(root, "workflow large\n", &workflow, &lock).unwrap();
    let traces = Traces::for_run(root);
    for step in 1..=steps {
        let episodes: Vec<Value> = (0..EPISODES).map(|task| episode(step, task)).collect();
        traces.write(&TraceFile { step, evaluation: None }, &episodes).unwrap();
        folder.append_metrics(step, &metrics(step, steps)).unwrap();
        let seconds = json!({ "play": 1.0, "wait": 1.0, "train": 2.0, "evaluate": 0.0 });
        folder.append_timings(step, &json!({ "step": step, "seconds": seconds })).unwrap();
    }
    folder.sync().unwrap();
}

fn metrics(step: u64, steps: u64) -> Value {
    let share = step as f64 / steps as f64;
    let noise = f64::from(step as u32 * 7919 % 1000) / 1e4;
    let means = json!({
        "completions": 200, "rollout_success": share * 0.8 + noise, "reward": share + noise, "team_reward": share,
        "local_reward": noise, "length": 120.5 + noise, "cut_off": noise,
    });
    let mut agent = means.clone();
    agent["by_turn"] = json!([means, means]);
    let policy = json!({
        "policy": "one", "version": step, "completions": 400, "tokens": 48_000, "trained_tokens": 40_000,
        "completion_length": 120.0, "cut_off": noise, "advantage_mean": noise, "advantage_std": 1.0 - noise,
        "optimizer_steps": 1, "skipped_steps": 0, "loss": noise, "grad_norm": 0.5 + noise, "clip_fraction": noise,
        "dual_clip_fraction": 0.0, "kl": noise / 10.0, "ratio_quantiles": [0.9 - noise, 1.0, 1.1 + noise],
        "effective_sample_size": null, "reference_kl": null, "kl_coefficient": null, "entropy": 1.5 - share,
        "max_logprob_gap": 1e-5, "close_logprobs": 1.0, "lr": 1e-5,
    });
    json!({
        "kind": "step", "step": step, "episodes": EPISODES, "failures": 0, "lost": 0,
        "rollout_success": share * 0.8 + noise, "agents": { "tool": agent, "reason": agent }, "turns": 4.0,
        "tokens": 48_000, "truncated": 0.0, "not_reproducible": 0, "transitions": 400, "groups": 100,
        "flat_groups": 10, "max_logprob_gap": 1e-5, "policies": { "coder": policy, "reasoner": policy },
    })
}

/// A compact episode of two turns.
fn episode(step: u64, task: u32) -> Value {
    let event = |visit: u32, agent: Option<&str>, kind: Value| json!({ "position": { "node_visit": visit, "agent": agent }, "kind": kind });
    let mut events = Vec::new();
    for (visit, agent) in ["tool", "reason"].into_iter().enumerate() {
        let (visit, agent) = (visit as u32, Some(agent));
        let prompt: Vec<u32> = (0..40).map(|token| token * 13 + visit).collect();
        let tokens: Vec<u32> = (0..24).map(|token| (token * task + step as u32) % 32_000).collect();
        let text = format!("step {step} task {task}: the answer is {}", task * 3);
        events.push(event(visit, agent, json!({ "prompted": { "visit": 0, "prompt": prompt } })));
        events.push(event(
            visit,
            agent,
            json!({ "completion": { "text": text, "finish": "stop", "tokens": tokens } }),
        ));
        events.push(event(visit, agent, json!({ "action": "{\"answer\":3}" })));
        let outcome =
            json!({ "done": visit == 1, "truncated": false, "facts": { "agreed": true }, "evidence": "{}" });
        events.push(event(visit, None, json!({ "outcome": outcome })));
        let reward = f64::from((task * 7 + step as u32) % 11) / 10.0;
        let local = json!([{ "agent": agent, "reward": reward, "success": reward > 0.5 }]);
        events.push(event(
            visit,
            None,
            json!({ "scores": { "team": reward, "local": local, "success": reward > 0.5 } }),
        ));
    }
    json!({
        "key": { "seed": 0, "phase": "train", "step": step, "task": task, "sample": 0, "attempt": 0 },
        "task": { "id": format!("train-{task}"), "data": "{\"question\":\"What is three times the number?\"}" },
        "mode": "flat", "candidates": 1, "events": events,
        "end": { "success": task.is_multiple_of(3), "truncated": false, "turns": 2, "tokens": 48 },
    })
}
