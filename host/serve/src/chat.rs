//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures::StreamExt;
use pl_model::ChatMessage;
use pl_types::{Completion, Finish, Request};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::body;
use crate::episode;
use crate::error::ApiError;
use crate::logprobs::{self, Tokens};
use crate::models::ServedModel;
use crate::response;
use crate::sampling::{SamplingFields, unsupported};
use crate::service::{Asked, Permit, Service, unix_time};
use crate::stream::{self, Generated};
use crate::tool_calls::{self, MessageToolCall};

/// Body of a request.
#[derive(Debug, Deserialize)]
pub(crate) struct ChatRequest {
    pub(crate) model: Option<String>,
    pub(crate) messages: Vec<Message>,
    #[serde(default)]
    pub(crate) tools: Vec<Value>,
    tool_choice: Option<Value>,
    #[serde(default)]
    pub(crate) stream: bool,
    #[serde(default)]
    pub(crate) stream_options: StreamOptions,
    #[serde(default)]
    pub(crate) logprobs: bool,
    #[serde(default)]
    top_logprobs: usize,
    /// Adds the token ids of the prompt and of the completions.
    #[serde(default)]
    pub(crate) return_token_ids: bool,
    #[serde(default)]
    pub(crate) chat_template_kwargs: TemplateOptions,
    #[serde(skip)]
    pub(crate) sampling: SamplingFields,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct StreamOptions {
    #[serde(default)]
    pub(crate) include_usage: bool,
}

/// Variables of the chat template.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct TemplateOptions {
    pub(crate) enable_thinking: Option<bool>,
}

/// A message of a conversation.
#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    pub(crate) role: String,
    content: Option<Content>,
    name: Option<String>,
    tool_call_id: Option<String>,
    #[serde(default)]
    tool_calls: Vec<MessageToolCall>,
}

/// Roles of messages. Templates write a role as it is, between the parts of a control token in some (`<|user|>`): another
/// word could make another token.
const ROLES: [&str; 9] = [
    "system",
    "developer",
    "user",
    "assistant",
    "tool",
    // Of earlier versions of OpenAI's API, of Llama's, GLM's and Gemma's templates.
    "function",
    "ipython",
    "observation",
    "model",
];

/// Content of a message: a text, or a list of parts.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of parts, each with a `type`")]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

