//! `POST /update_weights` and `POST /update_weight_version`, `GET /weight_info`: new weights of whole models.
//!
//! vLLM has the paths; the fields of `/update_weights` are this program's: weights come from a folder, or as the
//! difference from the present ones, and the response has the checksum of what was loaded.

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::Response;
use pl_types::WeightSource;
use serde::Deserialize;
use serde_json::json;

use crate::body;
use crate::error::ApiError;
use crate::models::ServedModel;
use crate::pause::refused;
use crate::response;
use crate::service::Service;

#[derive(Deserialize)]
struct UpdateRequest {
    model: Option<String>,
    weights_path: PathBuf,
    #[serde(default)]
    format: Format,
    weight_version: u64,
}

/// Form of the files.
#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// Hugging Face folder.
    #[default]
    Full,
    /// Difference from the present weights.
    Delta,
}

#[derive(Deserialize)]
struct VersionRequest {
    model: Option<String>,
    /// A number, possibly as a text.
    new_version: serde_json::Value,
}

#[derive(Deserialize)]
pub(crate) struct InfoQuery {
    model: Option<String>,
}

pub(crate) async fn update(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let control = service.control()?;
    let asked: UpdateRequest = body::parse(&headers, &bytes, &[])?;
    let model = service.policy(asked.model.as_deref())?;
    let source = match asked.format {
        Format::Full => WeightSource::Folder(asked.weights_path),
        Format::Delta => WeightSource::Delta(asked.weights_path),
    };
    let checksum = control
        .load_weights(model.policy, source, asked.weight_version)
        .await
        .map_err(|error| ApiError::field("weights_path", error.to_string()))?;
    // The hash of the model's files is not that of its weights any more.
    service.replace_model(ServedModel { model_hash: String::new(), ..ServedModel::clone(&model) });
    Ok(response::ok(&json!({
        "model": model.name,
        "weight_version": asked.weight_version.to_string(),
        "checksum": checksum,
    })))
}

pub(crate) async fn update_version(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    bytes: Bytes,
) -> Result<Response, ApiError> {
    let control = service.control()?;
    let asked: VersionRequest = body::parse(&headers, &bytes, &[])?;
    let model = service.policy(asked.model.as_deref())?;
    let number = asked.new_version.as_u64().or_else(|| asked.new_version.as_str()?.parse().ok());
    let version =
        number.ok_or_else(|| ApiError::field("new_version", "versions of this server are whole numbers"))?;
    control.set_version(model.policy, version).await.map_err(refused)?;
    Ok(response::ok(&json!({ "model": model.name, "weight_version": version.to_string() })))
}

pub(crate) async fn info(
    State(service): State<Arc<Service>>,
    Query(query): Query<InfoQuery>,
) -> Result<Response, ApiError> {
    let control = service.control()?;
    let model = service.policy(query.model.as_deref())?;
    let info = control.weight_info(model.policy).await.map_err(refused)?;
    Ok(response::ok(&json!({
        "model": model.name,
        "weight_version": info.version.to_string(),
        "checksum": info.checksum,
    })))
}
