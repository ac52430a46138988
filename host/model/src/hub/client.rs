//! Requests to the hub.
//!
//! The routes: `/api/models/REPO/revision/REVISION` lists the files of a revision,
//! `/REPO/resolve/COMMIT/FILE` is a file; `/api/datasets/…` and `/datasets/REPO/…` are those of data sets. For large files the hub redirects to other servers; only the hub
//! gets the token. An interrupted download is resumed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::thread::sleep;
use std::time::Duration;

use pl_types::redact_address;
use serde_json::Value;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use ureq::config::RedirectAuthHeaders;
use ureq::http::{Response, Uri, header};
use ureq::{Agent, Body};

use super::cache::{CachedRepo, is_commit, is_etag};
use super::error::FetchError;
use super::listing::RevisionFiles;
use super::settings::Hub;
use super::source::HubRepository;

/// Time without data after which a connection fails. Slow links still send something every few seconds.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Number of attempts without any new byte after which a download fails.
const MAX_ATTEMPTS: u32 = 4;
/// Delay before the second attempt, doubled for each later one.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// Number of bytes between two reports.
const CHUNK: usize = 1 << 20;
/// Largest number of redirects within the hub (for a renamed model).
const MAX_REDIRECTS: usize = 5;

/// HTTP client of a hub.
pub(super) struct Client<'a> {
    hub: &'a Hub,
    agent: Agent,
}

