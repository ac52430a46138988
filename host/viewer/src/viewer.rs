//! The runs that are viewed, and the reads of their files for each request.

use std::path::PathBuf;
use std::sync::Arc;

use pl_record::settings_by_path;
use serde_json::{Value, json};

use crate::episode::{self, EpisodeDetails, LONGEST_TEXT};
use crate::error::Error;
use crate::event::RewardWeights;
use crate::index::IndexCache;
use crate::logs::{self, Log, LogPiece};
use crate::query::{self, EpisodePage, EpisodeQuery};
use crate::runs::{self, FoundRun, RunSummary, inside};
use crate::tokens::{self, CompletionPosition, TokenView};
use crate::workflow::Workflows;

/// Memory of all indexes, in bytes. A row of a million episodes of two agents needs about 250 MB.
const INDEX_BYTES: usize = 256 << 20;

/// Run folders that are viewed.
pub struct Viewer {
    folders: Vec<PathBuf>,
    workflows: Arc<dyn Workflows>,
    cache: IndexCache,
}

impl Viewer {
    /// Creates a viewer of the runs among and below some folders.
    pub fn new(folders: Vec<PathBuf>, workflows: Arc<dyn Workflows>) -> Viewer {
        Viewer { folders, workflows, cache: IndexCache::new(INDEX_BYTES) }
    }

    /// Returns a summary of every run, sorted by name.
    pub fn runs(&self) -> Vec<RunSummary> {
        runs::find(&self.folders).iter().map(runs::summarise).collect()
    }

    /// Checks that every folder is a run or has one. Further runs may appear later.
    ///
    /// # Errors
    /// [`Error::NoRuns`] with the first folder that has none.
    pub fn check_folders(&self) -> Result<(), Error> {
        for folder in &self.folders {
            if runs::find(std::slice::from_ref(folder)).is_empty() {
                return Err(Error::NoRuns { path: folder.clone() });
            }
        }
        Ok(())
    }

    /// Returns a page of a run's episodes.
    ///
    /// # Errors
    /// If there is no such run, or a parameter is invalid. Damaged files are problems of the page.
    pub fn episodes(&self, run: &str, query: &EpisodeQuery) -> Result<EpisodePage, Error> {
        let run = self.find(run)?;
        query::page(&run, query, weights(&run), &self.cache)
    }

    /// Returns an episode by its name, such as `12.3.0#0`.
    ///
    /// # Errors
    /// If there is no such run or episode, or its file is damaged.
    pub fn episode(&self, run: &str, name: &str) -> Result<EpisodeDetails, Error> {
        let run = self.find(run)?;
        let weights = weights(&run);
        let trace = episode::read_trace(&run, name, weights, &self.cache)?;
        Ok(episode::arrange(&run, trace, weights, self.workflows.as_ref(), LONGEST_TEXT))
    }

    /// Number of times that a trace file was read from its start to its end.
    pub fn reads(&self) -> u64 {
        self.cache.reads()
    }

    pub(crate) fn log(&self, run: &str, log: Log, offset: u64, line: u64) -> Result<LogPiece, Error> {
        logs::read(&self.find(run)?.root, log, offset, line)
    }

    pub(crate) fn tokens(
        &self,
        run: &str,
        name: &str,
        position: &CompletionPosition,
    ) -> Result<TokenView, Error> {
        let run = self.find(run)?;
        let read = episode::read_trace(&run, name, weights(&run), &self.cache)?;
        tokens::read(&run, name, &read.trace, position, self.workflows.as_ref())
    }

    /// Returns the settings of a run, its lock, its text and its graph.
    pub(crate) fn workflow(&self, run: &str) -> Result<Value, Error> {
        let run = self.find(run)?;
        let workflow = runs::read_workflow(&run.root)?;
        let mut notes = Vec::new();
        let mut noted = |result: Result<Value, Error>| {
            result.unwrap_or_else(|error| {
                notes.push(error.to_string());
                Value::Null
            })
        };
        let lock = noted(runs::read_object(&run.root, "lock.json").map(Value::Object));
        let text = noted(
            inside(&run.root, &["workflow.mas"])
                .and_then(|_| Ok(pl_record::RunFolder::read_text(&run.root, "workflow.mas")?.into())),
        );
        let graph = inside(&run.root, &["workflow.json"]).and(Ok(self.workflows.graph(&run.root)))?;
        let graph = graph.unwrap_or_else(|error| {
            notes.push(error.to_string());
            Value::Null
        });
        let agents = workflow.get("agents").and_then(Value::as_array).into_iter().flatten();
        let agents: Vec<&Value> = agents.filter_map(|agent| agent.get("name")).collect();
        let agents = json!(agents);
        let settings = settings_by_path(&Value::Object(workflow));
        Ok(json!({
            "settings": settings, "agents": agents, "lock": lock, "text": text, "graph": graph,
            "notes": notes,
        }))
    }

    /// Returns the run of a name among those that were found: a name can't lead to another folder.
    fn find(&self, name: &str) -> Result<FoundRun, Error> {
        let mut found = runs::find(&self.folders).into_iter();
        found.find(|run| run.name == name).ok_or_else(|| Error::UnknownRun(name.to_owned()))
    }
}

/// Returns the weights of a run's reward.
pub(crate) fn weights(run: &FoundRun) -> RewardWeights {
    RewardWeights::from_workflow(&runs::read_workflow(&run.root).unwrap_or_default())
}
