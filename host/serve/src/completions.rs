//! `POST /v1/completions`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures::StreamExt;
use futures::future::try_join_all;
use futures::stream::select_all;
use pl_types::{Completion, Request};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body;
use crate::chat_request::StreamOptions;
use crate::chat_response::{finish_reason, usage};
use crate::error::ApiError;
use crate::logprobs::{self, Tokens};
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
    /// Number of likeliest tokens to report at each position; the sampled one is always among the lists.
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
    fn encode(self, model: &ServedModel) -> Result<Vec<Arc<[u32]>>, ApiError> {
        match self {
            Prompts::Text(text) => Ok(vec![model.encode(&text)?.into()]),
            Prompts::Tokens(ids) => Ok(vec![ids.into()]),
            Prompts::Texts(texts) => texts.iter().map(|text| Ok(model.encode(text)?.into())).collect(),
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
    let limit = asked.sampling.token_limit()?.unwrap_or(DEFAULT_TOKENS);
    let count = asked.sampling.count()?;
    let (sampling, stop) = (asked.sampling.distribution()?, asked.sampling.stop_strings());
    let stop_ids: Arc<[u32]> = asked.sampling.stop_token_ids.clone().unwrap_or_default().into();
    let prompts = asked.prompt.encode(&model)?;
    service.check_count(count.saturating_mul(prompts.len()))?;
    let requests = prompts
        .into_iter()
        .enumerate()
        .map(|(index, prompt)| {
            Ok(Request {
                policy: model.policy,
                seeds: asked.sampling.seeds(index, count),
                max_tokens: model.room(prompt.len(), Some(limit))?,
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
        return stream_completions(&service, requests, format, asked.stream_options.include_usage).await;
    }
    let prompt_tokens = requests.iter().map(|request| request.prompt.len()).sum();
    let prompts: Vec<Arc<[u32]>> = requests.iter().map(|request| Arc::clone(&request.prompt)).collect();
    let permits = requests.iter().map(|_| service.admit()).collect::<Result<Vec<_>, _>>()?;
    let running =
        requests.into_iter().zip(permits).map(|(request, permit)| service.generate(request, permit));
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
        let mut choice = self.part(index, &completion.text, tokens, 0, finish);
        if self.token_ids {
            choice["prompt_token_ids"] = json!(prompt);
        }
        choice
    }

    /// Returns a completion, or a part of one that begins `offset` characters after the completion's start.
    fn part(&self, index: usize, text: &str, tokens: Tokens<'_>, offset: usize, finish: Value) -> Value {
        let logprobs = match self.logprobs {
            true => logprobs::text(&self.model.tokenizer, tokens, offset),
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

async fn stream_completions(
    service: &Arc<Service>,
    requests: Vec<Request>,
    format: Format,
    include_usage: bool,
) -> Result<Response, ApiError> {
    let prompt_tokens: usize = requests.iter().map(|request| request.prompt.len()).sum();
    let total = requests.iter().map(|request| request.seeds.len()).sum();
    let mut starting = Vec::new();
    let mut first = 0;
    for request in requests {
        let count = request.seeds.len();
        let (prompt, permit) = (request.prompt.len(), service.admit()?);
        starting.push(async move {
            let parts = stream::generate(service, request, permit).await?;
            Ok::<_, ApiError>(parts.map(move |part| (first, prompt, part)).boxed())
        });
        first += count;
    }
    let streams = try_join_all(starting).await?;
    let shared = Arc::clone(service);
    // Characters of each completion so far, and completions that have not ended.
    let (mut offsets, mut open, mut generated) = (vec![0_usize; total], total, 0);
    let values = select_all(streams).flat_map(move |(first, prompt, part)| {
        let mut values = Vec::new();
        match part {
            Generated::Chunk(chunk) => {
                let index = first + chunk.index;
                let tokens = Tokens { ids: &chunk.tokens, logprobs: &chunk.logprobs, top: &chunk.top };
                let offset = offsets.get(index).copied().unwrap_or_default();
                values.push(format.object(&[format.part(index, &chunk.text, tokens, offset, Value::Null)]));
                if let Some(offset) = offsets.get_mut(index) {
                    *offset += chunk.text.chars().count();
                }
            }
            Generated::Finished(completions) => {
                let tokens = completions.iter().map(|completion| completion.tokens.len()).sum();
                shared.count_tokens(prompt, tokens);
                generated += tokens;
                open -= completions.len();
                let none = Tokens { ids: &[], logprobs: &[], top: &[] };
                values.extend(completions.iter().enumerate().map(|(index, completion)| {
                    let finish = json!(finish_reason(completion.finish));
                    format.object(&[format.part(first + index, "", none, 0, finish)])
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
