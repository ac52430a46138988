//! Corpora that environments search.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `corpus wiki = "corpus.jsonl" { language = english }`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Corpus {
    pub name: String,
    pub source: CorpusSource,
}

/// Source of a corpus.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CorpusSource {
    File(PassageFile),
    Server(RetrievalServer),
}

impl CorpusSource {
    /// Returns the path of the file as written, or the address of the server.
    pub fn location(&self) -> &str {
        match self {
            CorpusSource::File(file) => &file.path,
            CorpusSource::Server(server) => &server.address,
        }
    }
}

/// File of passages, which this program indexes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PassageFile {
    /// Path relative to the workflow file (or to the working folder when from `--set`).
    pub path: String,
    /// Field of the id.
    pub id: String,
    /// Field of the title.
    pub title: String,
    /// Field of the text. `None` for `text`, or `contents` where that is missing.
    pub text: Option<String>,
    /// Language whose endings don't count, or `none`.
    pub language: String,
}

/// Server that finds passages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RetrievalServer {
    pub address: String,
    /// Environment variable with the key that requests carry.
    pub key_variable: Option<String>,
    /// Longest time of one request.
    pub timeout: Duration,
    /// Further attempts at a request after failures.
    pub retries: u32,
}
