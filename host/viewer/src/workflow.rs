//! Parts of a run that need the language or a model's files. The program that starts the viewer provides them.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

/// Texts of token ids.
pub trait TokenTexts: Send + Sync {
    /// Returns the text of some ids, special tokens included.
    fn text(&self, ids: &[u32]) -> String;
}

/// Reason for which a part of a run can't be shown.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// Access to the workflows of run folders, which may come from anywhere.
pub trait Workflows: Send + Sync {
    /// Returns the tokenizer of an agent's policy, in an evaluation if one is named.
    ///
    /// # Errors
    /// If the model is not on this machine, or the run is of somebody else and was not trusted.
    fn tokenizer(
        &self,
        run: &Path,
        evaluation: Option<&str>,
        agent: &str,
    ) -> Result<Arc<dyn TokenTexts>, Unavailable>;

    /// Returns the graph of turns in the JSON format of `pl-host graph`.
    ///
    /// # Errors
    /// If the stored workflow is invalid.
    fn graph(&self, run: &Path) -> Result<Value, Unavailable>;
}
