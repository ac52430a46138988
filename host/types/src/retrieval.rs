//! Passages of a corpus, and the trait between plugins and what finds them.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// A corpus that finds passages.
#[async_trait]
pub trait Retrieve: Send + Sync {
    /// Returns at most `count` passages for a query in natural language, best first.
    ///
    /// # Errors
    /// [`RetrieveError`] if the corpus can't be read or its server fails.
    async fn retrieve(&self, query: &str, count: usize) -> Result<Vec<Passage>, RetrieveError>;

    /// Returns true if equal queries always give equal passages.
    fn is_reproducible(&self) -> bool;
}

/// A passage that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Passage {
    /// Name within the corpus.
    pub id: String,
    /// Its text. The first line is its title, if the corpus has titles.
    pub text: String,
    /// Relevance; larger is better. Scores of different queries can't be compared.
    pub score: f64,
}

/// Error of a corpus that can't be searched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("corpus `{corpus}`: {reason}")]
pub struct RetrieveError {
    /// Name in the workflow.
    pub corpus: String,
    /// The problem, and what to do.
    pub reason: String,
}
