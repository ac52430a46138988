//! `POST /tokenize` and `POST /detokenize`.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::body;
use crate::chat_request::{Message, TemplateOptions};
use crate::error::ApiError;
use crate::response;
use crate::service::Service;
use crate::tool_calls;

#[derive(Debug, Deserialize)]
struct TokenizeRequest {
    model: Option<String>,
    /// Text; or else `messages`, in the model's chat format.
    prompt: Option<String>,
    messages: Option<Vec<Message>>,
    #[serde(default = "default_true")]
    add_generation_prompt: bool,
    #[serde(default)]
    tools: Vec<Value>,
    #[serde(default)]
    chat_template_kwargs: TemplateOptions,
    /// Adds the tokens as the vocabulary writes them.
    #[serde(default)]
    return_token_strs: bool,
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
    let unsupported = [
        ("add_special_tokens", json!(false)),
        ("chat_template", Value::Null),
        ("continue_final_message", json!(false)),
    ];
    let asked: TokenizeRequest = body::parse(&headers, &bytes, &unsupported)?;
    let model = service.policy(asked.model.as_deref())?;
    let tokens = match (&asked.prompt, &asked.messages) {
        (Some(prompt), None) => model.encode(prompt)?,
        (None, Some(messages)) => {
            let messages = messages.iter().map(Message::to_chat).collect::<Result<Vec<_>, _>>()?;
            tool_calls::check_offered(&asked.tools)?;
            let thinking = asked.chat_template_kwargs.enable_thinking;
            model.encode_chat(&messages, asked.tools, thinking, asked.add_generation_prompt)?
        }
        _ => return Err(ApiError::field("prompt", "give either `prompt` or `messages`")),
    };
    let mut answer = json!({ "tokens": tokens, "count": tokens.len(), "max_model_len": model.max_positions });
    if asked.return_token_strs {
        answer["token_strs"] = tokens.iter().map(|id| model.tokenizer.token(*id)).collect();
    }
    Ok(response::ok(&answer))
}

pub(crate) async fn detokenize(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let asked: DetokenizeRequest = body::parse(&headers, &bytes, &[])?;
    let model = service.policy(asked.model.as_deref())?;
    if let Some(id) = asked.tokens.iter().find(|id| model.tokenizer.token(**id).is_none()) {
        return Err(ApiError::field("tokens", format!("token {id} is outside the model's vocabulary")));
    }
    Ok(response::ok(&json!({ "prompt": model.tokenizer.decode(&asked.tokens, false) })))
}
