//! Requests to the hub, and what their failures mean to a person.
//!
//! The routes: `/api/models/REPO/revision/REVISION` lists the files of a revision, `/REPO/resolve/COMMIT/FILE`
//! is a file. Large files answer with a redirect to other servers; the token goes to the hub alone. A transfer
//! that breaks off goes on where it stopped.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;
use sha2::{Digest, Sha256};
use ureq::config::RedirectAuthHeaders;
use ureq::http::{Response, Uri, header};
use ureq::{Agent, Body};

use super::cache::{Repo, is_commit, is_etag};
use super::{FetchProgress, Hub, HubModel, Listing};

/// Silence after which a server is given up; slow links still send something every few seconds.
const PATIENCE: Duration = Duration::from_secs(30);
/// Attempts without one more byte before a transfer fails.
const ATTEMPTS: u32 = 4;
/// Before the second attempt; twice as long before each later one.
const PAUSE: Duration = Duration::from_millis(250);
/// Bytes between two reports.
const CHUNK: usize = 1 << 20;
/// Redirects within the hub (a renamed model) that are followed.
const REDIRECTS: usize = 5;

/// Why something could not be fetched.
#[derive(Debug)]
pub(super) enum Failure {
    /// The cache alone may be used, and it has not all.
    Offline,
    /// No answer.
    Unreachable(String),
    /// No answer, and the cache has not all.
    Nowhere(String),
    /// An answer that refuses.
    Refused { status: u16, code: String, said: String },
    /// An answer that a hub would not give.
    Odd(String),
    /// The connection broke again and again.
    Cut { file: String, why: String },
    /// A file is not what the hub says that it is.
    Damaged { file: String, what: String },
    /// The revision has no such file.
    NoFile { wanted: String, others: Vec<String> },
    /// The repository is no model in safetensors.
    NoModel { missing: String, ggufs: Vec<String> },
    /// The cache could not be written or read.
    Disk(io::Error),
}

impl Failure {
    /// Whether a later try may succeed, so that the cache may step in.
    pub(super) fn passing(&self) -> bool {
        match self {
            Self::Unreachable(_) => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
            _ => false,
        }
    }

    /// The same where the cache could not step in.
    pub(super) fn without_cache(self) -> Self {
        match self {
            Self::Unreachable(why) => Self::Nowhere(why),
            other => other,
        }
    }

    /// What is wrong and what to do.
    pub(super) fn explain(&self, hub: &Hub, model: &HubModel) -> String {
        let cache = hub.cache.display();
        let list = |names: &[String]| match names {
            [] => String::new(),
            some => format!("; its GGUF files are {}", some.join(", ")),
        };
        match self {
            Self::Offline => format!(
                "it is not (whole) in {cache}, and HF_HUB_OFFLINE is set; unset it, or fetch the model where \
                 there is a network and copy the cache"
            ),
            Self::Unreachable(why) => format!("{} can't be reached ({why})", hub.endpoint),
            Self::Nowhere(why) => format!(
                "{} can't be reached ({why}), and the model is not (whole) in {cache}; check the network, or \
                 set HF_ENDPOINT to a hub that can be reached",
                hub.endpoint
            ),
            Self::Refused { status, code, said } => refusal(hub, model, *status, code, said),
            Self::Odd(what) => format!("{} gave an answer that can't be read: {what}", hub.endpoint),
            Self::Cut { file, why } => {
                format!("the transfer of {file} broke off ({why}); start again, and it goes on from there")
            }
            Self::Damaged { file, what } => {
                format!("{file} {what}; what was fetched of it is gone: start again to fetch it anew")
            }
            Self::NoFile { wanted, others } => {
                format!("its revision {} has no file {wanted}{}", model.revision(), list(others))
            }
            Self::NoModel { missing, ggufs } => {
                let next = match ggufs.first() {
                    Some(file) => format!("name one, as in hf:{}/{file}", model.repo),
                    None => "choose a model that is published in safetensors".to_owned(),
                };
                format!("the repository has no {missing}{}; {next}", list(ggufs))
            }
            Self::Disk(e) => match e.kind() {
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => format!(
                    "the disk with {cache} is full; free some space there, or set HF_HUB_CACHE to a folder on \
                     another disk"
                ),
                _ => format!("the cache {cache} can't be used: {e}"),
            },
        }
    }
}

