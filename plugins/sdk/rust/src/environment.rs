//! Environments: the only memory of an episode.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use crate::bindings::pl_host::plugin::types::Task;
use crate::error::{Error, ErrorKind, Result};

/// What a snapshot is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// JSON: people can read it, and so can the same environment in another language. No floats that are not finite.
    Json,
    /// [Postcard](https://postcard.jamesmunns.com/wire-format): several times as quick. For plain structs, enums, lists,
    /// maps and numbers; it knows no `serde_json::Value`, and nothing flattened, untagged or left out.
    Postcard,
}

/// One copy of an environment. Its snapshot is its serde form, so a restored copy goes on exactly as the one
/// that was stored, as long as everything that matters is a field. Use ordered maps for what is iterated over.
pub trait Environment: Serialize + DeserializeOwned + 'static {
    /// Name of the item, as a workflow writes it after the plugin's name.
    const NAME: &'static str;
    /// One sentence for people.
    const DOC: &'static str;
    /// What its snapshots are written in.
    const SNAPSHOTS: Form = Form::Json;
    /// The item's settings. Derive `Deserialize` with `deny_unknown_fields`, so that a typing mistake is found.
    type Settings: DeserializeOwned + JsonSchema;
    /// What an agent may see.
    type View: Serialize;
    /// What an agent may do.
    type Action: DeserializeOwned;
    /// What `when` conditions read as `env.*`: a struct whose fields are booleans, numbers and strings. Their
    /// doc comments are shown to people.
    type Facts: Serialize + JsonSchema;
    /// What the reward alone sees: gold answers, test results.
    type Evidence: Serialize;

    /// Starts an episode. Equal arguments and an equal random stream give an equal episode.
    ///
    /// # Errors
    /// [`Error::task`] when the record is not of a form that this environment reads.
    fn start(settings: &Self::Settings, task: &Task, seed: u64) -> Result<Self>;

    /// What `agent` may see now.
    ///
    /// # Errors
    /// When there is nothing to see for such an agent.
    fn view(&self, settings: &Self::Settings, agent: &str) -> Result<Self::View>;

    /// Applies the actions of one turn together.
    ///
    /// # Errors
    /// When the episode cannot go on. A bad action is no error: it is what a model did.
    fn apply(
        &mut self,
        settings: &Self::Settings,
        actions: &[Action<Self::Action>],
    ) -> Result<Outcome<Self::Facts, Self::Evidence>>;

    /// Makes tasks. Equal arguments give equal tasks, whatever the block they are asked for in; splits share
    /// none.
    ///
    /// # Errors
    /// [`Error::settings`] when this environment makes none (the default) or knows no such split or level.
    fn tasks(settings: &Self::Settings, request: &TaskRequest) -> Result<Vec<Task>> {
        let _ = (settings, request);
        Err(Error::settings(format!("{} makes no tasks of its own: set `tasks` to a file", Self::NAME)))
    }
}

/// What one agent did.
#[derive(Debug, Clone, PartialEq)]
pub struct Action<A> {
    /// The agent's name in the workflow.
    pub agent: String,
    /// What its `parse` returned.
    pub action: A,
}

/// What an environment says after a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome<F, E> {
    /// The episode is over.
    pub done: bool,
    /// The episode was cut short: over, but not decided.
    pub truncated: bool,
    /// For `when` conditions.
    pub facts: F,
    /// For the reward alone.
    pub evidence: E,
}

/// Which generated tasks are wanted: `count` from index `start` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRequest {
    /// `train`, `test` or any other name.
    pub split: String,
    /// Index of the first.
    pub start: u64,
    /// How many.
    pub count: u32,
    /// Difficulty; what the numbers mean is the environment's.
    pub level: u32,
}

impl Task {
    /// A task whose data is `data` as JSON.
    ///
    /// # Errors
    /// When `data` has no JSON form.
    pub fn new(id: impl Into<String>, data: &impl Serialize) -> Result<Self> {
        let data = serde_json::to_string(data)
            .map_err(|e| Error::unreadable(ErrorKind::Internal, "a task has no JSON form", &e))?;
        Ok(Self { id: id.into(), data })
    }

    /// The record.
    ///
    /// # Errors
    /// [`Error::task`] when it is not of `T`'s form.
    pub fn read<'de, T: Deserialize<'de>>(&'de self) -> Result<T> {
        serde_json::from_str(&self.data)
            .map_err(|e| Error::unreadable(ErrorKind::Task, &format!("task {}", self.id), &e))
    }
}