impl<'a> Client<'a> {
    pub(super) fn new(hub: &'a Hub) -> Self {
        static WARNING: Once = Once::new();
        if hub.withholds_token() {
            let endpoint = hub.shown_endpoint();
            WARNING.call_once(|| {
                tracing::warn!(
                    endpoint,
                    "the hub is not sent the token: HF_ENDPOINT does not begin with https://"
                );
            });
        }
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .user_agent(concat!("pl-host/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(TIMEOUT))
            .timeout_recv_response(Some(TIMEOUT))
            .timeout_per_read(Some(TIMEOUT));
        Self { hub, agent: config.build().into() }
    }

    /// Requests the files of the requested revision.
    pub(super) fn listing(&self, repository: &HubRepository) -> Result<RevisionFiles, FetchError> {
        let revision = repository.revision.replace('/', "%2F");
        let (collection, name) = (repository.collection(), &repository.name);
        let url = format!("{}/api/{collection}/{name}/revision/{revision}", self.hub.endpoint);
        let mut response = check_status(self.get(&url, 0)?)?;
        let text = response.body_mut().read_to_string().map_err(unreachable)?;
        let json: Value =
            serde_json::from_str(&text).map_err(|e| FetchError::InvalidResponse(e.to_string()))?;
        let commit = json["sha"].as_str().filter(|sha| is_commit(sha));
        let files = json["siblings"].as_array();
        let (Some(commit), Some(files)) = (commit, files) else {
            return Err(invalid(&url, "has no commit or no files"));
        };
        let name = |file: &Value| file["rfilename"].as_str().map(str::to_owned);
        Ok(RevisionFiles { commit: commit.to_owned(), files: files.iter().filter_map(name).collect() })
    }

    /// Downloads a file of a commit unless the cache has it. Returns its path in the snapshot.
    pub(super) fn file(
        &self,
        repo: &CachedRepo,
        commit: &str,
        name: &str,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<PathBuf, FetchError> {
        let path = repo.snapshot(commit).join(name);
        if path.is_file() {
            return Ok(path);
        }
        let url = format!("{}/{}/resolve/{commit}/{name}", self.hub.endpoint, repo.repository.path());
        let FileMetadata { etag, size } = self.metadata(&url)?;
        let (blob, partial) = repo.blob_paths(&etag).map_err(FetchError::Cache)?;
        let _lock = repo.lock(&etag).map_err(FetchError::Cache)?;
        if !blob.is_file() {
            let mut report = |done: u64| progress(done, size);
            self.resume_until_complete(&url, name, &partial, size, &mut report)?;
            verify(name, &partial, &etag)?;
            fs::rename(&partial, &blob).map_err(FetchError::Cache)?;
        }
        repo.link(commit, name, &etag).map_err(FetchError::Cache)
    }

    /// Requests the size and checksum of a file from the hub, which knows them even if another server has the
    /// content.
    fn metadata(&self, url: &str) -> Result<FileMetadata, FetchError> {
        let mut url = url.to_owned();
        for _ in 0..MAX_REDIRECTS {
            let request = self.agent.head(&url).config().max_redirects(0).build();
            let response = self.with_headers(request).call().map_err(unreachable)?;
            let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
            // A redirect within the hub (for a renamed model) is followed; one to another server has the
            // metadata.
            if response.status().is_redirection()
                && let Some(path) = header("location").filter(|location| location.starts_with('/'))
            {
                url = absolute_url(&self.hub.endpoint, path)?;
                continue;
            }
            let etag = header("x-linked-etag")
                .or(header("etag"))
                .map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_owned());
            let size = header("x-linked-size").or(header("content-length")).and_then(|n| n.parse().ok());
            if !response.status().is_redirection() {
                check_status(response)?;
            }
            let (Some(etag), Some(size)) = (etag.filter(|etag| is_etag(etag)), size) else {
                return Err(invalid(&url, "has no valid checksum or size"));
            };
            return Ok(FileMetadata { etag, size });
        }
        Err(invalid(&url, "has too many redirects"))
    }

    /// Downloads until the file has its size. Each attempt starts where the previous one ended.
    fn resume_until_complete(
        &self,
        url: &str,
        name: &str,
        partial: &Path,
        size: u64,
        report: &mut dyn FnMut(u64),
    ) -> Result<(), FetchError> {
        let mut file =
            OpenOptions::new().append(true).create(true).open(partial).map_err(FetchError::Cache)?;
        let length = |file: &File| file.metadata().map(|metadata| metadata.len()).map_err(FetchError::Cache);
        let mut failed_attempts = 0;
        loop {
            let have = length(&file)?;
            report(have.min(size));
            if have > size {
                return Err(damaged(
                    name,
                    partial,
                    format!("is longer than {size} bytes, its size on the hub"),
                ));
            }
            if have == size {
                return file.sync_all().map_err(FetchError::Cache);
            }
            let reason = match self.append(url, &mut file, have, size, report) {
                Ok(()) => "the data ended too early".to_owned(),
                Err(FetchError::Unreachable(reason)) => reason,
                Err(FetchError::Status { status, message, .. }) if status >= 500 => message,
                // The server has no data after the downloaded part.
                Err(FetchError::Status { status: 416, .. }) => {
                    let problem = format!("is shorter than {size} bytes, its size on the hub");
                    return Err(damaged(name, partial, problem));
                }
                Err(other) => return Err(other),
            };
            failed_attempts = if length(&file)? > have { 0 } else { failed_attempts + 1 };
            if failed_attempts == MAX_ATTEMPTS {
                return Err(FetchError::Interrupted { file: name.to_owned(), reason });
            }
            if length(&file)? < size {
                sleep(RETRY_DELAY * 2u32.pow(failed_attempts));
            }
        }
    }

    /// Requests the rest of a file once.
    fn append(
        &self,
        url: &str,
        file: &mut File,
        have: u64,
        size: u64,
        report: &mut dyn FnMut(u64),
    ) -> Result<(), FetchError> {
        let response = self.get(url, have)?;
        let mut done = have;
        match response.status().as_u16() {
            // The server does not support ranges.
            200 if have > 0 => {
                file.set_len(0).map_err(FetchError::Cache)?;
                done = 0;
            }
            206 if !starts_at(&response, have) => {
                return Err(invalid(url, "sent the wrong part of the file"));
            }
            _ => {}
        }
        // At most one byte too many is stored, which shows that the file is too long.
        let mut body = check_status(response)?.into_body().into_reader().take(size + 1 - done);
        let mut chunk = vec![0; CHUNK];
        loop {
            let count = match body.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(FetchError::Unreachable(e.to_string())),
            };
            file.write_all(&chunk[..count]).map_err(FetchError::Cache)?;
            done += count as u64;
            report(done.min(size));
        }
    }

    fn get(&self, url: &str, from: u64) -> Result<Response<Body>, FetchError> {
        let mut request = self.with_headers(self.agent.get(url));
        if from > 0 {
            request = request.header(header::RANGE, format!("bytes={from}-"));
        }
        request.call().map_err(unreachable)
    }

    fn with_headers<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        // Sizes and checksums are those of the uncompressed files.
        let request = request.header(header::ACCEPT_ENCODING, "identity");
        match self.hub.sent_token() {
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }
}

/// Checksum and size of a file.
struct FileMetadata {
    /// SHA-256 for large files, git's hash for small ones.
    etag: String,
    size: u64,
}

fn starts_at(response: &Response<Body>, offset: u64) -> bool {
    let range = response.headers().get(header::CONTENT_RANGE).and_then(|range| range.to_str().ok());
    range.is_some_and(|range| range.starts_with(&format!("bytes {offset}-")))
}

/// Returns the response, or an error for an error status.
fn check_status(mut response: Response<Body>) -> Result<Response<Body>, FetchError> {
    if response.status().is_success() {
        return Ok(response);
    }
    let header =
        |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let code = header("x-error-code").unwrap_or_default();
    let message = header("x-error-message");
    let status = response.status();
    let message = message
        .or_else(|| {
            let body: Value = serde_json::from_str(&response.body_mut().read_to_string().ok()?).ok()?;
            body["error"].as_str().map(str::to_owned)
        })
        .unwrap_or_else(|| status.canonical_reason().unwrap_or("no reason given").to_owned());
    Err(FetchError::Status { status: status.as_u16(), code, message })
}

/// Returns the error of an invalid answer from a URL, which may have a user and a password.
fn invalid(url: &str, problem: &str) -> FetchError {
    FetchError::InvalidResponse(format!("{} {problem}", redact_address(url)))
}

fn unreachable(error: ureq::Error) -> FetchError {
    FetchError::Unreachable(error.to_string())
}

/// Returns the URL of a path on the hub.
fn absolute_url(endpoint: &str, path: &str) -> Result<String, FetchError> {
    let uri: Uri = endpoint.parse().map_err(|e| invalid(endpoint, &format!("is not a URL ({e})")))?;
    let (scheme, host) = (uri.scheme_str().unwrap_or("https"), uri.authority().map(|host| host.as_str()));
    Ok(format!("{scheme}://{}{path}", host.unwrap_or_default()))
}

/// Checks a file by its SHA-256 or by git's hash, `SHA-1("blob LENGTH\0" + CONTENT)`. Checksums of other lengths, which only
/// servers that stand in for the hub have, are not known and not checked.
fn verify(name: &str, path: &Path, etag: &str) -> Result<(), FetchError> {
    let file = File::open(path).map_err(FetchError::Cache)?;
    let got = match etag.len() {
        40 => {
            let length = file.metadata().map_err(FetchError::Cache)?.len();
            hash(file, Sha1::new().chain_update(format!("blob {length}\0")))
        }
        64 => hash(file, Sha256::new()),
        _ => return Ok(()),
    };
    if got.map_err(FetchError::Cache)? == etag.to_lowercase() {
        return Ok(());
    }
    Err(damaged(name, path, "does not have its checksum on the hub".into()))
}

/// Returns the hash of what was hashed before and a file, in hexadecimal.
fn hash(mut file: File, mut hasher: impl Digest + Write) -> io::Result<String> {
    io::copy(&mut file, &mut hasher)?;
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Deletes a damaged file and returns the error.
fn damaged(name: &str, path: &Path, problem: String) -> FetchError {
    match fs::remove_file(path) {
        Ok(()) => FetchError::Damaged { file: name.to_owned(), problem },
        Err(e) => FetchError::Cache(e),
    }
}