fn refusal(hub: &Hub, model: &HubModel, status: u16, code: &str, said: &str) -> String {
    let (repo, endpoint) = (&model.repo, &hub.endpoint);
    let spelling = format!("check the spelling of {repo}, upper and lower case too");
    match (status, code) {
        (401 | 403, "GatedRepo") => match hub.token {
            None => format!(
                "the model is gated: accept the licence of {repo} at {endpoint}/{repo}, then set HF_TOKEN to a \
                 token of that account"
            ),
            Some(_) => format!(
                "the model is gated, and the account behind HF_TOKEN has no access: accept the licence of {repo} \
                 at {endpoint}/{repo}"
            ),
        },
        (_, "RevisionNotFound") => {
            format!("it has no revision {}; {endpoint}/{repo}/tree/main lists them", model.revision())
        }
        (_, "EntryNotFound") => "a file that the hub lists is gone; start again".to_owned(),
        // The hub hides what it does not show: an unknown model and a private one look the same.
        (401, _) if hub.token.is_some() && code != "RepoNotFound" => {
            format!("HF_TOKEN is not a token that the hub knows ({said}); set another, or unset it")
        }
        (401 | 403 | 404, _) if hub.token.is_none() => {
            format!("the hub shows no such model to strangers; {spelling}, or set HF_TOKEN if it is private")
        }
        (401 | 403 | 404, _) => {
            format!(
                "the hub shows no such model; {spelling}, and that the account behind HF_TOKEN may see it"
            )
        }
        (429, _) => "the hub has had too many requests; wait a minute, or set HF_TOKEN".to_owned(),
        _ => format!("the hub answered {status} ({said}); try again later"),
    }
}

/// A connection to a hub.
pub(super) struct Client<'a> {
    hub: &'a Hub,
    agent: Agent,
}

