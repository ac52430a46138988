//! Responses with a body of JSON.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

/// Media type of JSON.
pub(crate) const JSON: &str = "application/json";

/// Returns a response with a body of JSON.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    // Serialising fails only for maps with keys that aren't strings, which no response has.
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}

/// Returns a successful response with a body of JSON.
pub(crate) fn ok(value: &impl Serialize) -> Response {
    json(StatusCode::OK, value)
}
