//! Tokenizers and graphs of recorded runs for the viewer.

use std::path::Path;
use std::sync::Arc;

use pl_dsl::graph::Graph;
use pl_run::{RunTokenizers, StoredWorkflow};
use pl_viewer::{TokenTexts, Unavailable, Workflows};
use serde_json::Value;

/// Stored workflows of run folders.
pub struct StoredWorkflows(RunTokenizers);

impl StoredWorkflows {
    /// With `trust`, the models that runs of somebody else name may be read.
    pub fn new(trust: bool) -> StoredWorkflows {
        StoredWorkflows(RunTokenizers::new(trust))
    }
}

impl Workflows for StoredWorkflows {
    fn tokenizer(
        &self,
        run: &Path,
        evaluation: Option<&str>,
        agent: &str,
    ) -> Result<Arc<dyn TokenTexts>, Unavailable> {
        let tokenizer =
            self.0.tokenizer(run, evaluation, agent).map_err(|error| Unavailable(error.to_string()))?;
        Ok(Arc::new(Tokenizer(tokenizer)))
    }

    fn graph(&self, run: &Path) -> Result<Value, Unavailable> {
        let stored = StoredWorkflow::read(run).map_err(|error| Unavailable(error.to_string()))?;
        Graph::new(&stored.workflow).json().map_err(|error| Unavailable(error.to_string()))
    }
}

struct Tokenizer(Arc<pl_run::Tokenizer>);

impl TokenTexts for Tokenizer {
    fn text(&self, ids: &[u32]) -> String {
        self.0.decode(ids, false)
    }
}
