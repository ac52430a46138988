//! Routes of the server. All of them only read, except for those that play an episode.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::assets::{ASSETS, PAGE};
use crate::curves::CurveRequest;
use crate::error::Error;
use crate::logs::Log;
use crate::play::PlayRequest;
use crate::query::EpisodeQuery;
use crate::response::{json_response, text_response};
use crate::security::{AccessToken, check_origin, harden};
use crate::tokens::{CompletionPosition, TokenPosition};
use crate::viewer::Viewer;

/// Requests that read files at the same time.
const READERS: usize = 4;

/// Largest body of a request, in bytes. A prompt of a model's whole context is shorter.
const LARGEST_BODY: usize = 4 << 20;

/// Largest error that gets another form, in bytes.
const LONGEST_ERROR: usize = 64 << 10;

/// State of all requests.
struct Server {
    viewer: Arc<Viewer>,
    token: AccessToken,
    port: u16,
    readers: Semaphore,
}

type Shared = State<Arc<Server>>;

/// Answers requests that carry the token until `stop` ends.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: TcpListener,
    viewer: Viewer,
    token: AccessToken,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let port = listener.local_addr()?.port();
    let server = Server { viewer: Arc::new(viewer), token, port, readers: Semaphore::new(READERS) };
    let serving = axum::serve(listener, router(Arc::new(server)));
    // Reading changes nothing, so requests in progress need not be waited for.
    tokio::select! {
        result = serving => result,
        () = stop => Ok(()),
    }
}

fn router(server: Arc<Server>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/assets/{name}", get(asset))
        .route("/api/runs", get(runs))
        .route("/api/log", get(log))
        .route("/api/curves", get(curves))
        .route("/api/workflow", get(workflow))
        .route("/api/settings", get(settings))
        .route("/api/episodes", get(episodes))
        .route("/api/episode", get(episode))
        .route("/api/tokens", get(tokens))
        .route("/api/gradient", get(gradient))
        .route("/api/play", get(play_progress).post(play))
        .route("/api/play/cancel", post(cancel_play))
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .fallback(async || json_response(StatusCode::NOT_FOUND, &json!({ "error": "there is no such path" })))
        .layer(middleware::from_fn_with_state(Arc::clone(&server), require_token))
        .layer(middleware::map_response(with_error_form))
        .layer(middleware::map_response(harden))
        .with_state(server)
}

/// Gives errors that requests get before they reach this program's code, such as that of a parameter with another type, the form
/// of the others.
async fn with_error_form(response: Response) -> Response {
    let status = response.status();
    let is_error = status.is_client_error() || status.is_server_error();
    let kind = response.headers().get(header::CONTENT_TYPE);
    if !is_error || kind.is_some_and(|kind| kind == "application/json") {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, LONGEST_ERROR).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let message = if text.is_empty() { status.canonical_reason().unwrap_or_default() } else { &text };
    let (formed, body) = json_response(status, &json!({ "error": message })).into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    parts.headers.extend(formed.headers);
    Response::from_parts(parts, body)
}

/// Token in the address that the program prints.
#[derive(Deserialize)]
struct GivenToken {
    token: Option<String>,
}

/// Refuses requests from other sites and without the token. The token in an address becomes a cookie, and leaves
/// the address.
async fn require_token(State(server): Shared, request: Request, next: Next) -> Response {
    let acts = request.method() != Method::GET && request.method() != Method::HEAD;
    if let Err(refusal) = check_origin(request.headers(), acts) {
        return refusal.into_response();
    }
    if request.uri().path() == "/"
        && let Ok(Query(GivenToken { token: Some(given) })) = Query::try_from_uri(request.uri())
        && server.token.is(&given)
        && let Some(cookie) = server.token.cookie(server.port)
    {
        let mut response = text_response(StatusCode::SEE_OTHER, "text/plain", Body::empty());
        response.headers_mut().insert(header::LOCATION, HeaderValue::from_static("/"));
        response.headers_mut().insert(header::SET_COOKIE, cookie);
        return response;
    }
    if !server.token.is_in(request.headers(), server.port) {
        return Error::NoToken.into_response();
    }
    next.run(request).await
}

async fn page() -> Response {
    text_response(StatusCode::OK, "text/html; charset=utf-8", PAGE)
}

async fn asset(Path(name): Path<String>) -> Response {
    match ASSETS.iter().find(|asset| asset.name == name) {
        Some(asset) => text_response(StatusCode::OK, asset.kind, asset.text),
        None => json_response(StatusCode::NOT_FOUND, &json!({ "error": "there is no such file" })),
    }
}

