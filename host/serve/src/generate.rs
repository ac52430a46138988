//! `POST /inference/v1/generate`: token ids in, token ids out, as vLLM has it.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use pl_types::{Completion, Request, version_spans};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body;
use crate::chat_response::{finish_reason, usage};
use crate::error::ApiError;
use crate::logprobs::{self, Tokens};
use crate::response;
use crate::sampling::{SamplingFields, unsupported_params};
use crate::service::Service;

/// Body of a request.
#[derive(Debug, Deserialize)]
struct GenerateRequest {
    model: Option<String>,
    request_id: Option<String>,
    token_ids: Vec<u32>,
    #[serde(default)]
    sampling_params: Params,
    #[serde(default)]
    return_token_ids: bool,
}

#[derive(Debug, Default, Deserialize)]
struct Params {
    /// Number of likeliest tokens to report at each position. Log-probabilities of the sampled tokens are
    /// returned if it is given, 0 included.
    logprobs: Option<usize>,
    /// Seeds of the completions, each 32 bytes in hexadecimal, in place of `seed` and `n`: with them, a client
    /// that is another pl-host gets the tokens that its own engine would draw.
    seeds: Option<Vec<String>>,
}

/// The other fields of `sampling_params`.
#[derive(Debug, Deserialize)]
struct SamplingParams {
    #[serde(default)]
    sampling_params: SamplingFields,
}

/// Field of the prompt.
const PROMPT: &str = "token_ids";

/// Adds to an error's field that it is one of `sampling_params`.
fn in_params(error: ApiError) -> ApiError {
    ApiError { param: error.param.map(|field| format!("sampling_params.{field}")), ..error }
}

pub(crate) async fn generate(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let unsupported = [("stream", json!(false)), ("output_mode", json!("tokens"))];
    let body = body::object(&headers, &bytes, &unsupported)?;
    if let Some(params) = body.get("sampling_params").and_then(Value::as_object) {
        body::refuse(params, &unsupported_params()).map_err(in_params)?;
    }
    let asked: GenerateRequest = body::read(&body)?;
    let SamplingParams { sampling_params: sampling } = body::read(&body)?;
    let model = service.policy(asked.model.as_deref())?;
    let params = asked.sampling_params;
    logprobs::check_count("sampling_params.logprobs", params.logprobs)?;
    let seeds = match &params.seeds {
        Some(seeds) => seeds.iter().map(|seed| parse_seed(seed)).collect::<Result<Vec<_>, _>>()?,
        None => sampling.seeds(0, sampling.count().map_err(in_params)?),
    };
    service.check_count(seeds.len())?;
    let prompt: Arc<[u32]> = asked.token_ids.into();
    let limit = sampling.token_limit().map_err(in_params)?;
    let limit = limit.map(|(field, tokens)| (format!("sampling_params.{field}"), tokens));
    let limit = limit.as_ref().map(|(field, tokens)| (field.as_str(), *tokens));
    let request = Request {
        policy: model.policy,
        prompt: Arc::clone(&prompt),
        seeds,
        max_tokens: model.room(prompt.len(), limit, PROMPT)?,
        sampling: sampling.distribution().map_err(in_params)?,
        stop: sampling.stop_strings(),
        stop_ids: sampling.stop_token_ids.clone().unwrap_or_default().into(),
        top_logprobs: params.logprobs.unwrap_or(0),
        listener: None,
    };
    let permit = service.admit()?;
    let completions =
        service.generate(request, permit).await.map_err(|error| match error.param.as_deref() {
            Some("prompt") => error.with_prompt(PROMPT),
            _ => in_params(error),
        })?;
    let with_logprobs = params.logprobs.is_some();
    let choices: Vec<Value> = completions
        .iter()
        .enumerate()
        .map(|(index, completion)| choice(index, completion, with_logprobs))
        .collect();
    let generated = completions.iter().map(|completion| completion.tokens.len()).sum();
    let request_id = asked.request_id.unwrap_or_else(|| format!("{:032x}", rand::random::<u128>()));
    let mut response = json!({
        "request_id": format!("generate-tokens-{request_id}"),
        "model": model.name,
        "choices": choices,
        "usage": usage(prompt.len(), generated),
    });
    if asked.return_token_ids {
        response["prompt_token_ids"] = json!(&*prompt);
    }
    Ok(response::ok(&response))
}

fn choice(index: usize, completion: &Completion, with_logprobs: bool) -> Value {
    let tokens = Tokens { ids: &completion.tokens, logprobs: &completion.logprobs, top: &completion.top };
    let mut choice = json!({
        "index": index,
        "token_ids": completion.tokens,
        "logprobs": if with_logprobs { logprobs::token_ids(tokens) } else { Value::Null },
        "finish_reason": finish_reason(completion.finish),
        "weight_versions": weight_versions(completion),
    });
    if let Some(support) = &completion.support {
        choice["sampling_mask"] = json!(support);
    }
    choice
}

fn weight_versions(completion: &Completion) -> Vec<Value> {
    let mut start = 0;
    let spans = version_spans(completion.version, &completion.version_changes, completion.tokens.len());
    let span = |(version, tokens): (u64, usize)| {
        let span = json!({ "version": version.to_string(), "start": start, "end": start + tokens });
        start += tokens;
        span
    };
    spans.into_iter().map(span).collect()
}

fn parse_seed(text: &str) -> Result<[u8; 32], ApiError> {
    let mut seed = [0; 32];
    hex::decode_to_slice(text, &mut seed).map_err(|e| {
        ApiError::field("sampling_params.seeds", format!("a seed has 32 bytes in hexadecimal: {e}"))
    })?;
    Ok(seed)
}
