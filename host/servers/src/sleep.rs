//! Sleep of servers that share a device with the trainer, by vLLM's `/sleep`, `/wake_up` and `/is_sleeping`.
//!
//! vLLM has them with `--enable-sleep-mode` and VLLM_SERVER_DEV_MODE=1. `pl-host serve` keeps its weights: it has level
//! 1 alone.

use serde_json::{Value, json};

use crate::config::SleepLevel;
use crate::error::ServerError;
use crate::http::HttpClient;
use crate::identity::Identity;
use crate::vllm_weights;

const LABEL: &str = "to sleep";

const VLLM_HINT: &str =
    "start vLLM with `--enable-sleep-mode` and VLLM_SERVER_DEV_MODE=1, or set `sleep = 0`";

const OWN_HINT: &str = "start `pl-host serve` with `--allow-runtime-weights`, or set `sleep = 0`";

/// Puts a server to sleep. It must have no request in progress, and no adapter if its weights are dropped.
///
/// # Errors
/// [`ServerError::Unfit`] if the server doesn't sleep at this level.
pub(crate) async fn sleep(
    http: &HttpClient,
    identity: &Identity,
    level: SleepLevel,
) -> Result<(), ServerError> {
    let number = match level {
        SleepLevel::Never => return Ok(()),
        SleepLevel::KeepWeights => 1,
        SleepLevel::DropWeights => 2,
    };
    if level == SleepLevel::DropWeights {
        if identity.is_pl_host {
            let hint = "set `sleep = 1`, which frees the KV cache";
            return Err(http.unfit("`pl-host serve` doesn't drop its weights", hint));
        }
        // After waking, the server must not claim the version of the weights that it has dropped.
        vllm_weights::mark_incomplete(http, LABEL).await.map_err(unfit(http, identity))?;
    }
    let path = format!("/sleep?level={number}");
    http.post(&path, &json!({}), LABEL).await.map(drop).map_err(unfit(http, identity))
}

/// Wakes a server if it is asleep. A vLLM that had dropped its weights reads those of the folder that it was started
/// with again.
///
/// # Errors
/// [`ServerError::Unfit`] if the server doesn't sleep at this level.
pub(crate) async fn wake(
    http: &HttpClient,
    identity: &Identity,
    level: SleepLevel,
) -> Result<(), ServerError> {
    if level == SleepLevel::Never {
        return Ok(());
    }
    let unfit = unfit(http, identity);
    let answer = http.get("/is_sleeping").await.map_err(&unfit)?;
    if answer.get("is_sleeping").and_then(Value::as_bool) != Some(true) {
        return Ok(());
    }
    let post = async |path: &str, body: Value| http.post(path, &body, "to wake up").await.map_err(&unfit);
    if level == SleepLevel::DropWeights {
        // The KV cache comes last, so that both weights and cache are not needed twice at a time.
        post("/wake_up?tags=weights", json!({})).await?;
        post("/collective_rpc", json!({ "method": "reload_weights" })).await?;
        post("/wake_up?tags=kv_cache", json!({})).await?;
    } else {
        post("/wake_up", json!({})).await?;
    }
    Ok(())
}

/// Makes a refusal one of the server.
fn unfit(http: &HttpClient, identity: &Identity) -> impl Fn(ServerError) -> ServerError {
    let hint = if identity.is_pl_host { OWN_HINT } else { VLLM_HINT };
    move |error| match error {
        ServerError::NotFound { message, .. }
        | ServerError::Refused { message, .. }
        | ServerError::Failed { message, .. } => http.unfit(format!("it can't sleep: {message}"), hint),
        other => other,
    }
}
