//! Bodies of requests as JSON.

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::ApiError;

/// Parses a body of JSON, as [`object`] and [`read`] do.
///
/// # Errors
/// Those of both.
pub(crate) fn parse<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: &Bytes,
    unsupported: &[(&str, Value)],
) -> Result<T, ApiError> {
    read(&object(headers, body, unsupported)?)
}

/// Returns the object that a body of JSON is, without members that are null: they are absent. Refuses the fields in
/// `unsupported` unless they have the value that is given with them, which asks for nothing.
///
/// # Errors
/// Status 415 if the body is not said to be JSON: a page of another site can't send such a request without
/// being asked. Status 400 if the body is not an object, or has a field that is refused.
pub(crate) fn object(
    headers: &HeaderMap,
    body: &Bytes,
    unsupported: &[(&str, Value)],
) -> Result<Value, ApiError> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        let message = "send the body as JSON, with the header `Content-Type: application/json`";
        return Err(ApiError::with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    let mut fields: Map<String, Value> = serde_json::from_slice(body)
        .map_err(|e| ApiError::body(format!("the body is not a JSON object: {e}")))?;
    remove_nulls(&mut fields);
    refuse(&fields, unsupported)?;
    Ok(Value::Object(fields))
}

/// Refuses the fields in `unsupported` unless they have the value that is given with them.
///
/// # Errors
/// Status 400 for the first of them.
pub(crate) fn refuse(fields: &Map<String, Value>, unsupported: &[(&str, Value)]) -> Result<(), ApiError> {
    let asks = |(name, neutral): &&(&str, Value)| fields.get(*name).is_some_and(|value| value != neutral);
    let Some((name, _)) = unsupported.iter().find(asks) else { return Ok(()) };
    let instead = match name.starts_with("guided_") {
        true => "send `structured_outputs` instead, as to vLLM since 0.12",
        false => "leave it out",
    };
    Err(ApiError::field(*name, format!("`{name}` is not supported by this server; {instead}")))
}

/// Removes the null members of a request, of its messages, `stream_options` and `structured_outputs`, and those of
/// `sampling_params`. Clients send them for what is absent, such as the message of a completion as OpenAI's client dumps it.
/// Elsewhere, as in the schema of a tool, null is a value.
fn remove_nulls(fields: &mut Map<String, Value>) {
    let is_given = |_: &String, value: &mut Value| !value.is_null();
    fields.retain(is_given);
    for name in ["stream_options", "structured_outputs"] {
        if let Some(Value::Object(options)) = fields.get_mut(name) {
            options.retain(is_given);
        }
    }
    if let Some(Value::Object(params)) = fields.get_mut("sampling_params") {
        remove_nulls(params);
    }
    if let Some(Value::Array(messages)) = fields.get_mut("messages") {
        for message in messages.iter_mut().filter_map(Value::as_object_mut) {
            message.retain(is_given);
        }
    }
}

/// Reads a request, or a part of its fields. Two types that share the fields of a request are read one after the other: if one
/// were flattened into the other, errors would not know where they are.
///
/// # Errors
/// Status 400 if a field has another type, or is missing. The error has its path.
pub(crate) fn read<T: DeserializeOwned>(object: &Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(object).map_err(|error| {
        let (problem, path) = (error.inner().to_string(), error.path());
        let is_root = path.iter().next().is_none();
        // Serde reports a missing field as an error of the object that should have it.
        let missing = problem.strip_prefix("missing field `").and_then(|rest| rest.strip_suffix('`'));
        match missing {
            Some(name) if is_root => ApiError::field(name, format!("invalid request: `{name}` is missing")),
            Some(name) => {
                let param = format!("{path}.{name}");
                let message = format!("invalid request: `{param}` is missing");
                ApiError::field(param, message)
            }
            None if is_root => ApiError::body(format!("invalid request: {problem}")),
            None => ApiError::field(path.to_string(), format!("invalid request: `{path}`: {problem}")),
        }
    })
}
