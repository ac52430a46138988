//! Errors of downloads, and their messages for the user.

use std::io;

use super::settings::Hub;
use super::source::HubRepository;

/// Error of a download.
#[derive(Debug)]
pub(super) enum FetchError {
    /// Only the cache may be used, and it lacks files.
    Offline,
    /// The hub does not answer.
    Unreachable(String),
    /// The hub does not answer, and the cache lacks files.
    Unavailable(String),
    /// The hub answered with an error status.
    Status { status: u16, code: String, message: String },
    /// The hub's answer is invalid.
    InvalidResponse(String),
    /// The connection was interrupted repeatedly.
    Interrupted { file: String, reason: String },
    /// A file does not have the size or checksum of the hub.
    Damaged { file: String, problem: String },
    /// The revision lacks a file.
    MissingFile { file: String, ggufs: Vec<String> },
    /// The repository has no such files of a data set.
    NoData { prefix: String },
    /// The repository is not a model in safetensors.
    NotAModel { missing: String, ggufs: Vec<String> },
    /// The cache can't be written or read.
    Cache(io::Error),
}

impl FetchError {
    /// Returns true if a later attempt may succeed, so that the cache may be used instead.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Status { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }

    /// Returns the error for the case that the cache lacks files too.
    pub(super) fn without_cache(self) -> Self {
        match self {
            Self::Unreachable(reason) => Self::Unavailable(reason),
            other => other,
        }
    }

    /// Returns the problem and the remedy.
    pub(super) fn explain(&self, hub: &Hub, repository: &HubRepository) -> String {
        let (cache, noun, endpoint) = (hub.cache.display(), repository.noun(), hub.shown_endpoint());
        let list = |names: &[String]| match names {
            [] => String::new(),
            some => format!("; the GGUF files are {}", some.join(", ")),
        };
        match self {
            Self::Offline => format!(
                "the {noun} is not (completely) in {cache}, and HF_HUB_OFFLINE is set; unset it, or download the {noun} on a \
                 machine with a network and copy the cache"
            ),
            Self::Unreachable(reason) => format!("{endpoint} can't be reached ({reason})"),
            Self::Unavailable(reason) => format!(
                "{endpoint} can't be reached ({reason}), and the {noun} is not (completely) in {cache}; check the network, or \
                 set HF_ENDPOINT to a hub that can be reached"
            ),
            Self::Status { status, code, message } => explain_status(hub, repository, *status, code, message),
            Self::InvalidResponse(problem) => format!("{endpoint} sent an invalid answer: {problem}"),
            Self::Interrupted { file, reason } => {
                format!("the download of {file} was interrupted ({reason}); start again to resume it")
            }
            Self::Damaged { file, problem } => {
                format!("{file} {problem}; the downloaded part is deleted: start again to download the file")
            }
            Self::MissingFile { file, ggufs } => {
                format!("revision {} has no file {file}{}", repository.revision, list(ggufs))
            }
            Self::NoData { prefix } => {
                format!("the repository has no file {prefix}… that can be read; download its files by hand")
            }
            Self::NotAModel { missing, ggufs } => {
                let next = match ggufs.first() {
                    Some(file) => format!("name one, as in hf:{}/{file}", repository.name),
                    None => "choose a model that is published in safetensors".to_owned(),
                };
                format!("the repository has no {missing}{}; {next}", list(ggufs))
            }
            Self::Cache(e) => match e.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => format!(
                    "the disk with {cache} is full; free some space there, or set HF_HUB_CACHE to a folder on \
                     another disk"
                ),
                _ => format!("the cache {cache} can't be used: {e}"),
            },
        }
    }
}

/// Returns the problem and the remedy for an error status.
fn explain_status(hub: &Hub, repository: &HubRepository, status: u16, code: &str, message: &str) -> String {
    let (repo, noun, path, endpoint) =
        (&repository.name, repository.noun(), repository.path(), hub.shown_endpoint());
    let spelling = format!("check the spelling of {repo}, upper and lower case too");
    match (status, code) {
        (401 | 403, _) | (404, "" | "RepoNotFound") if hub.withholds_token() => format!(
            "the {noun} does not exist, is private or gated, and {endpoint} was not sent the token: set HF_ENDPOINT to an \
             address that begins with https://"
        ),
        (401 | 403, "GatedRepo") => match hub.token {
            None => format!(
                "the {noun} is gated: accept the licence of {repo} at {endpoint}/{path}, then set HF_TOKEN to a \
                 token of that account"
            ),
            Some(_) => format!(
                "the {noun} is gated, and the account of HF_TOKEN has no access: accept the licence of {repo} \
                 at {endpoint}/{path}"
            ),
        },
        (_, "RevisionNotFound") => {
            format!(
                "the repository has no revision {}; {endpoint}/{path}/tree/main lists them",
                repository.revision
            )
        }
        (_, "EntryNotFound") => "a file of the hub's list no longer exists; start again".to_owned(),
        // For the hub, an unknown model and a private one have the same status.
        (401, _) if hub.token.is_some() && code != "RepoNotFound" => {
            format!("the hub does not know the token in HF_TOKEN ({message}); set another, or unset it")
        }
        (401 | 403 | 404, _) if hub.token.is_none() => {
            format!("the {noun} does not exist or is private; {spelling}, or set HF_TOKEN if it is private")
        }
        (401 | 403 | 404, _) => {
            format!(
                "the {noun} does not exist or is private; {spelling}, and that the account of HF_TOKEN has access"
            )
        }
        (429, _) => "the hub received too many requests; wait a minute, or set HF_TOKEN".to_owned(),
        _ => format!("the hub answered {status} ({message}); try again later"),
    }
}
