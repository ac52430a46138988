//! Weights of whole models on vLLM and on `pl-host serve`.
//!
//! `pl-host serve` takes a folder or the difference from the weights that it has, and tells the checksum of what it
//! loaded. vLLM reads a folder again by `reload_weights` of its workers, which it offers with VLLM_SERVER_DEV_MODE=1.
//! It tells no checksum of the whole, so the version that it reports, with each completion too, has the checksum of the
//! folder: a server that was restarted, or that somebody else gave other weights, is noticed.

use serde_json::{Value, json};

use crate::error::ServerError;
use crate::http::HttpClient;
use crate::identity::Identity;
use crate::request::RemoteWeights;

const SAME_FILES_HINT: &str =
    "the server must see the same files: check the file system that both machines share";

const OWN_HINT: &str = "start `pl-host serve` with `--allow-runtime-weights`, on a workflow with a policy of this name that \
                        has no `lora`";

const VLLM_HINT: &str = "start vLLM with VLLM_SERVER_DEV_MODE=1, or give the policy `lora { … }`";

const RELOAD_HINT: &str = "the server must reach the folder under the same path, and have a model of the same form; \
                           start it again, since its weights are incomplete";

/// Version of vLLM's weights while others replace them.
const LOADING: &str = "loading";

/// Number of digits of a checksum in a version of vLLM's weights.
const DIGITS: usize = 16;

/// Error of files that are others than those of the run.
pub(crate) fn other_checksum(http: &HttpClient, name: &str, found: &str, expected: &str) -> ServerError {
    let problem =
        format!("the weights of {name} that it has loaded have the checksum {found}, not {expected}");
    http.unfit(problem, SAME_FILES_HINT)
}

/// Returns the version that completions carry once a server has these weights.
pub(crate) fn version(identity: &Identity, weights: &RemoteWeights) -> String {
    let RemoteWeights { version, checksum, .. } = weights;
    match identity.is_pl_host {
        true => version.to_string(),
        false => format!("{version}-{}", checksum.get(..DIGITS).unwrap_or(checksum)),
    }
}

/// Replaces the weights of a model, unless the server has these already.
pub(crate) async fn load(
    http: &HttpClient,
    identity: &Identity,
    weights: &RemoteWeights,
) -> Result<(), ServerError> {
    let label = format!("for version {} of {}", weights.version, weights.name);
    match identity.is_pl_host {
        true => load_own(http, weights, &label).await,
        false => reload(http, &version(identity, weights), weights, &label).await,
    }
}

/// Makes the refusal of a request about weights one of the server.
fn refusal(
    http: &HttpClient,
    weights: &RemoteWeights,
    hint: &'static str,
) -> impl Fn(ServerError) -> ServerError {
    move |error| match error {
        ServerError::NotFound { message, .. }
        | ServerError::Refused { message, .. }
        | ServerError::Failed { message, .. } => {
            http.unfit(format!("it doesn't replace the weights of `{}`: {message}", weights.name), hint)
        }
        other => other,
    }
}

async fn load_own(http: &HttpClient, weights: &RemoteWeights, label: &str) -> Result<(), ServerError> {
    let RemoteWeights { name, folder, checksum, delta, version } = weights;
    let allowed = refusal(http, weights, OWN_HINT);
    let present = http.get_with("/weight_info", ("model", name), label).await.map_err(&allowed)?;
    let field = |answer: &Value, key: &str| answer.get(key).and_then(Value::as_str).map(str::to_owned);
    let found = field(&present, "checksum");
    if found.as_ref() == Some(checksum) {
        let body = json!({ "model": &**name, "new_version": version.to_string() });
        return http.post("/update_weight_version", &body, label).await.map_err(&allowed).map(drop);
    }
    let (format, path) = match delta {
        Some((path, from)) if found.as_ref() == Some(from) => ("delta", path),
        _ => ("full", folder),
    };
    let body = json!({
        "model": &**name,
        "weights_path": path,
        "format": format,
        "weight_version": version,
    });
    let answer = http.post("/update_weights", &body, label).await.map_err(&allowed)?;
    match field(&answer, "checksum") {
        Some(loaded) if loaded == *checksum => Ok(()),
        other => Err(other_checksum(http, name, other.as_deref().unwrap_or("none"), checksum)),
    }
}

/// Lets vLLM read a folder again, with no request in progress and no prefix of the weights before in its cache.
async fn reload(
    http: &HttpClient,
    version: &str,
    weights: &RemoteWeights,
    label: &str,
) -> Result<(), ServerError> {
    let allowed = refusal(http, weights, VLLM_HINT);
    let present = http.get("/weight_info").await.map_err(&allowed)?;
    if present.get("weight_version").and_then(Value::as_str) == Some(version) {
        return Ok(());
    }
    http.post("/pause?mode=wait&clear_cache=true", &json!({}), label).await.map_err(&allowed)?;
    let loaded = replace(http, version, weights, label).await;
    // Also after a failure: requests of others would wait forever.
    let resumed = http.post("/resume", &json!({}), label).await.map_err(&allowed);
    loaded.and(resumed.map(drop))
}

async fn replace(
    http: &HttpClient,
    version: &str,
    weights: &RemoteWeights,
    label: &str,
) -> Result<(), ServerError> {
    let refused = refusal(http, weights, VLLM_HINT);
    mark_incomplete(http, label).await.map_err(&refused)?;
    let body = json!({ "method": "reload_weights", "kwargs": { "weights_path": weights.folder } });
    let reloaded = http.post("/collective_rpc", &body, label).await;
    reloaded.map_err(refusal(http, weights, RELOAD_HINT))?;
    mark(http, version, label).await.map_err(refused)
}

/// Marks the weights of a server as incomplete, by a version that no request expects.
pub(crate) async fn mark_incomplete(http: &HttpClient, label: &str) -> Result<(), ServerError> {
    mark(http, LOADING, label).await
}

async fn mark(http: &HttpClient, version: &str, label: &str) -> Result<(), ServerError> {
    http.post("/update_weight_version", &json!({ "new_version": version }), label).await.map(drop)
}
