//! `POST /v1/completions`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures::future::try_join_all;
use futures::stream::select_all;
use futures::{StreamExt, TryFutureExt};
use pl_types::{Completion, Request};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body;
use crate::chat_request::StreamOptions;
use crate::chat_response::{finish_reason, usage};
use crate::error::ApiError;
use crate::logprobs::{self, TextPosition, Tokens};
use crate::models::ServedModel;
use crate::response;
use crate::sampling::{SamplingFields, unsupported};
use crate::service::{Service, unix_time};
use crate::stream::{self, Generated};

/// Tokens of a completion if the request does not say, as OpenAI and vLLM have it.
const DEFAULT_TOKENS: u32 = 16;

/// Body of a request.
#[derive(Debug, Deserialize)]
struct CompletionRequest {
    model: Option<String>,
    prompt: Prompts,
    #[serde(default)]
    stream: bool,
    #[serde(default)]
    stream_options: StreamOptions,
    /// Number of likeliest tokens to report at each position, besides the sampled one.
    logprobs: Option<usize>,
    #[serde(default)]
    return_token_ids: bool,
    #[serde(skip)]
    sampling: SamplingFields,
}

/// One or several prompts, as text or token ids.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text, a list of texts, token ids or a list of those")]
enum Prompts {
    Text(String),
    Tokens(Vec<u32>),
    Texts(Vec<String>),
    TokenLists(Vec<Vec<u32>>),
}

impl Prompts {
    /// Returns true if there may be several: errors then name theirs by its index.
    fn is_list(&self) -> bool {
        matches!(self, Prompts::Texts(_) | Prompts::TokenLists(_))
    }

    fn encode(self, model: &ServedModel) -> Result<Vec<Arc<[u32]>>, ApiError> {
        match self {
            Prompts::Text(text) => Ok(vec![model.encode(&text)?.into()]),
            Prompts::Tokens(ids) => Ok(vec![ids.into()]),
            Prompts::Texts(texts) => texts
                .iter()
                .enumerate()
                .map(|(index, text)| {
                    let encoded = model.encode(text);
                    Ok(encoded.map_err(|error| error.with_prompt(&format!("prompt[{index}]")))?.into())
                })
                .collect(),
            Prompts::TokenLists(lists) => Ok(lists.into_iter().map(Into::into).collect()),
        }
    }
}

pub(crate) async fn completions(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let unsupported = [&*unsupported(), &[("response_format", json!({ "type": "text" }))]].concat();
    let body = body::object(&headers, &bytes, &unsupported)?;
    let asked = CompletionRequest { sampling: body::read(&body)?, ..body::read(&body)? };
    let model = service.policy(asked.model.as_deref())?;
    logprobs::check_count("logprobs", asked.logprobs)?;
    let limit = asked.sampling.token_limit()?;
    let count = asked.sampling.count()?;
    let (sampling, stop) = (asked.sampling.distribution()?, asked.sampling.stop_strings());
    let stop_ids: Arc<[u32]> = asked.sampling.stop_token_ids.clone().unwrap_or_default().into();
    let is_list = asked.prompt.is_list();
    let field = |index: usize| if is_list { format!("prompt[{index}]") } else { "prompt".to_owned() };
    let prompts = asked.prompt.encode(&model)?;
    service.check_prompts(prompts.len())?;
    service.check_count(count.saturating_mul(prompts.len()))?;
    let requests = prompts
        .into_iter()
        .enumerate()
        .map(|(index, prompt)| {
            let field = field(index);
            let limit = limit.unwrap_or((&field, DEFAULT_TOKENS));
            Ok(Request {
                policy: model.policy,
                seeds: asked.sampling.seeds(index, count),
                max_tokens: model.room(prompt.len(), Some(limit), &field)?,
                prompt,
                sampling: sampling.clone(),
                stop: Arc::clone(&stop),
                stop_ids: Arc::clone(&stop_ids),
                top_logprobs: asked.logprobs.unwrap_or(0),
                listener: None,
            })
        })
        .collect::<Result<Vec<_>, ApiError>>()?;
    let format = Format {
        id: format!("cmpl-{:032x}", rand::random::<u128>()),
        created: unix_time(),
        model,
        logprobs: asked.logprobs.is_some(),
        token_ids: asked.return_token_ids,
    };
    if asked.stream {
        let include_usage = asked.stream_options.include_usage;
        return stream_completions(&service, requests, format, include_usage, field).await;
    }
    let prompt_tokens = requests.iter().map(|request| request.prompt.len()).sum();
    let prompts: Vec<Arc<[u32]>> = requests.iter().map(|request| Arc::clone(&request.prompt)).collect();
    let permits = requests.iter().map(|_| service.admit()).collect::<Result<Vec<_>, _>>()?;
    let running = requests.into_iter().zip(permits).enumerate().map(|(index, (request, permit))| {
        service.generate(request, permit).map_err(move |error| error.with_prompt(&field(index)))
    });
    let completions = try_join_all(running).await?;
    let choices: Vec<Value> = completions
        .iter()
        .zip(&prompts)
        .flat_map(|(completions, prompt)| completions.iter().map(move |completion| (completion, prompt)))
        .enumerate()
        .map(|(index, (completion, prompt))| format.choice(index, completion, prompt))
        .collect();
    let generated = completions.iter().flatten().map(|completion| completion.tokens.len()).sum();
    let mut response = format.object(&choices);
    response["usage"] = usage(prompt_tokens, generated);
    Ok(response::ok(&response))
}

