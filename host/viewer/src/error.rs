//! Errors of the viewer and their responses.

use std::path::PathBuf;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::response::json_response;
use crate::workflow::Unavailable;

/// Errors of the viewer. Each names the run, the file or the parameter.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of a run folder can't be read.
    #[error(transparent)]
    Record(#[from] pl_record::Error),
    /// A file operation failed.
    #[error("cannot read {}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    /// A folder to view has no runs.
    #[error(
        "{} has no run folder; `pl-host run FILE` writes one, or name another folder",
        path.display()
    )]
    NoRuns { path: PathBuf },
    /// There is no run of this name.
    #[error("there is no run {0:?}; it may have been deleted or renamed: reload the page")]
    UnknownRun(String),
    /// There is no such episode.
    #[error("the run {run} has no episode {episode}; the page Episodes lists all of them")]
    UnknownEpisode { run: String, episode: String },
    /// There is no such completion.
    #[error(
        "episode {episode} has no completion of {agent} at node visit {visit}, branch {branch}{}",
        call.map_or_else(String::new, |call| format!(", call {call}"))
    )]
    UnknownCompletion { episode: String, agent: String, visit: u32, branch: u32, call: Option<u32> },
    /// A part of a run folder is a link, which may lead out of it.
    #[error("{} is a link; files of a run are only read inside of its folder", path.display())]
    Link { path: PathBuf },
    /// A file is larger than a viewer reads.
    #[error("{} has more than {limit} {unit}, which is more than the viewer reads", path.display())]
    TooLarge { path: PathBuf, limit: u64, unit: &'static str },
    /// More episodes than fit into the index were to be sorted.
    #[error("these are more episodes than the viewer sorts at a time; choose a range of steps")]
    TooMany,
    /// A parameter of a request is invalid.
    #[error("the parameter {name:?} is {value:?}; {expected}")]
    Parameter { name: &'static str, value: String, expected: &'static str },
    /// The body of a request is invalid.
    #[error("the request can't be read: {0}")]
    Body(serde_json::Error),
    /// Prompts are needed, but can't be read.
    #[error("{}: {reason}", path.display())]
    NoPrompts { path: PathBuf, reason: String },
    /// An export can't be written.
    #[error("cannot write: {0}")]
    Output(std::io::Error),
    /// A request comes from elsewhere than the server's own page.
    #[error("{0}")]
    Refused(&'static str),
    /// A request has no token, or another one.
    #[error("open the address that `pl-host view` has printed: it has the token of this server")]
    NoToken,
    /// Episodes are not played from the page.
    #[error("this viewer plays no episodes; start `pl-host view` with --play")]
    NoPlayer,
    /// An episode is being played.
    #[error("an episode of {run} is being played; wait for its end, or cancel it")]
    Playing { run: String },
    /// Another episode was started since, or none.
    #[error("this episode is no longer played; start another one")]
    UnknownPlay,
    /// A part of a run can't be shown.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// Work on a request ended unexpectedly.
    #[error("the request failed unexpectedly; a file of the run may be damaged")]
    Panicked,
}

impl Error {
    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { path, source }
    }

    fn status(&self) -> StatusCode {
        match self {
            Error::UnknownRun(_)
            | Error::UnknownEpisode { .. }
            | Error::UnknownCompletion { .. }
            | Error::UnknownPlay
            | Error::NoRuns { .. } => StatusCode::NOT_FOUND,
            Error::Parameter { .. } | Error::Body(_) => StatusCode::BAD_REQUEST,
            Error::Playing { .. } => StatusCode::CONFLICT,
            Error::Refused(_) | Error::NoPlayer => StatusCode::FORBIDDEN,
            Error::NoToken => StatusCode::UNAUTHORIZED,
            Error::Record(_)
            | Error::Io { .. }
            | Error::Link { .. }
            | Error::TooLarge { .. }
            | Error::TooMany
            | Error::NoPrompts { .. }
            | Error::Unavailable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Error::Output(_) | Error::Panicked => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        json_response(self.status(), &json!({ "error": self.to_string() }))
    }
}
