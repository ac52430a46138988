//! A server with vLLM's API whose model is a fixed distribution, and which fails on demand.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pl_servers::{
    Backoff, Fleet, FleetConfig, FleetEvent, Probe, RemoteModel, ServerError, ServerKind, SleepLevel,
    TokenRequest,
};
use pl_types::Sampling;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Tokens that the model draws from: token `i` has the logit `-i / 2`.
const TOKENS: u32 = 40;

/// Failure of a server on a request for completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The connection ends before the answer.
    Drops,
    /// The connection ends within the answer.
    HalfAnswer,
    /// This status, with this `Retry-After` in seconds.
    Status(u16, Option<u64>),
    /// Status 429, because what was paid for is used up.
    NoQuota,
    /// A log-probability is missing.
    MissingLogprob,
    /// A completion is missing.
    MissingChoice,
    OutsideVocabulary,
    NotFinite,
    /// Another model answers.
    OtherModel,
    /// No answer at all.
    Hangs,
    /// Log-probabilities before the temperature.
    RawLogprobs,
    /// Log-probabilities that a new computation doesn't confirm.
    Unstable,
}

/// Settings of a server.
#[derive(Debug, Clone, Default)]
pub struct Script {
    pub fault: Option<Fault>,
    /// The fault strikes at each request for completions whose number is a multiple of this. 0: never.
    pub every: usize,
    /// Number of HTTP requests, of any kind, that get status 503 first.
    pub starting: usize,
    pub key: Option<&'static str>,
    /// True if adapters can be loaded.
    pub adapters: bool,
    /// True if the weights of the model can be replaced.
    pub weights: bool,
    /// Time that a completion takes.
    pub delay: Duration,
    /// Answer to conversations. Null: the server has no model for them.
    pub chat: Value,
}

#[derive(Default)]
pub struct State {
    /// HTTP requests of any kind.
    pub requests: AtomicUsize,
    /// Requests for completions.
    pub completions: AtomicUsize,
    /// Requests for completions that got a whole, right answer.
    pub answered: AtomicUsize,
    pub adapters: Mutex<HashSet<String>>,
    /// Loads of adapters.
    pub loads: AtomicUsize,
    /// Commands that concern the weights of the model, in order.
    pub commands: Mutex<Vec<String>>,
    /// Version of the weights of the model. Empty until one is given.
    pub version: Mutex<String>,
    /// Level at which the server sleeps. 0: it is awake.
    pub asleep: AtomicUsize,
}

pub struct Server {
    pub address: String,
    pub state: Arc<State>,
    task: JoinHandle<()>,
}

impl Server {
    pub async fn start(script: Script) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Server::on(listener, script)
    }

    /// Starts at an address that an earlier server had.
    pub async fn restart(address: &str, script: Script) -> Server {
        let listener = TcpListener::bind(address.trim_start_matches("http://")).await.unwrap();
        Server::on(listener, script)
    }

    fn on(listener: TcpListener, script: Script) -> Server {
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            // Dropped with the task, which ends all connections.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, script.clone(), Arc::clone(&shared)));
            }
        });
        Server { address, state, task }
    }

    /// Ends the server and its connections.
    pub async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    pub fn answered(&self) -> usize {
        self.state.answered.load(Ordering::SeqCst)
    }
}

/// Answers the requests of one connection.
async fn serve(stream: TcpStream, script: Script, state: Arc<State>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let (mut head, mut length, mut key) = (String::new(), 0, None);
        stream.read_line(&mut head).await.ok().filter(|read| *read > 0)?;
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await.ok()?;
            let line = line.trim();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(": ")?;
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().ok()?,
                "authorization" => key = Some(value.to_owned()),
                _ => {}
            }
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.ok()?;
        let path = head.split(' ').nth(1)?;
        let number = state.requests.fetch_add(1, Ordering::SeqCst);
        let (status, retry_after, answer, half) = if number < script.starting {
            (503, None, json!({ "error": { "message": "loading" } }), false)
        } else if script.key.is_some_and(|wanted| key != Some(format!("Bearer {wanted}"))) {
            (401, None, json!({ "error": { "message": "no key" } }), false)
        } else {
            answer(path, &body, &script, &state).await?
        };
        let text = if status == 204 { String::new() } else { answer.to_string() };
        let retry_after = retry_after.map_or(String::new(), |wait: u64| format!("retry-after: {wait}\r\n"));
        let head = format!("HTTP/1.1 {status} X\r\n{retry_after}content-length: {}\r\n\r\n", text.len());
        let sent = if half { &text[..text.len() / 2] } else { &text };
        stream.write_all(format!("{head}{sent}").as_bytes()).await.ok()?;
        if half {
            return None;
        }
    }
}

type Reply = (u16, Option<u64>, Value, bool);