/// Fields of this path alone that would change the result and that nothing here implements, each with the value that asks for
/// nothing.
fn unsupported_in_chats() -> [(&'static str, Value); 4] {
    [
        ("functions", json!([])),
        ("function_call", json!("auto")),
        ("modalities", json!(["text"])),
        ("audio", Value::Null),
    ]
}

pub(crate) async fn completions(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let unsupported = [&*unsupported(), &unsupported_in_chats()].concat();
    let body = body::object(&headers, &bytes, &unsupported)?;
    let chat = ChatRequest { sampling: body::read(&body)?, ..body::read(&body)? };
    chat.check()?;
    match service.find(chat.model.as_deref())? {
        Asked::Policy(model) => complete(&service, model, chat).await,
        Asked::Team(team) => episode::play(&service, team, chat).await,
    }
}

impl ChatRequest {
    /// Checks fields whose meaning depends on others.
    ///
    /// # Errors
    /// Status 400 if there are no messages, if `top_logprobs` is too large or lacks `logprobs`, or if `tool_choice` asks for
    /// something.
    fn check(&self) -> Result<(), ApiError> {
        if self.messages.is_empty() {
            let message = "`messages` is empty; give at least one message";
            return Err(ApiError::field("messages", message));
        }
        logprobs::check_count("top_logprobs", Some(self.top_logprobs))?;
        if self.top_logprobs > 0 && !self.logprobs {
            let message = "`top_logprobs` is given without `logprobs`; set `logprobs` to true";
            return Err(ApiError::field("top_logprobs", message));
        }
        match &self.tool_choice {
            Some(choice) if choice != "auto" && !(choice == "none" && self.tools.is_empty()) => {
                let message = "the model chooses among the tools; leave `tool_choice` out, or `tools` too";
                Err(ApiError::field("tool_choice", message))
            }
            _ => Ok(()),
        }
    }
}

impl Message {
    /// Returns the message in the form of chat templates.
    ///
    /// # Errors
    /// If it has another role, parts other than text, or a tool call whose arguments are not JSON.
    pub(crate) fn to_chat(&self) -> Result<ChatMessage, ApiError> {
        if !ROLES.contains(&self.role.as_str()) {
            let message = format!("there is no role {:?}; the roles are {}", self.role, ROLES.join(", "));
            return Err(ApiError::field("messages", message));
        }
        let mut message = ChatMessage::new(self.role.as_str(), self.text()?);
        message.name.clone_from(&self.name);
        message.tool_call_id.clone_from(&self.tool_call_id);
        message.tool_calls =
            self.tool_calls.iter().map(MessageToolCall::to_chat).collect::<Result<_, ApiError>>()?;
        Ok(message)
    }

    /// Returns the text of the content.
    ///
    /// # Errors
    /// If it has parts other than text.
    pub(crate) fn text(&self) -> Result<String, ApiError> {
        match &self.content {
            None => Ok(String::new()),
            Some(Content::Text(text)) => Ok(text.clone()),
            Some(Content::Parts(parts)) => parts.iter().map(Part::text).collect(),
        }
    }
}

impl Part {
    fn text(&self) -> Result<&str, ApiError> {
        match (&*self.kind, &self.text) {
            ("text", Some(text)) => Ok(text),
            ("text", None) => Err(ApiError::field("messages", "a part with type `text` has no `text`")),
            (kind, _) => Err(ApiError::field(
                "messages",
                format!("this model reads only text, but a part has type `{kind}`"),
            )),
        }
    }
}

/// The fields that all responses and chunks of a request share.
pub(crate) struct Envelope {
    id: String,
    created: u64,
    model: String,
}

impl Envelope {
    pub(crate) fn new(model: &str) -> Self {
        let number: u128 = rand::random();
        Self { id: format!("chatcmpl-{number:032x}"), created: unix_time(), model: model.to_owned() }
    }

    pub(crate) fn object(&self, kind: &str, choices: &[Value]) -> Map<String, Value> {
        let fields = [
            ("id", json!(self.id)),
            ("object", json!(kind)),
            ("created", json!(self.created)),
            ("model", json!(self.model)),
            ("choices", json!(choices)),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    pub(crate) fn chunk(&self, choice: Value) -> Value {
        Value::Object(self.object("chat.completion.chunk", &[choice]))
    }

    pub(crate) fn usage_chunk(&self, usage: Value) -> Value {
        let mut chunk = self.object("chat.completion.chunk", &[]);
        chunk.insert("usage".to_owned(), usage);
        Value::Object(chunk)
    }
}

/// Returns the reason for which a completion ended, as OpenAI names it.
pub(crate) fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::ToolCalls => "tool_calls",
    }
}

/// Returns the counts of tokens of a response.
pub(crate) fn usage(prompt: usize, completion: usize) -> Value {
    json!({ "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion })
}

/// Answers with completions of a policy.
async fn complete(
    service: &Arc<Service>,
    model: Arc<ServedModel>,
    chat: ChatRequest,
) -> Result<Response, ApiError> {
    let messages = chat.messages.iter().map(Message::to_chat).collect::<Result<Vec<_>, _>>()?;
    let thinking = chat.chat_template_kwargs.enable_thinking;
    let prompt = model.encode_chat(&messages, chat.tools.clone(), thinking, true)?;
    let count = chat.sampling.count()?;
    service.check_count(count)?;
    let request = Request {
        policy: model.policy,
        seeds: chat.sampling.seeds(0, count),
        max_tokens: model.room(prompt.len(), chat.sampling.token_limit()?)?,
        prompt: prompt.into(),
        sampling: chat.sampling.distribution()?,
        stop: chat.sampling.stop_strings(),
        stop_ids: chat.sampling.stop_token_ids.clone().unwrap_or_default().into(),
        top_logprobs: if chat.logprobs { chat.top_logprobs } else { 0 },
        listener: None,
    };
    let permit = service.admit()?;
    if chat.stream {
        return Ok(stream_completion(service, model, request, &chat, permit));
    }
    let prompt = Arc::clone(&request.prompt);
    let completions = service.generate(request, permit).await?;
    let choices: Vec<Value> = completions
        .iter()
        .enumerate()
        .map(|(index, completion)| choice(&model, index, completion, &chat))
        .collect();
    let envelope = Envelope::new(&model.name);
    let mut response = envelope.object("chat.completion", &choices);
    let generated = completions.iter().map(|completion| completion.tokens.len()).sum();
    response.insert("usage".to_owned(), usage(prompt.len(), generated));
    if chat.return_token_ids {
        response.insert("prompt_token_ids".to_owned(), json!(&*prompt));
    }
    Ok(response::ok(&response))
}

fn choice(model: &ServedModel, index: usize, completion: &Completion, chat: &ChatRequest) -> Value {
    let tokens = Tokens { ids: &completion.tokens, logprobs: &completion.logprobs, top: &completion.top };
    let logprobs = if chat.logprobs { logprobs::chat(&model.tokenizer, tokens) } else { Value::Null };
    let (message, finish) = answer(model, completion, !chat.tools.is_empty());
    let mut choice = json!({
        "index": index,
        "message": message,
        "logprobs": logprobs,
        "finish_reason": finish,
    });
    if chat.return_token_ids {
        choice["token_ids"] = json!(completion.tokens);
    }
    choice
}

/// Returns the message of a completion, and the reason for which it ended. If the request offers tools, a completion that
/// calls some has them instead of a text.
fn answer(model: &ServedModel, completion: &Completion, offers_tools: bool) -> (Value, &'static str) {
    let is_whole = completion.finish != Finish::Length;
    match (offers_tools && is_whole).then(|| tool_calls::of_completion(model, &completion.text)).flatten() {
        Some(calls) => {
            let message = json!({ "role": "assistant", "content": null, "tool_calls": calls });
            (message, finish_reason(Finish::ToolCalls))
        }
        None => {
            let message = json!({ "role": "assistant", "content": completion.text });
            (message, finish_reason(completion.finish))
        }
    }
}

fn stream_completion(
    service: &Arc<Service>,
    model: Arc<ServedModel>,
    request: Request,
    chat: &ChatRequest,
    permit: Permit,
) -> Response {
    let envelope = Envelope::new(&model.name);
    let (with_logprobs, with_ids) = (chat.logprobs, chat.return_token_ids);
    // Whether a text is a tool call is known at its end.
    let offers_tools = !chat.tools.is_empty();
    let include_usage = chat.stream_options.include_usage;
    let prompt = request.prompt.len();
    let count = request.seeds.len();
    let opening: Vec<Value> = (0..count)
        .map(|index| {
            let delta = json!({ "role": "assistant", "content": "" });
            envelope.chunk(json!({ "index": index, "delta": delta, "finish_reason": null }))
        })
        .collect();
    let shared = Arc::clone(service);
    let generated = stream::generate(service, request, permit).flat_map(move |part| {
        let values = match part {
            Generated::Chunk(chunk) => {
                let tokens = Tokens { ids: &chunk.tokens, logprobs: &chunk.logprobs, top: &chunk.top };
                let mut choice = json!({
                    "index": chunk.index,
                    "delta": if offers_tools { json!({}) } else { json!({ "content": chunk.text }) },
                    "finish_reason": null,
                });
                if with_logprobs {
                    choice["logprobs"] = logprobs::chat(&model.tokenizer, tokens);
                }
                if with_ids {
                    choice["token_ids"] = json!(chunk.tokens);
                }
                vec![envelope.chunk(choice)]
            }
            Generated::Finished(completions) => {
                let tokens = completions.iter().map(|completion| completion.tokens.len()).sum();
                shared.count_tokens(prompt, tokens);
                let endings = completions.iter().enumerate().map(|(index, completion)| {
                    let (message, finish) = answer(&model, completion, offers_tools);
                    let delta = if offers_tools { message } else { json!({}) };
                    envelope.chunk(json!({ "index": index, "delta": delta, "finish_reason": finish }))
                });
                let usage = include_usage.then(|| envelope.usage_chunk(usage(prompt, tokens)));
                endings.chain(usage).collect()
            }
            Generated::Failed(error) => vec![error.to_json()],
        };
        futures::stream::iter(values)
    });
    stream::events(futures::stream::iter(opening).chain(generated))
}
