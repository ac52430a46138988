//! Routes of the server. All of them only read.

use std::future::Future;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::assets::{ASSETS, PAGE};
use crate::error::Error;
use crate::logs::Log;
use crate::query::EpisodeQuery;
use crate::response::{json_response, text_response};
use crate::security::{AccessToken, check_origin, harden};
use crate::tokens::CompletionPosition;
use crate::viewer::Viewer;

/// Requests that read files at the same time.
const READERS: usize = 4;

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
        .route("/api/workflow", get(workflow))
        .route("/api/episodes", get(episodes))
        .route("/api/episode", get(episode))
        .route("/api/tokens", get(tokens))
        .fallback(async || json_response(StatusCode::NOT_FOUND, &json!({ "error": "there is no such path" })))
        .layer(middleware::from_fn_with_state(Arc::clone(&server), require_token))
        .layer(middleware::map_response(harden))
        .with_state(server)
}

/// Token in the address that the program prints.
#[derive(Deserialize)]
struct GivenToken {
    token: Option<String>,
}

/// Refuses requests from other sites and without the token. The token in an address becomes a cookie, and leaves
/// the address.
async fn require_token(State(server): Shared, request: Request, next: Next) -> Response {
    if let Err(refusal) = check_origin(request.headers()) {
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
struct RunRequest {
    run: String,
}

async fn workflow(State(server): Shared, Query(asked): Query<RunRequest>) -> Response {
    read(&server, move |viewer| viewer.workflow(&asked.run)).await
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
}

async fn tokens(State(server): Shared, Query(asked): Query<TokensRequest>) -> Response {
    let TokensRequest { run, episode, agent, visit, branch } = asked;
    let position = CompletionPosition { agent, visit, branch };
    read(&server, move |viewer| viewer.tokens(&run, &episode, &position)).await
}