/// Returns status, `Retry-After`, body, and true to send only half of it. `None` ends the connection.
async fn answer(path: &str, body: &[u8], script: &Script, state: &State) -> Option<Reply> {
    let ok = |value: Value| Some((200, None, value, false));
    let refuse = |status: u16, message: &str| Some((status, None, json!({ "message": message }), false));
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    match path {
        "/version" => ok(json!({ "version": "0.33.0" })),
        "/v1/models" => ok(json!({ "data": [{ "id": "base", "max_model_len": 4096 }] })),
        "/v1/load_lora_adapter" if script.adapters => {
            state.loads.fetch_add(1, Ordering::SeqCst);
            let name = body["lora_name"].as_str().unwrap().to_owned();
            match state.adapters.lock().unwrap().insert(name) {
                true => ok(json!("Success")),
                false => refuse(400, "it has already been loaded"),
            }
        }
        "/v1/unload_lora_adapter" => {
            state.adapters.lock().unwrap().remove(body["lora_name"].as_str().unwrap());
            ok(json!("Success"))
        }
        "/weight_info" if script.weights => ok(json!({ "weight_version": *state.version.lock().unwrap() })),
        "/update_weight_version" if script.weights => {
            let version = body["new_version"].as_str().unwrap().to_owned();
            state.commands.lock().unwrap().push(format!("version {version}"));
            *state.version.lock().unwrap() = version;
            ok(json!({ "success": true }))
        }
        "/pause?mode=wait&clear_cache=true" | "/resume" if script.weights => {
            state.commands.lock().unwrap().push(path[1..].to_owned());
            ok(json!({ "status": "done" }))
        }
        "/is_sleeping" if script.weights => {
            ok(json!({ "is_sleeping": state.asleep.load(Ordering::SeqCst) > 0 }))
        }
        "/sleep?level=1"
        | "/sleep?level=2"
        | "/wake_up"
        | "/wake_up?tags=weights"
        | "/wake_up?tags=kv_cache"
            if script.weights =>
        {
            state.commands.lock().unwrap().push(path[1..].to_owned());
            let level = match path {
                "/sleep?level=1" => 1,
                "/sleep?level=2" => 2,
                // Still without its cache.
                "/wake_up?tags=weights" => 1,
                _ => 0,
            };
            state.asleep.store(level, Ordering::SeqCst);
            ok(json!({}))
        }
        "/collective_rpc" if script.weights => {
            let (method, path) =
                (&body["method"], body["kwargs"]["weights_path"].as_str().unwrap_or("its own folder"));
            state.commands.lock().unwrap().push(format!("{} {path}", method.as_str().unwrap()));
            if path.ends_with("missing") {
                refuse(500, "no such folder")
            } else {
                ok(json!({ "results": [null] }))
            }
        }
        "/v1/chat/completions" if script.chat.is_null() => refuse(404, "no such model"),
        "/v1/chat/completions" => ok(script.chat.clone()),
        "/inference/v1/generate" => {
            let model = body["model"].as_str().unwrap();
            if state.asleep.load(Ordering::SeqCst) > 0 {
                return refuse(500, "asleep");
            }
            if model != "base" && !state.adapters.lock().unwrap().contains(model) {
                return refuse(404, "no such model");
            }
            complete(&body, script, state).await
        }
        _ => refuse(404, "no such path"),
    }
}

async fn complete(body: &Value, script: &Script, state: &State) -> Option<Reply> {
    let number = state.completions.fetch_add(1, Ordering::SeqCst) + 1;
    let fault = script.fault.filter(|_| script.every > 0 && number.is_multiple_of(script.every));
    tokio::time::sleep(script.delay).await;
    let params = &body["sampling_params"];
    if params["max_tokens"] == 4000 {
        return Some((400, None, json!({ "error": { "message": "too long" } }), false));
    }
    let prompt: Vec<u32> = serde_json::from_value(body["token_ids"].clone()).unwrap();
    // Another temperature draws another token.
    let shift = u64::from(params["temperature"] != 1.0) * 13;
    let seed = params["seed"].as_u64().unwrap() + shift;
    let tokens = tokens(&prompt, seed, params["max_tokens"].as_u64().unwrap());
    let temperature = match fault {
        Some(Fault::RawLogprobs) => 1.0,
        _ => params["temperature"].as_f64().unwrap(),
    };
    let shift = if fault == Some(Fault::Unstable) { number as f64 / 10.0 } else { 0.0 };
    let logprob = |token: u32| logprob(token, temperature) - shift;
    // As vLLM lists them: the sampled token, and the likeliest others.
    let count = params["logprobs"].as_u64().unwrap() as u32;
    let top = |token: u32| -> Vec<Value> {
        let others = (0..TOKENS).filter(|id| *id != token).take(count.saturating_sub(1) as usize);
        let list = [token].into_iter().chain(others).take(count as usize);
        list.map(|id| json!({ "token": format!("token_id:{id}"), "logprob": logprob(id) })).collect()
    };
    let mut content: Vec<Value> = tokens
        .iter()
        .map(|token| json!({ "token_id": token, "logprob": logprob(*token), "top_logprobs": top(*token) }))
        .collect();
    let mut ids = tokens;
    let mut model = body["model"].clone();
    match fault {
        Some(Fault::Drops) => return None,
        Some(Fault::Hangs) => std::future::pending().await,
        Some(Fault::Status(status, retry_after)) => {
            return Some((status, retry_after, json!({ "detail": "not now" }), false));
        }
        Some(Fault::NoQuota) => {
            let error = json!({ "message": "You exceeded your quota", "code": "insufficient_quota" });
            return Some((429, None, json!({ "error": error }), false));
        }
        Some(Fault::MissingLogprob) => drop(content.pop()),
        Some(Fault::OutsideVocabulary) => {
            content[0]["token_id"] = json!(5000);
            ids[0] = 5000;
        }
        Some(Fault::NotFinite) => content[0]["logprob"] = Value::Null,
        Some(Fault::OtherModel) => model = json!("another"),
        _ => {}
    }
    let mut choice = json!({
        "index": 0, "token_ids": ids, "logprobs": { "content": content }, "finish_reason": "length",
    });
    if script.weights {
        choice["weight_versions"] = json!([{ "version": *state.version.lock().unwrap() }]);
    }
    let choices = if fault == Some(Fault::MissingChoice) { json!([]) } else { json!([choice]) };
    let half = fault == Some(Fault::HalfAnswer);
    if fault.is_none() {
        state.answered.fetch_add(1, Ordering::SeqCst);
    }
    Some((200, None, json!({ "model": model, "choices": choices }), half))
}

