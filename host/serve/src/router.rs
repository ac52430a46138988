//! Routes, keys, limits and the end of a server.

use std::future::Future;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use pl_types::RequestOrigin;
use serde_json::{Value, json};
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use crate::error::ApiError;
use crate::service::Service;
use crate::{adapters, chat, completions, generate, pause, response, tokenize, weights};

/// Largest error that gets another form, in bytes.
const LONGEST_ERROR: usize = 64 << 10;

/// Answers requests until `stop` ends. Then no new connection is taken, and requests in progress have
/// [`ServerLimits::shutdown`](crate::ServerLimits::shutdown) to end.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: TcpListener,
    service: Service,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let longest = service.config.limits.shutdown;
    let (stopping, stopped) = oneshot::channel();
    let router = router(Arc::new(service));
    let serving = axum::serve(listener, router).with_graceful_shutdown(async move {
        stop.await;
        let _ = stopping.send(());
    });
    let deadline = async move {
        // If the sender is gone, serving has ended.
        if stopped.await.is_ok() {
            tokio::time::sleep(longest).await;
        }
    };
    tokio::select! {
        result = serving => result,
        () = deadline => {
            tracing::warn!("requests still in progress were cut off");
            Ok(())
        }
    }
}

/// Returns the routes of a service.
pub(crate) fn router(service: Arc<Service>) -> Router {
    let limit = DefaultBodyLimit::max(service.config.limits.body);
    Router::new()
        .route("/v1/chat/completions", post(chat::completions))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/models", get(list_models))
        .route("/v1/models/{model}", get(show_model))
        .route("/inference/v1/generate", post(generate::generate))
        .route("/v1/load_lora_adapter", post(adapters::load))
        .route("/v1/unload_lora_adapter", post(adapters::unload))
        .route("/pause", post(pause::pause))
        .route("/resume", post(pause::resume))
        .route("/is_paused", get(pause::is_paused))
        .route("/sleep", post(pause::sleep))
        .route("/wake_up", post(pause::wake_up))
        .route("/is_sleeping", get(pause::is_sleeping))
        .route("/update_weights", post(weights::update))
        .route("/update_weight_version", post(weights::update_version))
        .route("/weight_info", get(weights::info))
        .route("/tokenize", post(tokenize::tokenize))
        .route("/detokenize", post(tokenize::detokenize))
        .route("/metrics", get(metrics))
        .layer(middleware::from_fn_with_state(Arc::clone(&service), require_key))
        // Open to all: load balancers ask them without a key.
        .route("/health", get(async || StatusCode::OK))
        .route("/version", get(version))
        .method_not_allowed_fallback(async || {
            ApiError::with_status(StatusCode::METHOD_NOT_ALLOWED, "this path takes another method")
        })
        .fallback(async || ApiError::with_status(StatusCode::NOT_FOUND, "there is no such path"))
        .layer(limit)
        .layer(middleware::map_response(with_error_form))
        .layer(middleware::from_fn_with_state(Arc::clone(&service), count))
        .with_state(service)
}

/// Refuses requests without the server's key. A page of another site doesn't know it; without a key, such pages are told by their
/// headers.
async fn require_key(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if let Some(key) = &service.config.key {
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let given = given.and_then(|value| value.split_once(' '));
        let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let given = given.map_or("", |(_, key)| key.trim_start_matches(' '));
        // Takes the same time wherever the first difference is.
        if !bool::from(given.as_bytes().ct_eq(key.as_bytes())) {
            let message = "send the server's key, with the header `Authorization: Bearer KEY`";
            return Err(ApiError::with_status(StatusCode::UNAUTHORIZED, message));
        }
    } else {
        refuse_other_sites(&headers)?;
    }
    Ok(next.run(request).await)
}

fn refuse_other_sites(headers: &HeaderMap) -> Result<(), ApiError> {
    let text = |name| headers.get(name).map(|value: &HeaderValue| value.to_str().unwrap_or_default());
    let origin = RequestOrigin::new(text);
    let refused = |message: &str| Err(ApiError::with_status(StatusCode::FORBIDDEN, message));
    if !origin.has_local_host() {
        return refused(
            "without a key, this server is asked by its address or as localhost, not by another name; start it with \
             a key",
        );
    }
    if origin.is_other_site() {
        return refused("this request comes from a page of another site; start the server with a key");
    }
    Ok(())
}

/// Counts requests by route.
async fn count(State(service): State<Arc<Service>>, request: Request, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
    let start = Instant::now();
    let response = next.run(request).await;
    service.metrics.count_request(
        path.as_deref().unwrap_or("other"),
        response.status().as_u16(),
        start.elapsed(),
    );
    response
}

/// Gives errors that requests get before they reach this program's code, such as that of a body that breaks off, the form of
/// the others.
async fn with_error_form(response: Response) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let kind = response.headers().get(header::CONTENT_TYPE);
    if !is_error || kind.is_some_and(|kind| kind == response::JSON) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, LONGEST_ERROR).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let message = match status {
        StatusCode::PAYLOAD_TOO_LARGE => "the body is larger than this server takes",
        _ if text.is_empty() => status.canonical_reason().unwrap_or_default(),
        _ => &text,
    };
    let (formed, body) = ApiError::with_status(status, message).into_response().into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.extend(formed.headers);
    Response::from_parts(parts, body)
}

fn model_card(service: &Service, name: &str) -> Value {
    let mut card =
        json!({ "id": name, "object": "model", "created": service.started, "owned_by": "pl-host" });
    let model = service.models().into_iter().find(|model| model.name == name);
    card["max_model_len"] = json!(model.as_ref().map(|model| model.max_positions));
    if let Some(model) = model {
        card["root"] = json!(model.base);
        card["parent"] = if model.is_adapter { json!(model.base) } else { Value::Null };
        card["model_hash"] = json!(model.model_hash);
    }
    card
}

async fn list_models(State(service): State<Arc<Service>>) -> Response {
    let data: Vec<Value> = service.names().iter().map(|name| model_card(&service, name)).collect();
    response::ok(&json!({ "object": "list", "data": data }))
}

async fn show_model(
    State(service): State<Arc<Service>>,
    Path(name): Path<String>,
) -> Result<Response, ApiError> {
    service.find(Some(&name))?;
    Ok(response::ok(&model_card(&service, &name)))
}

async fn version() -> Response {
    response::ok(&json!({ "version": env!("CARGO_PKG_VERSION"), "server": "pl-host" }))
}

async fn metrics(State(service): State<Arc<Service>>) -> Response {
    let mut response = service.metrics.to_text().into_response();
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
