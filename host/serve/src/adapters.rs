//! `POST /v1/load_lora_adapter` and `POST /v1/unload_lora_adapter`, as vLLM has them.
//!
//! Additions to vLLM's fields: `base_model`, the name of a model of this server on whose base model the adapter is,
//! and `weight_version`, which completions carry. The response has the `checksum` of the file of tensors that was read.

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use serde_json::json;

use crate::adapter_loader::{AdapterError, LoadedAdapters};
use crate::body;
use crate::error::ApiError;
use crate::models::ServedModel;
use crate::response;
use crate::service::Service;

#[derive(Deserialize)]
struct LoadRequest {
    lora_name: String,
    lora_path: PathBuf,
    base_model: Option<String>,
    #[serde(default)]
    weight_version: u64,
}

#[derive(Deserialize)]
struct UnloadRequest {
    lora_name: String,
}

fn adapters(service: &Service) -> Result<&LoadedAdapters, ApiError> {
    let message = "this server loads no adapters; start it with --allow-runtime-adapters";
    service.adapters.as_ref().ok_or_else(|| ApiError::with_status(StatusCode::NOT_FOUND, message))
}

pub(crate) async fn load(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let adapters = adapters(&service)?;
    let asked: LoadRequest = body::parse(&headers, &bytes, &[("load_inplace", json!(false))])?;
    let mut names = adapters.names.lock().await;
    let name = asked.lora_name;
    if name.trim().is_empty() {
        return Err(ApiError::field("lora_name", "`lora_name` is empty; give the adapter a name"));
    }
    if service.names().contains(&name) {
        let message = format!("`{name}` has already been loaded; give the new adapter another name");
        return Err(ApiError::field("lora_name", message));
    }
    let most = service.config.limits.adapters;
    if names.len() >= most {
        let message = format!("{most} adapters are loaded, as many as this server takes; unload one first");
        return Err(ApiError::field("lora_name", message));
    }
    let base = base(&service, asked.base_model.as_deref())?;
    let loading = adapters.loader.load(base.policy, &asked.lora_path, asked.weight_version);
    let loaded = loading.await.map_err(|error| ApiError::field("lora_path", error.to_string()))?;
    service.add_model(ServedModel {
        name: name.clone(),
        policy: loaded.policy,
        is_adapter: true,
        ..ServedModel::clone(&base)
    });
    let message = format!("the adapter `{name}` was loaded");
    names.insert(name);
    Ok(response::ok(&json!({ "message": message, "checksum": loaded.checksum })))
}

pub(crate) async fn unload(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let adapters = adapters(&service)?;
    let asked: UnloadRequest = body::parse(&headers, &bytes, &[])?;
    let mut names = adapters.names.lock().await;
    let name = asked.lora_name;
    let model = service.models().into_iter().find(|model| model.name == name);
    let Some(model) = model.filter(|_| names.remove(&name)) else {
        let message = format!("there is no adapter `{name}` that was loaded");
        return Err(ApiError::with_status(StatusCode::NOT_FOUND, message));
    };
    service.remove_model(&name);
    let failed =
        |error: AdapterError| ApiError::with_status(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    adapters.loader.unload(model.policy).await.map_err(failed)?;
    Ok(response::ok(&json!({ "message": format!("the adapter `{name}` was unloaded") })))
}

/// Returns the model on whose base an adapter is loaded. Without a name, all models must have the same base.
fn base(service: &Service, name: Option<&str>) -> Result<Arc<ServedModel>, ApiError> {
    if name.is_some() {
        let of_base = |error| ApiError { param: Some("base_model".into()), ..error };
        return service.policy(name).map_err(of_base);
    }
    let models = service.models();
    let first =
        models.first().filter(|first| models.iter().all(|model| model.model_hash == first.model_hash));
    let message = "this server has several base models; name one of its models with `base_model`";
    first.map(Arc::clone).ok_or_else(|| ApiError::field("base_model", message))
}
