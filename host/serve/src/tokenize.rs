//! `POST /tokenize` and `POST /detokenize`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;

use crate::body;
use crate::chat_request::Message;
use crate::error::ApiError;
use crate::response;
use crate::service::Service;

#[derive(Debug, Deserialize)]
struct TokenizeRequest {
    model: Option<String>,
    /// Text; or else `messages`, in the model's chat format.
    prompt: Option<String>,
    messages: Option<Vec<Message>>,
    #[serde(default = "default_true")]
    add_generation_prompt: bool,
}

fn default_true() -> bool {
    true
}

#[derive(Debug, Deserialize)]
struct DetokenizeRequest {
    model: Option<String>,
    tokens: Vec<u32>,
}

pub(crate) async fn tokenize(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let asked: TokenizeRequest = body::parse(&headers, &bytes, &[])?;
    let model = service.policy(asked.model.as_deref())?;
    let tokens = match (&asked.prompt, &asked.messages) {
        (Some(prompt), None) => model.encode(prompt)?,
        (None, Some(messages)) => {
            let messages = messages.iter().map(Message::to_chat).collect::<Result<Vec<_>, _>>()?;
            model.encode_chat(&messages, Vec::new(), None, asked.add_generation_prompt)?
        }
        _ => return Err(ApiError::field("prompt", "give either `prompt` or `messages`")),
    };
    Ok(response::ok(
        &json!({ "tokens": tokens, "count": tokens.len(), "max_model_len": model.max_positions }),
    ))
}

pub(crate) async fn detokenize(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let asked: DetokenizeRequest = body::parse(&headers, &bytes, &[])?;
    let model = service.policy(asked.model.as_deref())?;
    Ok(response::ok(&json!({ "prompt": model.tokenizer.decode(&asked.tokens, false) })))
}
