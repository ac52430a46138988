//! Bodies of requests as JSON.

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::ApiError;

/// Parses a body of JSON. Refuses the fields in `unsupported` unless they are null or have the value that is
/// given with them, which asks for nothing.
///
/// # Errors
/// Status 415 if the body is not said to be JSON: a page of another site can't send such a request without
/// being asked. Status 400 if the body can't be parsed.
pub(crate) fn parse<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: &Bytes,
    unsupported: &[(&str, Value)],
) -> Result<T, ApiError> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let message = "send the body as JSON, with the header `Content-Type: application/json`";
        return Err(ApiError::with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let fields: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|e| ApiError::body(format!("the body is not a JSON object: {e}")))?;
    for (name, neutral) in unsupported {
        if fields.get(*name).is_some_and(|value| !value.is_null() && value != neutral) {
            return Err(ApiError::field(
                *name,
                format!("`{name}` is not supported by this server; leave it out"),
            ));
        }
    }
    serde_json::from_value(Value::Object(fields)).map_err(|e| ApiError::body(format!("invalid request: {e}")))
}
