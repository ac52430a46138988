//! `POST /pause`, `/resume`, `/sleep` and `/wake_up`, `GET /is_paused` and `/is_sleeping`, as vLLM has them.

use std::sync::Arc;

use axum::extract::{Query, State};
use axum::response::Response;
use pl_types::PauseMode;
use serde::Deserialize;
use serde_json::json;

use crate::control::ControlError;
use crate::error::ApiError;
use crate::response;
use crate::service::Service;

#[derive(Deserialize)]
pub(crate) struct PauseQuery {
    mode: Option<String>,
    clear_cache: Option<bool>,
}

#[derive(Deserialize)]
pub(crate) struct SleepQuery {
    level: Option<u32>,
}

/// Error of a command that the engine refused: status 400.
pub(crate) fn refused(error: ControlError) -> ApiError {
    ApiError::body(error.to_string())
}

pub(crate) async fn pause(
    State(service): State<Arc<Service>>,
    Query(query): Query<PauseQuery>,
) -> Result<Response, ApiError> {
    let mode = match query.mode.as_deref() {
        None | Some("abort") => PauseMode::Abort,
        Some("wait") => PauseMode::Wait,
        Some("keep") => PauseMode::Keep,
        Some(other) => {
            let message = format!("`mode` is `{other}`; it is `abort`, `wait` or `keep`");
            return Err(ApiError::field("mode", message));
        }
    };
    let clear = query.clear_cache.unwrap_or(true);
    service.control()?.pause(mode, clear).await.map_err(refused)?;
    Ok(response::ok(&json!({ "status": "paused" })))
}

pub(crate) async fn resume(State(service): State<Arc<Service>>) -> Result<Response, ApiError> {
    service.control()?.resume().await.map_err(refused)?;
    Ok(response::ok(&json!({ "status": "resumed" })))
}

pub(crate) async fn is_paused(State(service): State<Arc<Service>>) -> Result<Response, ApiError> {
    Ok(response::ok(&json!({ "is_paused": service.control()?.is_paused() })))
}

pub(crate) async fn sleep(
    State(service): State<Arc<Service>>,
    Query(query): Query<SleepQuery>,
) -> Result<Response, ApiError> {
    if query.level.is_some_and(|level| level != 1) {
        let message = "this server sleeps at level 1 alone: it keeps its weights and frees the KV cache";
        return Err(ApiError::field("level", message));
    }
    service.control()?.sleep().await.map_err(refused)?;
    Ok(response::ok(&json!({ "status": "sleeping" })))
}

pub(crate) async fn wake_up(State(service): State<Arc<Service>>) -> Result<Response, ApiError> {
    service.control()?.wake_up().await.map_err(refused)?;
    Ok(response::ok(&json!({ "status": "awake" })))
}

pub(crate) async fn is_sleeping(State(service): State<Arc<Service>>) -> Result<Response, ApiError> {
    Ok(response::ok(&json!({ "is_sleeping": service.control()?.is_sleeping() })))
}
