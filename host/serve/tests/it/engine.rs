//! A scripted engine and a server over it.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use pl_model::{ChatTemplate, Tokenizer};
use pl_serve::{
    AdapterError, AdapterLoader, LoadedAdapter, ServedModel, ServerConfig, ServerLimits, Service, Team,
};
use pl_types::{Chunk, Completion, Finish, Generate, GenerateError, Request};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::control::Controlled;

/// Policy that completes a prompt with "abcdef…", shifted by its seed, and waits where the prompt has a `~`.
pub const LETTERS: usize = 0;
/// Policy whose engine fails.
pub const BROKEN: usize = 1;
/// Policy that answers with [`CALL`].
pub const CALLING: usize = 2;

/// A tool call, as models without a form of their own write it.
pub const CALL: &str = r#"{"name": "add", "arguments": {"a": 1}}"#;

/// Tokens of the scripted completions are those of this text.
const TEXT: &str = "abcdefghij";

/// An engine that completes every prompt with the letters from the seed's first byte on.
#[derive(Default)]
pub struct Scripted {
    tokens: Vec<u32>,
    /// Requests that have begun.
    pub begun: AtomicUsize,
    /// Requests that were dropped before their end.
    pub cancelled: Arc<AtomicUsize>,
    /// Token that makes a request wait for ever.
    wait: u32,
    /// Token that is refused, as those outside the vocabulary are.
    refused: u32,
}

/// Counts a request as cancelled unless it has ended.
struct Running {
    cancelled: Arc<AtomicUsize>,
    ended: bool,
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            self.cancelled.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[async_trait]
impl Generate for Scripted {
    async fn generate(&self, request: Request) -> Result<Vec<Completion>, GenerateError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let mut running = Running { cancelled: Arc::clone(&self.cancelled), ended: false };
        if request.policy == BROKEN {
            running.ended = true;
            return Err(GenerateError::Failed { policy: BROKEN, reason: "out of memory".into() });
        }
        if request.sampling.top_p == 0.0 {
            running.ended = true;
            let reason = "`top_p` is 0; it must be above 0 and at most 1".into();
            return Err(GenerateError::Request { policy: request.policy, parameter: Some("top_p"), reason });
        }
        if let Some(id) = request.prompt.iter().find(|id| **id > 9999 || **id == self.refused) {
            running.ended = true;
            let reason = format!("token {id} is outside the model's vocabulary of 9999");
            return Err(GenerateError::Request { policy: request.policy, parameter: Some("prompt"), reason });
        }
        if request.policy == CALLING && request.stop.iter().any(|stop| stop == "text") {
            running.ended = true;
            return Ok(vec![in_parts(&["It is ", "3."], &request)]);
        }
        if request.policy == CALLING {
            running.ended = true;
            return Ok(request.seeds.iter().enumerate().map(|(index, _)| call(index, &request)).collect());
        }
        let mut completions = Vec::new();
        for (index, seed) in request.seeds.iter().enumerate() {
            let first = usize::from(seed[0]) % self.tokens.len();
            let count = self.tokens.len().min(request.max_tokens as usize);
            let tokens: Vec<u32> = self.tokens.iter().cycle().skip(first).take(count).copied().collect();
            let text: String = TEXT.chars().cycle().skip(first).take(count).collect();
            let logprobs: Vec<f32> = (0..count).map(|position| -0.25 * position as f32).collect();
            let top: Vec<Vec<(u32, f32)>> = tokens
                .iter()
                .zip(&logprobs)
                .map(|(token, logprob)| vec![(*token, *logprob); request.top_logprobs.min(1)])
                .collect();
            if let Some(listener) = &request.listener {
                for (position, letter) in text.chars().enumerate() {
                    tokio::task::yield_now().await;
                    let _ = listener.send(Chunk {
                        index,
                        tokens: vec![tokens[position]],
                        logprobs: vec![logprobs[position]],
                        top: top.get(position).cloned().into_iter().collect(),
                        text: letter.into(),
                        last: position + 1 == count,
                    });
                }
            }
            let finish = if count < self.tokens.len() { Finish::Length } else { Finish::Stop };
            let support = request.sampling.truncates().then(|| vec![vec![1, 2]; count]);
            let values = None;
            let (version, version_changes) = (3, Vec::new());
            completions.push(Completion {
                tokens,
                logprobs,
                support,
                values,
                top,
                text,
                finish,
                version,
                version_changes,
            });
        }
        if request.prompt.contains(&self.wait) {
            std::future::pending::<()>().await;
        }
        running.ended = true;
        Ok(completions)
    }
}

/// Returns a completion that comes in parts of a token each.
fn in_parts(parts: &[&str], request: &Request) -> Completion {
    for (at, part) in parts.iter().enumerate() {
        if let Some(listener) = &request.listener {
            let (top, text, last) = (Vec::new(), (*part).to_owned(), at + 1 == parts.len());
            let _ = listener.send(Chunk { index: 0, tokens: vec![1], logprobs: vec![-0.5], top, text, last });
        }
    }
    completed(parts.concat(), parts.len(), Finish::Stop)
}

/// Returns a completion that is a tool call, or the beginning of one if the request has room for one token.
fn call(index: usize, request: &Request) -> Completion {
    let is_cut = request.max_tokens == 1;
    let text = if is_cut { &CALL[..7] } else { CALL };
    if let Some(listener) = &request.listener {
        let (tokens, logprobs, text) = (vec![1], vec![-0.5], text.to_owned());
        let _ = listener.send(Chunk { index, tokens, logprobs, top: Vec::new(), text, last: true });
    }
    completed(text.to_owned(), 1, if is_cut { Finish::Length } else { Finish::Stop })
}

