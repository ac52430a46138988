//! Tokenizers and graphs of recorded runs for the viewer.

use std::path::Path;
use std::sync::Arc;

use pl_dsl::graph::Graph;
use pl_dsl::settings::{self, Setting};
use pl_run::{RunTokenizers, StoredWorkflow, token_gradient};
use pl_types::TrainedCompletion;
use pl_viewer::{SettingDoc, TokenTexts, Unavailable, Workflows};
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

    fn gradient(
        &self,
        run: &Path,
        agent: &str,
        record: &TrainedCompletion,
        sampled: &[f32],
        token: usize,
    ) -> Result<Value, Unavailable> {
        let explained = token_gradient(run, agent, record, sampled, token);
        let explained = explained.map_err(|error| Unavailable(error.to_string()))?;
        serde_json::to_value(explained).map_err(|error| Unavailable(error.to_string()))
    }

    fn setting_docs(&self) -> Vec<SettingDoc> {
        let doc =
            |one: &'static Setting| SettingDoc { block: one.block.keyword(), key: one.key, doc: one.doc };
        settings::all().map(doc).collect()
    }

    fn graph(&self, run: &Path) -> Result<Value, Unavailable> {
        let stored = StoredWorkflow::read(run).map_err(|error| Unavailable(error.to_string()))?;
        Graph::json_of_scenarios(&stored.workflow).map_err(|error| Unavailable(error.to_string()))
    }
}

struct Tokenizer(Arc<pl_run::Tokenizer>);

impl TokenTexts for Tokenizer {
    fn text(&self, ids: &[u32]) -> String {
        self.0.decode(ids, false)
    }
}
