//! A retrieval server of one's own, with the protocol of Search-R1's and verl's: `POST /retrieve` with
//! `{"queries": ["…"], "topk": 3, "return_scores": true}` is answered by
//! `{"result": [[{"document": {"id": "…", "contents": "…"}, "score": 1.5}, …]]}`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use pl_servers::{Backoff, HttpClient, HttpSettings, ServerError};
use pl_types::{Passage, Retrieve, RetrieveError};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::error::Error;

/// Path that is asked if an address has none.
const DEFAULT_PATH: &str = "/retrieve";

/// Maximum number of requests in progress: enough for a server that searches on a GPU.
const CONNECTIONS: usize = 64;

/// Settings of a retrieval server.
#[derive(Clone)]
pub struct RemoteConfig {
    /// Name of the corpus in the workflow, for messages.
    pub name: String,
    /// Address, such as `http://10.0.0.1:8000`; without a path, `/retrieve` is asked.
    pub address: String,
    /// Key that requests carry as `Authorization: Bearer KEY`.
    pub key: Option<String>,
    /// Longest time from sending a request to the end of its answer.
    pub timeout: Duration,
    /// Number of times that a request is sent again after a failure.
    pub retries: u32,
    /// Waiting times after failures.
    pub backoff: Backoff,
}

/// A corpus behind a retrieval server.
pub struct RemoteCorpus {
    name: Arc<str>,
    client: HttpClient,
    path: &'static str,
    retries: u32,
    backoff: Backoff,
    free: Semaphore,
}

impl RemoteCorpus {
    /// Prepares the requests. None is sent.
    ///
    /// # Errors
    /// [`Error::Server`] if the address or the key is not usable.
    pub fn new(config: RemoteConfig) -> Result<Self, Error> {
        let RemoteConfig { name, address, key, timeout, retries, backoff } = config;
        let settings = HttpSettings { key, timeout, connections: CONNECTIONS };
        let client = HttpClient::new(&settings, &address).map_err(|error| Error::Server(Box::new(error)))?;
        let path = if client.has_path() { "" } else { DEFAULT_PATH };
        Ok(Self { name: name.into(), client, path, retries, backoff, free: Semaphore::new(CONNECTIONS) })
    }

    async fn ask(&self, query: &str, count: usize) -> Result<Vec<Passage>, ServerError> {
        let body = json!({ "queries": [query], "topk": count, "return_scores": true });
        let read = |answer: Value| passages(&answer, count);
        self.client
            .post_with_retries(self.path, &body, "for passages", self.retries, self.backoff, read)
            .await
    }
}

#[async_trait]
impl Retrieve for RemoteCorpus {
    async fn retrieve(&self, query: &str, count: usize) -> Result<Vec<Passage>, RetrieveError> {
        // A closed semaphore would only lift the limit, and nothing closes it.
        let _permit = self.free.acquire().await;
        let failed =
            |error: ServerError| RetrieveError { corpus: self.name.to_string(), reason: error.to_string() };
        self.ask(query, count).await.map_err(failed)
    }

    fn is_reproducible(&self) -> bool {
        false
    }
}

/// Reason for which an answer to a query is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum WrongAnswer {
    #[error("it has no list `result`")]
    NoResult,
    #[error("`result` has {lists} lists for one query")]
    Lists { lists: usize },
    #[error("`result` is not a list of lists")]
    NotLists,
    #[error("the score of passage {rank} is not a number")]
    Score { rank: usize },
    #[error("passage {rank} has neither `contents` nor `text`")]
    NoText { rank: usize },
}

/// Reads an answer to one query. Passages beyond `count` are left out.
fn passages(answer: &Value, count: usize) -> Result<Vec<Passage>, WrongAnswer> {
    let lists = answer.get("result").and_then(Value::as_array).ok_or(WrongAnswer::NoResult)?;
    let [list] = lists.as_slice() else { return Err(WrongAnswer::Lists { lists: lists.len() }) };
    let list = list.as_array().ok_or(WrongAnswer::NotLists)?;
    list.iter().take(count).enumerate().map(|(rank, entry)| passage(entry, rank)).collect()
}

/// Reads a passage: `{"document": …, "score": …}`, or the document itself, which then scores by its rank.
fn passage(entry: &Value, rank: usize) -> Result<Passage, WrongAnswer> {
    let document = entry.get("document").unwrap_or(entry);
    let score = match entry.get("score") {
        Some(score) => score.as_f64().ok_or(WrongAnswer::Score { rank })?,
        None => -(rank as f64),
    };
    let text = |name: &str| document.get(name).and_then(Value::as_str);
    let body = text("contents").or_else(|| text("text")).ok_or(WrongAnswer::NoText { rank })?;
    let text = match text("title") {
        Some(title) if !body.starts_with(title) => format!("{title}\n{body}"),
        _ => body.to_owned(),
    };
    let id = match document.get("id") {
        Some(Value::String(id)) => id.clone(),
        Some(Value::Number(id)) => id.to_string(),
        // Servers that search the web have none.
        _ => blake3::hash(text.as_bytes()).to_hex().chars().take(16).collect(),
    };
    Ok(Passage { id, text, score })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_an_answer_is_read() {
        let answer = json!({ "result": [[
            { "document": { "id": "7", "contents": "\"A\"\nOne." }, "score": 2.5 },
            { "document": { "id": 8, "title": "B", "text": "Two." }, "score": 2 },
            { "contents": "Three." },
            { "contents": "Four." },
        ]] });
        let found = passages(&answer, 3).unwrap();
        let shown: Vec<(&str, &str, f64)> =
            found.iter().map(|one| (one.id.as_str(), one.text.as_str(), one.score)).collect();
        let hash = blake3::hash(b"Three.").to_hex().to_string();
        assert_eq!(shown, [("7", "\"A\"\nOne.", 2.5), ("8", "B\nTwo.", 2.0), (&hash[..16], "Three.", -2.0)]);
    }

    #[test]
    fn a_wrong_answer_is_explained() {
        let problem = |answer: Value| passages(&answer, 3).unwrap_err().to_string();
        assert_eq!(problem(json!({})), "it has no list `result`");
        assert_eq!(problem(json!({ "result": [] })), "`result` has 0 lists for one query");
        assert_eq!(problem(json!({ "result": [1] })), "`result` is not a list of lists");
        assert_eq!(
            problem(json!({ "result": [[{ "document": {} }]] })),
            "passage 0 has neither `contents` nor `text`"
        );
        let text = json!({ "result": [[{ "document": { "text": "x" }, "score": "high" }]] });
        assert_eq!(problem(text), "the score of passage 0 is not a number");
    }
}