/// The form of a request's response.
struct Format {
    id: String,
    created: u64,
    model: Arc<ServedModel>,
    logprobs: bool,
    token_ids: bool,
}

impl Format {
    fn object(&self, choices: &[Value]) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model.name,
            "choices": choices,
        })
    }

    fn choice(&self, index: usize, completion: &Completion, prompt: &[u32]) -> Value {
        let tokens = Tokens { ids: &completion.tokens, logprobs: &completion.logprobs, top: &completion.top };
        let finish = json!(finish_reason(completion.finish));
        let mut choice = self.part(index, &completion.text, tokens, &mut TextPosition::default(), finish);
        if self.token_ids {
            choice["prompt_token_ids"] = json!(prompt);
        }
        choice
    }

    /// Returns a completion, or the part of one that begins at `position`, which moves on to its end.
    fn part(
        &self,
        index: usize,
        text: &str,
        tokens: Tokens<'_>,
        position: &mut TextPosition,
        finish: Value,
    ) -> Value {
        let logprobs = match self.logprobs {
            true => logprobs::text(&self.model.tokenizer, tokens, position),
            false => Value::Null,
        };
        let mut choice =
            json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": finish });
        if self.token_ids {
            choice["token_ids"] = json!(tokens.ids);
        }
        choice
    }
}

/// A completion of a stream.
#[derive(Debug, Clone)]
struct Progress {
    position: TextPosition,
    /// Prompt, until a chunk has had its ids.
    prompt: Option<Arc<[u32]>>,
}

async fn stream_completions(
    service: &Arc<Service>,
    requests: Vec<Request>,
    format: Format,
    include_usage: bool,
    field: impl Fn(usize) -> String + Copy,
) -> Result<Response, ApiError> {
    let prompt_tokens: usize = requests.iter().map(|request| request.prompt.len()).sum();
    let mut progress = Vec::new();
    let mut starting = Vec::new();
    for (index, request) in requests.into_iter().enumerate() {
        let first = progress.len();
        let prompt = format.token_ids.then(|| Arc::clone(&request.prompt));
        progress.resize(first + request.seeds.len(), Progress { position: TextPosition::default(), prompt });
        let permit = service.admit()?;
        starting.push(async move {
            let parts = stream::generate(service, request, permit).await;
            let parts = parts.map_err(|error| error.with_prompt(&field(index)))?;
            Ok::<_, ApiError>(parts.map(move |part| (first, part)).boxed())
        });
    }
    let streams = try_join_all(starting).await?;
    // Completions that have not ended.
    let (mut open, mut generated) = (progress.len(), 0);
    let values = select_all(streams).flat_map(move |(first, part)| {
        let mut values = Vec::new();
        match part {
            Generated::Chunk(chunk) => {
                let index = first + chunk.index;
                let tokens = Tokens { ids: &chunk.tokens, logprobs: &chunk.logprobs, top: &chunk.top };
                if let Some(Progress { position, prompt }) = progress.get_mut(index) {
                    let mut choice = format.part(index, &chunk.text, tokens, position, Value::Null);
                    if let Some(prompt) = prompt.take() {
                        choice["prompt_token_ids"] = json!(&*prompt);
                    }
                    values.push(format.object(&[choice]));
                }
            }
            Generated::Finished(completions) => {
                let tokens: usize = completions.iter().map(|completion| completion.tokens.len()).sum();
                generated += tokens;
                open -= completions.len();
                let none = Tokens { ids: &[], logprobs: &[], top: &[] };
                values.extend(completions.iter().enumerate().map(|(index, completion)| {
                    let finish = json!(finish_reason(completion.finish));
                    let mut end = TextPosition::default();
                    format.object(&[format.part(first + index, "", none, &mut end, finish)])
                }));
                if open == 0 && include_usage {
                    let mut last = format.object(&[]);
                    last["usage"] = usage(prompt_tokens, generated);
                    values.push(last);
                }
            }
            Generated::Failed(error) => values.push(error.to_json()),
        }
        futures::stream::iter(values)
    });
    Ok(stream::events(values))
}
