//! The runs that are viewed, and the reads of their files for each request.

use std::path::PathBuf;
use std::sync::Arc;

use pl_record::{TraceFile, settings_by_path};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::curves::{self, CurveLines, CurveRequest};
use crate::episode::{self, EpisodeDetails, LONGEST_TEXT, ReadTrace};
use crate::error::Error;
use crate::event::{Full, TraceRecord};
use crate::index::IndexCache;
use crate::logs::{self, Log, LogPiece};
use crate::play::{PlayProgress, PlayRequest, Player, Plays};
use crate::query::{self, EpisodePage, EpisodeQuery};
use crate::reward_weights::ScenarioWeights;
use crate::runs::{self, FoundRun, RunSummary, inside};
use crate::tokens::{self, CompletionPosition, TokenPosition, TokenView};
use crate::trained;
use crate::workflow::{SettingDoc, Workflows};

/// Memory of all indexes, in bytes. The rows of a million episodes of two agents need about 200 MB.
const INDEX_BYTES: usize = 256 << 20;

/// Number of a run's best designs that its page shows.
const BEST_DESIGNS: usize = 8;

/// Run folders that are viewed.
pub struct Viewer {
    folders: Vec<PathBuf>,
    workflows: Arc<dyn Workflows>,
    cache: IndexCache,
    plays: Option<Plays>,
}

impl Viewer {
    /// Creates a viewer of the runs among and below some folders.
    pub fn new(folders: Vec<PathBuf>, workflows: Arc<dyn Workflows>) -> Viewer {
        Viewer { folders, workflows, cache: IndexCache::new(INDEX_BYTES), plays: None }
    }

    /// Lets pages play episodes.
    pub fn with_player(self, player: Arc<dyn Player>) -> Viewer {
        Viewer { plays: Some(Plays::new(player)), ..self }
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
        query::page(&run, query, &weights(&run), &self.cache)
    }

    /// Returns an episode by its name, such as `12.3.0#0`.
    ///
    /// # Errors
    /// If there is no such run or episode, or its file is damaged.
    pub fn episode(&self, run: &str, name: &str) -> Result<EpisodeDetails, Error> {
        let run = self.find(run)?;
        let weights = weights(&run);
        let trace = episode::read_trace(&run, name, &self.cache)?;
        let mut episode = episode::arrange(&run, trace, &weights, self.workflows.as_ref(), LONGEST_TEXT);
        // Everything else is shown if the step's file is damaged.
        if let Err(error) = trained::add_advantages(&run, name, &mut episode) {
            episode.notes.push(error.to_string());
        }
        Ok(episode)
    }

    /// Number of times that a trace file was read from its start to its end.
    pub fn reads(&self) -> u64 {
        self.cache.reads()
    }

    pub(crate) fn log(&self, run: &str, log: Log, offset: u64, line: u64) -> Result<LogPiece, Error> {
        logs::read(&self.find(run)?.root, log, offset, line)
    }

    pub(crate) fn curves(&self, run: &str, log: Log, request: CurveRequest) -> Result<CurveLines, Error> {
        curves::read(&self.find(run)?.root, log, request)
    }

    pub(crate) fn tokens(
        &self,
        run: &str,
        name: &str,
        position: &CompletionPosition,
    ) -> Result<TokenView, Error> {
        let run = self.find(run)?;
        let read = episode::read_trace(&run, name, &self.cache)?;
        tokens::read(&run, name, &read.trace, position, self.workflows.as_ref())
    }

    /// Explains the gradient of a token.
    pub(crate) fn gradient(
        &self,
        run: &str,
        name: &str,
        position: &CompletionPosition,
        token: &TokenPosition,
    ) -> Result<Value, Error> {
        let run = self.find(run)?;
        let read = episode::read_trace(&run, name, &self.cache)?;
        tokens::gradient(&run, name, &read.trace, position, token, self.workflows.as_ref())
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
        let plan = match run.root.join("plan.json").exists() {
            true => noted(runs::read_object(&run.root, "plan.json").map(Value::Object)),
            // Runs of earlier versions have none.
            false => Value::Null,
        };
        let text = noted(
            inside(&run.root, &["workflow.mas"])
                .and_then(|_| Ok(pl_record::RunFolder::read_text(&run.root, "workflow.mas")?.into())),
        );
        let graph = inside(&run.root, &["workflow.json"]).and(Ok(self.workflows.graph(&run.root)))?;
        let graph = graph.unwrap_or_else(|error| {
            notes.push(error.to_string());
            Value::Null
        });
        let designs = inside(&run.root, &["designs.jsonl"])
            .map(|_| self.workflows.best_designs(&run.root, BEST_DESIGNS))?
            .unwrap_or_else(|error| {
                notes.push(error.to_string());
                Vec::new()
            });
        let agents = workflow.get("agents").and_then(Value::as_array).into_iter().flatten();
        let agents: Vec<&Value> = agents.filter_map(|agent| agent.get("name")).collect();
        let agents = json!(agents);
        let settings = settings_by_path(&Value::Object(workflow));
        // `null` if no episodes are played.
        let checkpoints = self.plays.as_ref().map(|plays| plays.checkpoints(&run.root).unwrap_or_default());
        Ok(json!({
            "settings": settings, "agents": agents, "lock": lock, "text": text, "graph": graph, "designs": designs,
            "plan": plan, "notes": notes, "checkpoints": checkpoints,
        }))
    }

    /// Returns descriptions of all settings.
    pub(crate) fn setting_docs(&self) -> Vec<SettingDoc> {
        self.workflows.setting_docs()
    }

    fn plays(&self) -> Result<&Plays, Error> {
        self.plays.as_ref().ok_or(Error::NoPlayer)
    }

    /// Starts an episode and returns its number.
    pub(crate) fn play(&self, request: PlayRequest) -> Result<u64, Error> {
        let plays = self.plays()?;
        plays.start(&self.find(&request.run)?.root, request)
    }

    /// Ends the episode that is played.
    pub(crate) fn cancel_play(&self) -> Result<(), Error> {
        self.plays()?.cancel();
        Ok(())
    }

    /// Waits for events of an episode that is played, after the first `after`.
    pub(crate) async fn play_progress(&self, id: u64, after: usize) -> Result<PlayProgress, Error> {
        let arrange = |run: &str, trace: &Value| {
            let run = self.find(run)?;
            // An episode that was played is no part of the run: it has no file and no neighbours.
            let file = TraceFile { step: 0, evaluation: None };
            let trace = TraceRecord::<Full>::deserialize(trace).map_err(|_| Error::Panicked)?;
            let trace = ReadTrace { trace, file, neighbours: [None, None] };
            Ok(episode::arrange(&run, trace, &weights(&run), self.workflows.as_ref(), LONGEST_TEXT))
        };
        self.plays()?.progress(id, after, arrange).await
    }

    /// Returns the run of a name among those that were found: a name can't lead to another folder.
    fn find(&self, name: &str) -> Result<FoundRun, Error> {
        let mut found = runs::find(&self.folders).into_iter();
        found.find(|run| run.name == name).ok_or_else(|| Error::UnknownRun(name.to_owned()))
    }
}

/// Returns the weights of a run's rewards.
pub(crate) fn weights(run: &FoundRun) -> ScenarioWeights {
    ScenarioWeights::from_workflow(&runs::read_workflow(&run.root).unwrap_or_default())
}