/// Tokens that a prompt and a seed stand for.
fn tokens(prompt: &[u32], seed: u64, max_tokens: u64) -> Vec<u32> {
    let sum: u64 = prompt.iter().map(|id| u64::from(*id)).sum();
    (0..max_tokens)
        .map(|position| ((sum * 31 + seed % 1009 + position * 7) % u64::from(TOKENS)) as u32)
        .collect()
}

fn logprob(token: u32, temperature: f64) -> f64 {
    let logit = |id: u32| -f64::from(id) / 2.0 / temperature;
    logit(token) - (0..TOKENS).map(|id| logit(id).exp()).sum::<f64>().ln()
}

/// Fleet of some servers, with short waiting times.
pub fn config(servers: &[&Server]) -> FleetConfig {
    FleetConfig {
        name: "fleet".into(),
        addresses: servers.iter().map(|server| server.address.clone()).collect(),
        kind: ServerKind::Vllm,
        key: None,
        timeout: Duration::from_secs(20),
        connections: 16,
        retries: 3,
        hedge_after: None,
        sleep: SleepLevel::Never,
        backoff: Backoff { shortest: Duration::from_millis(2), longest: Duration::from_millis(40) },
    }
}

pub fn probe() -> Vec<Probe> {
    vec![Probe { model: RemoteModel::Base("".into()), prompt: (1..9).collect(), vocab: 1000 }]
}

/// Events of a fleet so far.
pub type Events = Arc<Mutex<Vec<FleetEvent>>>;

pub async fn connect(config: FleetConfig, probes: Vec<Probe>) -> (Result<Fleet, ServerError>, Events) {
    let events = Events::default();
    let sink = Arc::clone(&events);
    let fleet = Fleet::connect(config, probes, Arc::new(move |event| sink.lock().unwrap().push(event))).await;
    (fleet, events)
}

pub fn request(number: u32) -> TokenRequest {
    TokenRequest {
        model: RemoteModel::Base("".into()),
        prompt: vec![number, number + 1].into(),
        seeds: vec![[number as u8; 32], [number as u8 ^ 0xff; 32]],
        max_tokens: 1 + number % 3,
        sampling: Sampling::default(),
        stop: Arc::new([]),
        stop_ids: Arc::new([]),
        top_logprobs: 0,
        vocab: 1000,
        needs_support: false,
    }
}

/// Sends requests side by side and checks the tokens of each answer.
pub async fn generate_all(fleet: &Fleet, numbers: std::ops::Range<u32>) {
    let send = |number: u32| async move {
        let request = request(number);
        let completions = fleet.generate(&request).await.unwrap_or_else(|e| panic!("request {number}: {e}"));
        assert_eq!(completions.len(), request.seeds.len());
        for (completion, seed) in completions.iter().zip(&request.seeds) {
            let seed = u64::from_le_bytes(seed[..8].try_into().unwrap()) & i64::MAX as u64;
            assert_eq!(completion.tokens, tokens(&request.prompt, seed, u64::from(request.max_tokens)));
            let expected: Vec<f32> =
                completion.tokens.iter().map(|token| logprob(*token, 1.0) as f32).collect();
            assert_eq!(completion.logprobs, expected);
        }
    };
    futures::future::join_all(numbers.map(send)).await;
}
