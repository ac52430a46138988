//! Responses with their media types.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde::Serialize;

/// Returns a response with a body of JSON.
pub(crate) fn json_response(status: StatusCode, value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(body) => text_response(status, "application/json", body),
        Err(_) => text_response(StatusCode::INTERNAL_SERVER_ERROR, "application/json", Body::empty()),
    }
}

/// Returns a response with a body of a media type.
pub(crate) fn text_response(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