/// Reads files on a thread of its own. A reader of a damaged file may panic; that costs its request only.
async fn read<T: Serialize + Send + 'static>(
    server: &Server,
    work: impl FnOnce(&Viewer) -> Result<T, Error> + Send + 'static,
) -> Response {
    let Ok(_permit) = server.readers.acquire().await else { return Error::Panicked.into_response() };
    let viewer = Arc::clone(&server.viewer);
    let result = tokio::task::spawn_blocking(move || work(&viewer).map(|value| serde_json::to_vec(&value)));
    match result.await {
        Ok(Ok(Ok(body))) => text_response(StatusCode::OK, "application/json", body),
        Ok(Err(error)) => error.into_response(),
        Ok(Ok(Err(_))) | Err(_) => Error::Panicked.into_response(),
    }
}

async fn runs(State(server): Shared) -> Response {
    read(&server, |viewer| Ok(viewer.runs())).await
}

#[derive(Deserialize)]
struct LogRequest {
    run: String,
    log: Log,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    line: u64,
}

async fn log(State(server): Shared, Query(asked): Query<LogRequest>) -> Response {
    read(&server, move |viewer| viewer.log(&asked.run, asked.log, asked.offset, asked.line)).await
}

#[derive(Deserialize)]
struct CurvesRequest {
    run: String,
    log: Log,
}

async fn curves(
    State(server): Shared,
    Query(asked): Query<CurvesRequest>,
    Query(request): Query<CurveRequest>,
) -> Response {
    read(&server, move |viewer| viewer.curves(&asked.run, asked.log, request)).await
}

#[derive(Deserialize)]
struct RunRequest {
    run: String,
}

async fn workflow(State(server): Shared, Query(asked): Query<RunRequest>) -> Response {
    read(&server, move |viewer| viewer.workflow(&asked.run)).await
}

async fn settings(State(server): Shared) -> Response {
    read(&server, |viewer| Ok(viewer.setting_docs())).await
}

async fn episodes(
    State(server): Shared,
    Query(run): Query<RunRequest>,
    Query(query): Query<EpisodeQuery>,
) -> Response {
    read(&server, move |viewer| viewer.episodes(&run.run, &query)).await
}

#[derive(Deserialize)]
struct EpisodeRequest {
    run: String,
    episode: String,
}

async fn episode(State(server): Shared, Query(asked): Query<EpisodeRequest>) -> Response {
    read(&server, move |viewer| viewer.episode(&asked.run, &asked.episode)).await
}

#[derive(Deserialize)]
struct TokensRequest {
    run: String,
    episode: String,
    agent: String,
    visit: u32,
    branch: u32,
    call: Option<u32>,
}

async fn tokens(State(server): Shared, Query(asked): Query<TokensRequest>) -> Response {
    let TokensRequest { run, episode, agent, visit, branch, call } = asked;
    let position = CompletionPosition { agent, visit, branch, call };
    read(&server, move |viewer| viewer.tokens(&run, &episode, &position)).await
}

#[derive(Deserialize)]
struct GradientRequest {
    epoch: u32,
    token: usize,
}

async fn gradient(
    State(server): Shared,
    Query(asked): Query<TokensRequest>,
    Query(token): Query<GradientRequest>,
) -> Response {
    let TokensRequest { run, episode, agent, visit, branch, call } = asked;
    let position = CompletionPosition { agent, visit, branch, call };
    let token = TokenPosition { epoch: token.epoch, token: token.token };
    read(&server, move |viewer| viewer.gradient(&run, &episode, &position, &token)).await
}

/// Requires JSON, which no form of another site can send.
async fn play(State(server): Shared, headers: HeaderMap, body: Bytes) -> Response {
    let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
    if !is_json {
        return Error::Refused("a request that plays an episode must be JSON").into_response();
    }
    match serde_json::from_slice::<PlayRequest>(&body) {
        Ok(request) => read(&server, move |viewer| Ok(json!({ "id": viewer.play(request)? }))).await,
        Err(error) => Error::Body(error).into_response(),
    }
}

async fn cancel_play(State(server): Shared) -> Response {
    read(&server, |viewer| viewer.cancel_play().map(|()| json!({}))).await
}

#[derive(Deserialize)]
struct ProgressRequest {
    id: u64,
    #[serde(default)]
    after: usize,
}

async fn play_progress(State(server): Shared, Query(asked): Query<ProgressRequest>) -> Response {
    match server.viewer.play_progress(asked.id, asked.after).await {
        Ok(progress) => json_response(StatusCode::OK, &progress),
        Err(error) => error.into_response(),
    }
}
