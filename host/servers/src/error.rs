//! Errors of servers, and their effect on the request and on the server.

use std::time::Duration;

/// Error of a server or of a request to one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// The address of a server is not usable, or the HTTP client can't be created.
    #[error("server {server}: {problem}")]
    Setup {
        /// Address of the server.
        server: String,
        problem: String,
    },
    /// The server can't be reached, or the connection broke before the whole answer had arrived.
    #[error("server {server} can't be reached: {problem}")]
    Unreachable { server: String, problem: String },
    /// The server has as many requests as it takes.
    #[error("server {server} is busy (status 429): {message}")]
    Busy {
        server: String,
        message: String,
        /// Time after which the server wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The server is not ready, or shutting down.
    #[error("server {server} is unavailable (status {status}): {message}")]
    Unavailable { server: String, status: u16, message: String, retry_after: Option<Duration> },
    /// The answer took too long.
    #[error(
        "server {server}, request {request}: no answer within {} s; raise `timeout` of the server if it needs longer",
        limit.as_secs_f64()
    )]
    Timeout { server: String, request: String, limit: Duration },
    /// The server failed on a request.
    #[error("server {server}, request {request}: the server failed with status {status}: {message}")]
    Failed { server: String, request: String, status: u16, message: String },
    /// The server's answer can't be right.
    #[error("server {server}, request {request}: wrong answer: {problem}")]
    Answer { server: String, request: String, problem: String },
    /// The server's filter has ended the completion.
    #[error(
        "server {server}, request {request}: the server's content filter ended the completion (`content_filter`), so that its text \
         is not the model's"
    )]
    Filtered { server: String, request: String },
    /// The server has no such model, adapter or path.
    #[error("server {server}, request {request}: not found: {message}")]
    NotFound { server: String, request: String, message: String },
    /// The server refuses the request.
    #[error("server {server}, request {request}: refused with status {status}: {message}")]
    Refused { server: String, request: String, status: u16, message: String },
    /// The server can't be used for the policies of the workflow.
    #[error("server {server} is not usable: {problem}\nhint: {hint}")]
    Unfit { server: String, problem: String, hint: String },
    /// No server of a fleet can be reached.
    #[error("no server of `{fleet}` can be reached: {last}")]
    NoServer {
        fleet: String,
        /// Error of the last server.
        last: String,
    },
}

/// Effect of an error on its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The request is sent again, and this doesn't count.
    Moves,
    /// The request is sent again, up to the fleet's `retries`.
    Counts,
    /// The request fails.
    Ends,
}

impl ServerError {
    pub(crate) fn effect(&self) -> Effect {
        match self {
            Self::Unreachable { .. } | Self::Busy { .. } | Self::Unavailable { .. } => Effect::Moves,
            Self::Timeout { .. } | Self::Failed { .. } | Self::Answer { .. } | Self::NotFound { .. } => {
                Effect::Counts
            }
            // Another server may be set up correctly.
            Self::Unfit { .. } => Effect::Counts,
            Self::Setup { .. } | Self::Refused { .. } | Self::Filtered { .. } | Self::NoServer { .. } => {
                Effect::Ends
            }
        }
    }

    /// True if the server has to be set up differently.
    pub(crate) fn is_permanent(&self) -> bool {
        matches!(self, Self::Setup { .. } | Self::NotFound { .. } | Self::Refused { .. } | Self::Unfit { .. })
    }

    /// True if the server may have been restarted: what it had loaded may be gone.
    pub(crate) fn may_follow_restart(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Unavailable { .. } | Self::Unfit { .. })
    }

    /// Returns the time that the server asks to be left alone.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after, .. } | Self::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }
}
