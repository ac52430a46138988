//! `POST /v1/chat/completions`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures::StreamExt;
use pl_types::{Completion, Finish, Request};
use serde_json::{Value, json};

use crate::body;
use crate::chat_request::{ChatRequest, Message};
use crate::chat_response::{Envelope, finish_reason, usage};
use crate::episode;
use crate::error::ApiError;
use crate::logprobs::{self, Tokens};
use crate::models::ServedModel;
use crate::response;
use crate::sampling::unsupported;
use crate::service::{Asked, Permit, Service};
use crate::stream::{self, Generated};
use crate::tool_calls;

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
        Asked::Policy(model) => {
            let has_format = chat.response_format.is_some();
            complete(&service, model, chat).await.map_err(|error| match error.param.as_deref() {
                // The engine knows one name for grammars.
                Some("structured_outputs") if has_format => {
                    ApiError { param: Some("response_format".to_owned()), ..error }
                }
                _ => error.with_prompt("messages"),
            })
        }
        Asked::Team(team) => episode::play(&service, team, chat).await,
    }
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
        max_tokens: model.room(prompt.len(), chat.sampling.token_limit()?, "messages")?,
        prompt: prompt.into(),
        sampling: chat.distribution()?,
        stop: chat.sampling.stop_strings(),
        stop_ids: chat.sampling.stop_token_ids.clone().unwrap_or_default().into(),
        top_logprobs: if chat.logprobs { chat.top_logprobs } else { 0 },
        listener: None,
    };
    let permit = service.admit()?;
    if chat.stream {
        return stream_completion(service, model, request, &chat, permit).await;
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
    let (message, finish) = answer(model, completion, chat.may_call_tools());
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

/// Returns the message of a completion, and the reason for which it ended. If the model may call tools, a completion that
/// calls some has them, and as its text what comes before them.
fn answer(model: &ServedModel, completion: &Completion, may_call: bool) -> (Value, &'static str) {
    let is_whole = completion.finish != Finish::Length;
    match (may_call && is_whole).then(|| tool_calls::of_completion(model, &completion.text)).flatten() {
        Some(calls) => {
            let before =
                Some(tool_calls::text_before(model, &completion.text)).filter(|text| !text.is_empty());
            let message = json!({ "role": "assistant", "content": before, "tool_calls": calls });
            (message, finish_reason(Finish::ToolCalls))
        }
        None => {
            let message = json!({ "role": "assistant", "content": completion.text });
            (message, finish_reason(completion.finish))
        }
    }
}

/// Text of a streamed completion that may call tools: it is sent as far as it belongs to no call, and calls at the end.
#[derive(Debug, Clone, Default)]
struct SentText {
    text: String,
    /// Number of bytes of `text` that were sent.
    sent: usize,
}

impl SentText {
    /// Adds to the text, and returns the delta that may be sent.
    fn delta(&mut self, model: &ServedModel, more: &str) -> Value {
        self.text.push_str(more);
        let before = tool_calls::text_before(model, &self.text);
        match before.get(self.sent..).filter(|more| !more.is_empty()) {
            Some(more) => {
                self.sent = before.len();
                json!({ "content": more })
            }
            None => json!({}),
        }
    }

    /// Returns the delta of what a message has beyond the text that was sent. The role was in the first delta.
    fn rest(&self, mut message: Value) -> Value {
        let content = message["content"].as_str().and_then(|text| text.get(self.sent..)).unwrap_or_default();
        let content = content.to_owned();
        if let Some(fields) = message.as_object_mut() {
            fields.remove("role");
            fields.remove("content");
            if !content.is_empty() {
                fields.insert("content".to_owned(), json!(content));
            }
        }
        message
    }
}

async fn stream_completion(
    service: &Arc<Service>,
    model: Arc<ServedModel>,
    request: Request,
    chat: &ChatRequest,
    permit: Permit,
) -> Result<Response, ApiError> {
    let envelope = Envelope::new(&model.name);
    let (with_logprobs, with_ids) = (chat.logprobs, chat.return_token_ids);
    let may_call = chat.may_call_tools();
    let include_usage = chat.stream_options.include_usage;
    let prompt = request.prompt.len();
    let count = request.seeds.len();
    let mut sent = vec![SentText::default(); if may_call { count } else { 0 }];
    let opening: Vec<Value> = (0..count)
        .map(|index| {
            let delta = json!({ "role": "assistant", "content": "" });
            let mut chunk = envelope.chunk(json!({ "index": index, "delta": delta, "finish_reason": null }));
            if with_ids {
                chunk["prompt_token_ids"] = json!(&*request.prompt);
            }
            chunk
        })
        .collect();
    let generated = stream::generate(service, request, permit).await?.flat_map(move |part| {
        let values = match part {
            Generated::Chunk(chunk) => {
                let tokens = Tokens { ids: &chunk.tokens, logprobs: &chunk.logprobs, top: &chunk.top };
                let delta = match sent.get_mut(chunk.index) {
                    Some(sent) => sent.delta(&model, &chunk.text),
                    None => json!({ "content": chunk.text }),
                };
                if delta == json!({}) && !with_logprobs && !with_ids {
                    return futures::stream::iter(Vec::new());
                }
                let mut choice = json!({ "index": chunk.index, "delta": delta, "finish_reason": null });
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
                let endings = completions.iter().enumerate().map(|(index, completion)| {
                    let (message, finish) = answer(&model, completion, may_call);
                    let delta = sent.get(index).map_or_else(|| json!({}), |sent| sent.rest(message));
                    envelope.chunk(json!({ "index": index, "delta": delta, "finish_reason": finish }))
                });
                let usage = include_usage.then(|| envelope.usage_chunk(usage(prompt, tokens)));
                endings.chain(usage).collect()
            }
            Generated::Failed(error) => vec![error.with_prompt("messages").to_json()],
        };
        futures::stream::iter(values)
    });
    Ok(stream::events(futures::stream::iter(opening).chain(generated)))
}
