//! Environments: the only state of an episode.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::bindings::exports::pl_host::plugin::environments::DrawingForm;
pub use crate::bindings::pl_host::plugin::types::Task;
use crate::error::{Error, ErrorKind, Result};

/// Format of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// JSON: readable by people and by the same environment in another language. Floats must be finite.
    Json,
    /// [Postcard](https://postcard.jamesmunns.com/wire-format): several times faster than JSON. For plain
    /// structs, enums, lists, maps and numbers; it doesn't support `serde_json::Value`, nor serde's
    /// `flatten`, `untagged` and `skip` attributes.
    Postcard,
}

/// An environment: the state of one episode. Its snapshot is its serialized form, so a restored copy
/// continues exactly like the original if every part of the state is a field. Use ordered maps if you iterate
/// over them.
pub trait Environment: Serialize + DeserializeOwned + 'static {
    /// Name of the item, as a workflow writes it after the plugin's name.
    const NAME: &'static str;
    /// One sentence for users.
    const DOC: &'static str;
    /// Format of its snapshots.
    const SNAPSHOTS: Form = Form::Json;
    /// The item's settings. Derive `Deserialize` with `deny_unknown_fields`, so that a typing mistake is
    /// found.
    type Settings: DeserializeOwned + JsonSchema;
    /// The part of the state that is shown to an agent.
    type View: Serialize;
    /// Action of an agent.
    type Action: DeserializeOwned;
    /// Facts, which `when` conditions read as `env.*`: a struct whose fields are booleans, numbers and
    /// strings. Their doc comments are shown to users.
    type Facts: Serialize + JsonSchema;
    /// Evidence, which only the reward sees: gold answers, test results.
    type Evidence: Serialize;

    /// Starts an episode. Equal arguments and an equal random stream give an equal episode.
    ///
    /// # Errors
    /// [`Error::task`] if this environment can't read the record.
    fn start(settings: &Self::Settings, task: &Task, seed: u64) -> Result<Self>;

    /// Returns the view of `agent`.
    ///
    /// # Errors
    /// If the environment has no view for this agent.
    fn view(&self, settings: &Self::Settings, agent: &str) -> Result<Self::View>;

    /// Applies the actions of one turn together.
    ///
    /// # Errors
    /// If the episode cannot continue. An invalid action is not an error: it is the model's answer.
    fn apply(
        &mut self,
        settings: &Self::Settings,
        actions: &[Action<Self::Action>],
    ) -> Result<Outcome<Self::Facts, Self::Evidence>>;

    /// Returns an action of `agent` that leads to success, as JSON in the form that the agents' `parse` returns, or `None`
    /// (the default). Audits and tests play it; no agent sees it.
    ///
    /// # Errors
    /// If the environment has no view for this agent.
    fn oracle(&self, settings: &Self::Settings, agent: &str) -> Result<Option<Value>> {
        let _ = (settings, agent);
        Ok(None)
    }

    /// Returns a drawing of the state for people, or `None` (the default) if this form has no drawing.
    ///
    /// # Errors
    /// If the state can't be drawn.
    fn draw(&self, settings: &Self::Settings, form: DrawingForm) -> Result<Option<String>> {
        let _ = (settings, form);
        Ok(None)
    }

    /// Generates tasks. A task depends only on the settings, the split, the level and its index, not on the
    /// block it is requested in; splits have no task in common.
    ///
    /// # Errors
    /// [`Error::settings`] if this environment generates no tasks (the default), or has no such split or
    /// level.
    fn tasks(settings: &Self::Settings, request: &TaskRequest) -> Result<Vec<Task>> {
        let _ = (settings, request);
        Err(Error::settings(format!("{} makes no tasks of its own: set `tasks` to a file", Self::NAME)))
    }
}

/// The action of one agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Action<A> {
    /// The agent's name in the workflow.
    pub agent: String,
    /// Result of the agent's `parse`.
    pub action: A,
}

/// Result of a step in the environment.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome<F, E> {
    /// True if the episode is over.
    pub done: bool,
    /// True if the episode was truncated: it is over but undecided.
    pub truncated: bool,
    /// Facts for `when` conditions.
    pub facts: F,
    /// Evidence for the reward only.
    pub evidence: E,
}

/// A request for generated tasks: `count` tasks from index `start` on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskRequest {
    /// `train`, `test` or any other name.
    pub split: String,
    /// Index of the first task.
    pub start: u64,
    /// Number of tasks.
    pub count: u32,
    /// Difficulty; the environment defines the meaning of the numbers.
    pub level: u32,
}

/// Id of a task that a person has given in words or as a record. Those of task files have the name of their file and a line:
/// `train:3`.
const GIVEN: &str = "given";

impl Task {
    /// A task with `data` as its record, written as JSON.
    ///
    /// # Errors
    /// If `data` has no JSON form.
    pub fn new(id: impl Into<String>, data: &impl Serialize) -> Result<Self> {
        let data = serde_json::to_string(data)
            .map_err(|e| Error::unreadable(ErrorKind::Internal, "a task has no JSON form", &e))?;
        Ok(Self { id: id.into(), data })
    }

    /// Returns true if a person has given the task, as in `pl-host play --task "1 + 1?"`. Only then may its right answer be
    /// unknown: with the record of a task file, no answer would ever be right.
    pub fn is_given(&self) -> bool {
        self.id == GIVEN
    }

    /// Reads the record.
    ///
    /// # Errors
    /// [`Error::task`] if the record isn't a `T`.
    pub fn read<'de, T: Deserialize<'de>>(&'de self) -> Result<T> {
        serde_json::from_str(&self.data)
            .map_err(|e| Error::unreadable(ErrorKind::Task, &format!("task {}", self.id), &e))
    }
}
