//! Tokenizers and graphs of recorded runs for the viewer.

use std::path::Path;
use std::sync::Arc;

use pl_dsl::design_graph;
use pl_dsl::graph::Graph;
use pl_dsl::settings::{self, Setting};
use pl_dsl::workflow::Workflow;
use pl_run::design::{DesignRecord, read_designs};
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

    fn design_graph(&self, run: &Path, scenario: Option<&str>, design: &str) -> Result<Value, Unavailable> {
        let stored = StoredWorkflow::read(run).map_err(|error| Unavailable(error.to_string()))?;
        let mut scenarios = stored.workflow.scenarios.iter();
        let scenario = scenarios.position(|one| one.name.as_deref() == scenario).unwrap_or_default();
        graph_of(&stored.workflow, scenario, design)
    }

    fn best_designs(&self, run: &Path, most: usize) -> Result<Vec<Value>, Unavailable> {
        let stored = StoredWorkflow::read(run).map_err(|error| Unavailable(error.to_string()))?;
        let scenarios = &stored.workflow.scenarios;
        let Some(scenario) = scenarios.iter().position(|one| one.designer.is_some()) else {
            return Ok(Vec::new());
        };
        if !run.join("designs.jsonl").exists() {
            return Ok(Vec::new());
        }
        let records = read_designs(run).map_err(|error| Unavailable(error.to_string()))?;
        let shown = |record: &DesignRecord| {
            let mut shown = serde_json::to_value(record).map_err(|error| Unavailable(error.to_string()))?;
            shown["graph"] = graph_of(&stored.workflow, scenario, &record.design).unwrap_or_default();
            Ok(shown)
        };
        records.iter().take(most).map(shown).collect()
    }
}

/// Returns the graph of a design.
fn graph_of(workflow: &Workflow, scenario: usize, design: &str) -> Result<Value, Unavailable> {
    let missing = || Unavailable("the design has no graph: it doesn't parse".to_owned());
    let graph = design_graph(workflow, scenario, design).ok_or_else(missing)?;
    graph.json().map_err(|error| Unavailable(error.to_string()))
}

struct Tokenizer(Arc<pl_run::Tokenizer>);

impl TokenTexts for Tokenizer {
    fn text(&self, ids: &[u32]) -> String {
        self.0.decode(ids, false)
    }
}
