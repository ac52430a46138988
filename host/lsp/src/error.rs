//! Errors of the server.

use lsp_server::{ErrorCode, ProtocolError, ResponseError};
use pl_dsl::NameError;

/// Reason why the server stopped other than by `shutdown` and `exit`.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The editor closed the connection.
    #[error("the editor disconnected without sending `shutdown` and `exit`")]
    Disconnected,
    /// The editor sent `exit` first.
    #[error("the editor sent `exit` without `shutdown`")]
    ExitWithoutShutdown,
    /// The first message was not `initialize`.
    #[error("the editor did not initialize the server: {0}")]
    Handshake(#[source] ProtocolError),
    /// The editor closed its end of the output.
    #[error("the editor stopped reading the messages of the server")]
    OutputClosed,
    /// A pipe broke, or a message was malformed.
    #[error("the connection to the editor failed: {0}")]
    Transport(#[source] std::io::Error),
    /// The system refused a thread.
    #[error("the checking thread can't be started: {0}")]
    StartChecker(#[source] std::io::Error),
    /// The checking thread ended, which is a bug.
    #[error("the checking thread stopped")]
    CheckerStopped,
}

/// Reason why a request is refused.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("the method `{0}` is not supported")]
    UnknownMethod(String),
    #[error("invalid parameters: {0}")]
    InvalidParams(#[source] serde_json::Error),
    #[error("the result can't be written: {0}")]
    Serialize(#[source] serde_json::Error),
    #[error("the server is initialized already")]
    AlreadyInitialized,
    #[error("the server is shut down")]
    ShutDown,
    #[error(transparent)]
    Rename(#[from] RenameError),
}

/// Reason why a name can't be replaced by another.
#[derive(Debug, thiserror::Error)]
pub enum RenameError {
    #[error(transparent)]
    Refused(#[from] NameError),
    #[error("there is already a {kind} named `{name}`")]
    Taken { kind: &'static str, name: String },
}

impl From<RequestError> for ResponseError {
    fn from(error: RequestError) -> ResponseError {
        let code = match error {
            RequestError::UnknownMethod(_) => ErrorCode::MethodNotFound,
            RequestError::InvalidParams(_) => ErrorCode::InvalidParams,
            RequestError::Serialize(_) => ErrorCode::InternalError,
            RequestError::AlreadyInitialized | RequestError::ShutDown => ErrorCode::InvalidRequest,
            RequestError::Rename(_) => ErrorCode::RequestFailed,
        };
        ResponseError { code: code as i32, message: error.to_string(), data: None }
    }
}