fn completed(text: String, count: usize, finish: Finish) -> Completion {
    Completion {
        tokens: vec![1; count],
        logprobs: vec![-0.5; count],
        support: None,
        values: None,
        top: Vec::new(),
        text,
        finish,
        version: 3,
        version_changes: Vec::new(),
    }
}

fn tokenizer() -> Tokenizer {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tiny/tokenizer.json");
    Tokenizer::from_json("tiny", &std::fs::read(path).unwrap(), &[]).unwrap()
}

const TEMPLATE: &str = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}\
                        {% if add_generation_prompt %}assistant: {% endif %}";

/// The template of the policy with tools.
const TOOL_TEMPLATE: &str = "{% for tool in tools or [] %}{{ tool.function.name }};{% endfor %}\
                             {% for message in messages %}{{ message.role }}: {{ message.content }}\
                             {% for call in message.tool_calls or [] %}{{ call.function.name }}\
                             ({{ call.function.arguments.a }}){% endfor %}|{% endfor %}assistant: ";

/// A running server.
pub struct Server {
    pub address: SocketAddr,
    pub engine: Arc<Scripted>,
    pub tokenizer: Tokenizer,
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
}

/// Loads every folder but `/missing` as the scripted policy.
struct Adapters;

#[async_trait]
impl AdapterLoader for Adapters {
    async fn load(&self, base: usize, folder: &Path, _: u64) -> Result<LoadedAdapter, AdapterError> {
        match folder.to_str() {
            Some("/missing") => Err(AdapterError("/missing: there is no such folder".into())),
            _ => Ok(LoadedAdapter { policy: base, checksum: "5eed".into() }),
        }
    }

    async fn unload(&self, _: usize) -> Result<(), AdapterError> {
        Ok(())
    }
}

/// A response with its body as JSON.
#[derive(Debug)]
pub struct Answered {
    pub status: u16,
    pub headers: ureq::http::HeaderMap,
    pub text: String,
}

impl Answered {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// The JSON of all server-sent events but the last, which must be `[DONE]`.
    pub fn events(&self) -> Vec<Value> {
        let mut data: Vec<&str> = self.text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        assert_eq!(data.pop(), Some("[DONE]"), "{}", self.text);
        data.into_iter().map(|data| serde_json::from_str(data).unwrap()).collect()
    }
}

impl Server {
    pub fn start() -> Server {
        Self::with(ServerConfig::default(), None)
    }

    /// A server whose clients may load adapters.
    pub fn with_adapters() -> Server {
        Self::build(ServerConfig::default(), None, true)
    }

    pub fn with(config: ServerConfig, team: Option<Arc<dyn Team>>) -> Server {
        Self::build(config, team, false)
    }

    fn build(config: ServerConfig, team: Option<Arc<dyn Team>>, adapters: bool) -> Server {
        let runtime = Runtime::new().unwrap();
        let shared = Arc::new(tokenizer());
        let template =
            |text: &str| Arc::new(ChatTemplate::new("tiny", Some(text.to_owned()), None, None).unwrap());
        let engine = Arc::new(Scripted {
            tokens: shared.encode(TEXT).unwrap(),
            wait: shared.encode("~").unwrap()[0],
            refused: shared.encode("^").unwrap()[0],
            ..Scripted::default()
        });
        let model = |name: &str, policy, text: &str| ServedModel {
            name: name.to_owned(),
            policy,
            tokenizer: Arc::clone(&shared),
            template: template(text),
            max_positions: 100,
            date: "2024-02-29".parse().unwrap(),
            base: "tiny".to_owned(),
            model_hash: "c0ffee".to_owned(),
            is_adapter: false,
        };
        let models = vec![
            model("letters", LETTERS, TEMPLATE),
            model("broken", BROKEN, TEMPLATE),
            model("calling", CALLING, TOOL_TEMPLATE),
        ];
        let team = team.map(|team| ("team".to_owned(), team));
        let service = Service::new(models, team, Arc::clone(&engine) as Arc<dyn Generate>, config);
        let service = service.with_hosted(vec!["judge".to_owned()]);
        let service = match adapters {
            true => service.with_adapters(Arc::new(Adapters)).with_control(Arc::new(Controlled::default())),
            false => service,
        };
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        runtime.spawn(async move {
            pl_serve::serve(listener, service, async move { drop(stopped.await) }).await.unwrap();
        });
        Server { address, engine, tokenizer: tokenizer(), runtime: Some(runtime), stop: Some(stop) }
    }

    /// A server that takes `requests` at a time.
    pub fn with_requests(requests: usize) -> Server {
        let limits = ServerLimits { requests, ..ServerLimits::default() };
        Self::with(ServerConfig { key: None, limits }, None)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn post(&self, path: &str, body: &Value) -> Answered {
        self.send(path, &body.to_string(), &[("content-type", "application/json")])
    }

    pub fn send(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> Answered {
        let mut request = agent().post(self.url(path));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answered(request.send(body).unwrap())
    }

    pub fn get(&self, path: &str) -> Answered {
        answered(agent().get(self.url(path)).call().unwrap())
    }

    /// Asks the server to stop, without waiting for it.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits until `count` requests have reached the engine.
    pub fn wait_for_requests(&self, count: usize) {
        wait_until(|| self.engine.begun.load(Ordering::SeqCst) >= count);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// Waits for a condition, for a minute at most.
pub fn wait_until(mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("waited for a minute");
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    config.timeout_global(Some(Duration::from_secs(120))).build().into()
}

fn answered(mut response: ureq::http::Response<ureq::Body>) -> Answered {
    Answered {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        text: response.body_mut().read_to_string().unwrap(),
    }
}