impl<'a> Client<'a> {
    pub(super) fn new(hub: &'a Hub) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .redirect_auth_headers(RedirectAuthHeaders::SameHost)
            .user_agent(concat!("pl-host/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(PATIENCE))
            .timeout_recv_response(Some(PATIENCE))
            .timeout_per_read(Some(PATIENCE));
        Self { hub, agent: config.build().into() }
    }

    /// The files of the wanted revision.
    pub(super) fn listing(&self, model: &HubModel) -> Result<Listing, Failure> {
        let revision = model.revision().replace('/', "%2F");
        let url = format!("{}/api/models/{}/revision/{revision}", self.hub.endpoint, model.repo);
        let mut answer = accepted(self.get(&url, 0)?)?;
        let text = answer.body_mut().read_to_string().map_err(unreachable)?;
        let json: Value = serde_json::from_str(&text).map_err(|e| Failure::Odd(e.to_string()))?;
        let commit = json["sha"].as_str().filter(|sha| is_commit(sha));
        let files = json["siblings"].as_array();
        let (Some(commit), Some(files)) = (commit, files) else {
            return Err(Failure::Odd(format!("{url} names no commit or no files")));
        };
        let name = |file: &Value| file["rfilename"].as_str().map(str::to_owned);
        Ok(Listing { commit: commit.to_owned(), files: files.iter().filter_map(name).collect() })
    }

    /// A file of a commit, from the cache or the hub; its path in the snapshot.
    pub(super) fn file(
        &self,
        repo: &Repo,
        commit: &str,
        name: &str,
        progress: &mut dyn FnMut(FetchProgress<'_>),
    ) -> Result<PathBuf, Failure> {
        let path = repo.snapshot(commit).join(name);
        if path.is_file() {
            return Ok(path);
        }
        let url = format!("{}/{}/resolve/{commit}/{name}", self.hub.endpoint, repo.model.repo);
        let Facts { etag, size } = self.facts(&url)?;
        let (blob, partial) = repo.blob(&etag).map_err(Failure::Disk)?;
        let _lock = repo.lock(&etag).map_err(Failure::Disk)?;
        if !blob.is_file() {
            let mut report = |done: u64| progress(FetchProgress { file: name, done, total: size });
            self.transfer(&url, name, &partial, size, &mut report)?;
            verify(name, &partial, &etag)?;
            fs::rename(&partial, &blob).map_err(Failure::Disk)?;
        }
        repo.link(commit, name, &etag).map_err(Failure::Disk)
    }

    /// What the hub itself says of a file, wherever the content lies.
    fn facts(&self, url: &str) -> Result<Facts, Failure> {
        let mut url = url.to_owned();
        for _ in 0..REDIRECTS {
            let request = self.agent.head(&url).config().max_redirects(0).build();
            let answer = self.signed(request).call().map_err(unreachable)?;
            let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
            // A redirect within the hub (the model has another name now) is followed; one to other servers
            // comes with the facts.
            if answer.status().is_redirection()
                && let Some(inside) = header("location").filter(|to| to.starts_with('/'))
            {
                url = absolute(&self.hub.endpoint, inside)?;
                continue;
            }
            let etag = header("x-linked-etag")
                .or(header("etag"))
                .map(|etag| etag.trim_start_matches("W/").trim_matches('"').to_owned());
            let size = header("x-linked-size").or(header("content-length")).and_then(|n| n.parse().ok());
            if !answer.status().is_redirection() {
                accepted(answer)?;
            }
            let (Some(etag), Some(size)) = (etag.filter(|etag| is_etag(etag)), size) else {
                return Err(Failure::Odd(format!("{url} has no checksum or no length")));
            };
            return Ok(Facts { etag, size });
        }
        Err(Failure::Odd(format!("{url} is redirected in a circle")))
    }

    /// Fetches until the file has its size; each attempt begins where the last one ended.
    fn transfer(
        &self,
        url: &str,
        name: &str,
        partial: &Path,
        size: u64,
        report: &mut dyn FnMut(u64),
    ) -> Result<(), Failure> {
        let mut file = OpenOptions::new().append(true).create(true).open(partial).map_err(Failure::Disk)?;
        let length = |file: &File| file.metadata().map(|facts| facts.len()).map_err(Failure::Disk);
        let mut fruitless = 0;
        loop {
            let have = length(&file)?;
            report(have.min(size));
            if have > size {
                return Err(damaged(
                    name,
                    partial,
                    format!("is longer than the {size} bytes that the hub states"),
                ));
            }
            if have == size {
                return file.sync_all().map_err(Failure::Disk);
            }
            let why = match self.append(url, &mut file, have, size, report) {
                Ok(()) => "it ended too early".to_owned(),
                Err(Failure::Unreachable(why)) => why,
                Err(Failure::Refused { status, said, .. }) if status >= 500 => said,
                // Nothing begins where what is here ends.
                Err(Failure::Refused { status: 416, .. }) => {
                    let what = format!("is shorter than the {size} bytes that the hub states");
                    return Err(damaged(name, partial, what));
                }
                Err(other) => return Err(other),
            };
            fruitless = if length(&file)? > have { 0 } else { fruitless + 1 };
            if fruitless == ATTEMPTS {
                return Err(Failure::Cut { file: name.to_owned(), why });
            }
            if length(&file)? < size {
                sleep(PAUSE * 2u32.pow(fruitless));
            }
        }
    }

    /// One request for the rest of a file.
    fn append(
        &self,
        url: &str,
        file: &mut File,
        have: u64,
        size: u64,
        report: &mut dyn FnMut(u64),
    ) -> Result<(), Failure> {
        let answer = self.get(url, have)?;
        let mut done = have;
        match answer.status().as_u16() {
            // The server does not know how to begin in the middle.
            200 if have > 0 => {
                file.set_len(0).map_err(Failure::Disk)?;
                done = 0;
            }
            206 if !begins_at(&answer, have) => {
                return Err(Failure::Odd(format!("{url} sent another part of the file")));
            }
            _ => {}
        }
        // One byte more than there should be shows a file that is too long, and no more of it is stored.
        let mut body = accepted(answer)?.into_body().into_reader().take(size + 1 - done);
        let mut chunk = vec![0; CHUNK];
        loop {
            let count = match body.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(count) => count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Failure::Unreachable(e.to_string())),
            };
            file.write_all(&chunk[..count]).map_err(Failure::Disk)?;
            done += count as u64;
            report(done.min(size));
        }
    }

    fn get(&self, url: &str, from: u64) -> Result<Response<Body>, Failure> {
        let mut request = self.signed(self.agent.get(url));
        if from > 0 {
            request = request.header(header::RANGE, format!("bytes={from}-"));
        }
        request.call().map_err(unreachable)
    }

    fn signed<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        // Lengths and checksums are of the files as they are, so that they must come as they are.
        let request = request.header(header::ACCEPT_ENCODING, "identity");
        match &self.hub.token {
            Some(token) => request.header(header::AUTHORIZATION, format!("Bearer {token}")),
            None => request,
        }
    }
}

