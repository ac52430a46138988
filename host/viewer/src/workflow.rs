//! Parts of a run that need the language or a model's files. The program that starts the viewer provides them.

use std::path::Path;
use std::sync::Arc;

use pl_types::TrainedCompletion;
use serde::Serialize;
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

/// Description of a setting of the language.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SettingDoc {
    /// Word of its block, such as `train`.
    pub block: &'static str,
    pub key: &'static str,
    pub doc: &'static str,
}

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

    /// Explains the gradient of a token of an agent's completion: an object with `terms` (each with `name`, `formula`,
    /// `numbers` and `value`), `derivative`, `summary` and `algorithm` (with `word`, `source` and `formula`). `sampled` are
    /// the completion's log-probabilities of sampling.
    ///
    /// # Errors
    /// If the stored workflow is invalid, or there is no such token.
    fn gradient(
        &self,
        run: &Path,
        agent: &str,
        record: &TrainedCompletion,
        sampled: &[f32],
        token: usize,
    ) -> Result<Value, Unavailable>;

    /// Returns descriptions of all settings of the language.
    fn setting_docs(&self) -> Vec<SettingDoc>;

    /// Returns the graph of turns in the JSON format of `pl-host graph`.
    ///
    /// # Errors
    /// If the stored workflow is invalid.
    fn graph(&self, run: &Path) -> Result<Value, Unavailable>;

    /// Returns the graph of a design in the same format, by its text and its scenario.
    ///
    /// # Errors
    /// If the stored workflow is invalid, or the design has no graph.
    fn design_graph(&self, run: &Path, scenario: Option<&str>, design: &str) -> Result<Value, Unavailable>;

    /// Returns the best designs of a run, at most `most`: lines of its `designs.jsonl`, each with its `graph`. Returns none for
    /// a run without a designer.
    ///
    /// # Errors
    /// If they can't be read.
    fn best_designs(&self, run: &Path, most: usize) -> Result<Vec<Value>, Unavailable>;
}
