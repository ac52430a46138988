//! Errors of requests, in the form of OpenAI's API.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use pl_types::GenerateError;
use serde_json::{Value, json};

use crate::response;

/// Error of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    /// The problem, and what to do.
    pub(crate) message: String,
    /// Field of the body that the error is about.
    pub(crate) param: Option<String>,
    /// Name of the error that programs compare.
    pub(crate) code: Option<&'static str>,
}

impl ApiError {
    /// Error in a field of the body: status 400.
    pub(crate) fn field(param: impl Into<String>, message: impl Into<String>) -> Self {
        let (status, message) = (StatusCode::BAD_REQUEST, message.into());
        Self { status, message, param: Some(param.into()), code: None }
    }

    /// Error of the body as a whole: status 400.
    pub(crate) fn body(message: impl Into<String>) -> Self {
        Self { status: StatusCode::BAD_REQUEST, message: message.into(), param: None, code: None }
    }

    pub(crate) fn with_status(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), param: None, code: None }
    }

    /// The prompt, or the prompt and the completion together, don't fit into the model: status 400.
    pub(crate) fn too_long(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: Some("context_length_exceeded"), ..Self::field(param, message) }
    }

    /// The task of a team doesn't fit into its models: status 400.
    pub(crate) fn task_too_long() -> Self {
        // Clients tell by these words that the context is too small.
        let message = "the episode ended at a limit before an agent acted: the task is longer than the model's context length \
                       leaves room for; shorten it";
        Self::too_long("messages", message)
    }

    /// The server has as many requests in progress as it takes: status 429.
    pub(crate) fn busy(requests: usize) -> Self {
        Self {
            status: StatusCode::TOO_MANY_REQUESTS,
            message: format!(
                "the server takes {requests} requests at a time and has no room for this one; try again later"
            ),
            param: None,
            code: Some("rate_limit_exceeded"),
        }
    }

    /// Returns the error with the field of the request that has the prompt, if it is about the prompt.
    pub(crate) fn with_prompt(self, field: &str) -> Self {
        match self.param.as_deref() {
            Some("prompt") => Self { param: Some(field.to_owned()), ..self },
            _ => self,
        }
    }

    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::NOT_FOUND => "not_found_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        }
    }

    /// Returns the body of the error's response.
    pub(crate) fn to_json(&self) -> Value {
        json!({ "error": {
            "message": self.message,
            "type": self.kind(),
            "param": self.param,
            "code": self.code,
        } })
    }
}

impl From<GenerateError> for ApiError {
    fn from(error: GenerateError) -> Self {
        match error {
            // The index of a policy means nothing to a client.
            GenerateError::Request { parameter, reason, .. } => {
                ApiError { param: parameter.map(str::to_owned), ..ApiError::body(reason) }
            }
            GenerateError::Aborted => ApiError::with_status(
                StatusCode::SERVICE_UNAVAILABLE,
                "the server was paused; try again later",
            ),
            GenerateError::Stopped => {
                ApiError::with_status(StatusCode::SERVICE_UNAVAILABLE, "the server is shutting down")
            }
            GenerateError::Setup(reason) | GenerateError::Failed { reason, .. } => ApiError::with_status(
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("generation failed: {reason}"),
            ),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = response::json(self.status, &self.to_json());
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