/// What is known of a file before it is fetched.
struct Facts {
    /// SHA-256 for large files, git's hash for small ones.
    etag: String,
    size: u64,
}

fn begins_at(answer: &Response<Body>, offset: u64) -> bool {
    let range = answer.headers().get(header::CONTENT_RANGE).and_then(|range| range.to_str().ok());
    range.is_some_and(|range| range.starts_with(&format!("bytes {offset}-")))
}

/// The answer, unless it refuses.
fn accepted(mut answer: Response<Body>) -> Result<Response<Body>, Failure> {
    if answer.status().is_success() {
        return Ok(answer);
    }
    let header =
        |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let code = header("x-error-code").unwrap_or_default();
    let said = header("x-error-message");
    let status = answer.status();
    let said = said
        .or_else(|| {
            let body: Value = serde_json::from_str(&answer.body_mut().read_to_string().ok()?).ok()?;
            body["error"].as_str().map(str::to_owned)
        })
        .unwrap_or_else(|| status.canonical_reason().unwrap_or("no reason given").to_owned());
    Err(Failure::Refused { status: status.as_u16(), code, said })
}

fn unreachable(error: ureq::Error) -> Failure {
    Failure::Unreachable(error.to_string())
}

/// A path within the hub as an address.
fn absolute(endpoint: &str, path: &str) -> Result<String, Failure> {
    let uri: Uri = endpoint.parse().map_err(|e| Failure::Odd(format!("{endpoint} is no address ({e})")))?;
    let (scheme, host) = (uri.scheme_str().unwrap_or("https"), uri.authority().map(|host| host.as_str()));
    Ok(format!("{scheme}://{}{path}", host.unwrap_or_default()))
}

/// Whether the content is what its checksum says; git's hashes of small files are not checked.
fn verify(name: &str, path: &Path, etag: &str) -> Result<(), Failure> {
    if etag.len() != 64 {
        return Ok(());
    }
    let mut file = File::open(path).map_err(Failure::Disk)?;
    let mut hasher = Sha256::new();
    io::copy(&mut file, &mut hasher).map_err(Failure::Disk)?;
    let got: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if got == etag.to_lowercase() {
        return Ok(());
    }
    Err(damaged(name, path, "does not have the checksum that the hub states".into()))
}

/// Removes what is no use.
fn damaged(name: &str, path: &Path, what: String) -> Failure {
    match fs::remove_file(path) {
        Ok(()) => Failure::Damaged { file: name.to_owned(), what },
        Err(e) => Failure::Disk(e),
    }
}
