//! Adapters from typed items to the contract's functions over JSON. `export!` registers them.

use std::fmt::Display;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::agent::{Agent, Completion, Request, ToolCall, Turn};
use crate::bindings::exports::pl_host::plugin::catalog::{Fact, FactKind, Item, ItemKind};
use crate::bindings::exports::pl_host::plugin::rewards::Transition as WireTransition;
use crate::bindings::pl_host::plugin::types::{AgentAction, Outcome as WireOutcome};
use crate::environment::{Action, DrawingForm, Environment, Form, Outcome, Task, TaskRequest};
use crate::error::{Error, ErrorKind, Result};
use crate::reward::{Reward, Scores, Transition};

/// The items of a plugin. `export!` implements it.
pub trait Registry: 'static {
    /// Environments, in the order of `export!`.
    const ENVIRONMENTS: &'static [EnvironmentEntry];
    /// Agents, in the order of `export!`.
    const AGENTS: &'static [AgentEntry];
    /// Rewards, in the order of `export!`.
    const REWARDS: &'static [RewardEntry];
}

/// An episode with its types erased.
pub trait Episode {
    /// See [`Environment::view`].
    fn view(&self, agent: &str) -> Result<String>;
    /// See [`Environment::apply`].
    fn apply(&mut self, actions: Vec<AgentAction>) -> Result<WireOutcome>;
    /// See [`Environment::oracle`].
    fn oracle(&self, agent: &str) -> Result<Option<String>>;
    /// See [`Environment::draw`].
    fn draw(&self, form: DrawingForm) -> Result<Option<String>>;
    /// Returns the environment in its serialized form.
    fn snapshot(&self) -> Vec<u8>;
}

/// A boxed [`Episode`].
pub type BoxedEpisode = Box<dyn Episode>;

/// Functions of an environment, with its types erased.
pub struct EnvironmentEntry {
    name: &'static str,
    item: fn() -> Item,
    start: fn(&str, &Task, u64) -> Result<BoxedEpisode>,
    restore: fn(&str, &[u8]) -> Result<BoxedEpisode>,
    tasks: fn(&str, &TaskRequest) -> Result<Vec<Task>>,
}

impl EnvironmentEntry {
    /// Creates the entry of `E`.
    #[must_use]
    pub const fn new<E: Environment>() -> Self {
        Self {
            name: E::NAME,
            item: || describe::<E::Settings>(ItemKind::Environment, E::NAME, E::DOC, facts::<E::Facts>()),
            start: |settings, task, seed| {
                let settings = read_settings::<E::Settings>(E::NAME, settings)?;
                let state = E::start(&settings, task, seed)?;
                Ok(Box::new(RunningEpisode::<E> { settings, state }))
            },
            restore: |settings, snapshot| {
                let settings = read_settings::<E::Settings>(E::NAME, settings)?;
                Ok(Box::new(RunningEpisode::<E> { settings, state: read_snapshot(snapshot)? }))
            },
            tasks: |settings, request| E::tasks(&read_settings(E::NAME, settings)?, request),
        }
    }
}

struct RunningEpisode<E: Environment> {
    settings: E::Settings,
    state: E,
}

impl<E: Environment> Episode for RunningEpisode<E> {
    fn view(&self, agent: &str) -> Result<String> {
        write(E::NAME, "view", &self.state.view(&self.settings, agent)?)
    }

    fn apply(&mut self, actions: Vec<AgentAction>) -> Result<WireOutcome> {
        let actions = read_actions(E::NAME, actions)?;
        let Outcome { done, truncated, facts, evidence } = self.state.apply(&self.settings, &actions)?;
        let facts = write(E::NAME, "facts", &facts)?;
        let evidence = write(E::NAME, "evidence", &evidence)?;
        Ok(WireOutcome { done, truncated, facts, evidence })
    }

    fn oracle(&self, agent: &str) -> Result<Option<String>> {
        let action = self.state.oracle(&self.settings, agent)?;
        action.map(|action| write(E::NAME, "oracle's action", &action)).transpose()
    }

    fn draw(&self, form: DrawingForm) -> Result<Option<String>> {
        self.state.draw(&self.settings, form)
    }

    #[expect(
        clippy::expect_used,
        reason = "the contract has no error here: a trap ends only this episode and names this function"
    )]
    fn snapshot(&self) -> Vec<u8> {
        match E::SNAPSHOTS {
            Form::Json => serde_json::to_vec(&self.state).expect("an environment's state has a JSON form"),
            Form::Postcard => {
                postcard::to_allocvec(&self.state).expect("an environment's state has a postcard form")
            }
        }
    }
}

fn read_snapshot<E: Environment>(snapshot: &[u8]) -> Result<E> {
    let unreadable = |cause: &dyn Display| {
        Error::unreadable(ErrorKind::Internal, &format!("{} cannot read its snapshot", E::NAME), cause)
    };
    match E::SNAPSHOTS {
        Form::Json => serde_json::from_slice(snapshot).map_err(|error| unreadable(&error)),
        Form::Postcard => match postcard::take_from_bytes(snapshot) {
            Ok((state, [])) => Ok(state),
            Ok((_, rest)) => Err(unreadable(&format_args!("{} bytes are left over", rest.len()))),
            Err(error) => Err(unreadable(&error)),
        },
    }
}

/// Results of an agent's tools, one for each call.
type ToolResults = Vec<String>;

/// Functions of an agent, with its types erased.
pub struct AgentEntry {
    name: &'static str,
    item: fn() -> Item,
    prompt: fn(&str, &str, &Turn) -> Result<Option<Request>>,
    call_tools: fn(&str, &str, &[ToolCall]) -> Result<Option<ToolResults>>,
    parse: fn(&str, &str, &Completion) -> Result<String>,
}

impl AgentEntry {
    /// Creates the entry of `A`.
    #[must_use]
    pub const fn new<A: Agent>() -> Self {
        Self {
            name: A::NAME,
            item: || describe::<A::Settings>(ItemKind::Agent, A::NAME, A::DOC, Vec::new()),
            prompt: |settings, view, turn| {
                A::prompt(&read_settings(A::NAME, settings)?, &read_view(A::NAME, view)?, turn)
            },
            call_tools: |settings, view, calls| {
                A::call_tools(&read_settings(A::NAME, settings)?, &read_view(A::NAME, view)?, calls)
            },
            parse: |settings, view, completion| {
                let settings = read_settings(A::NAME, settings)?;
                write(A::NAME, "action", &A::parse(&settings, &read_view(A::NAME, view)?, completion)?)
            },
        }
    }
}

/// Functions of a reward, with its types erased.
pub struct RewardEntry {
    name: &'static str,
    item: fn() -> Item,
    score: fn(&str, WireTransition) -> Result<Scores>,
}

impl RewardEntry {
    /// Creates the entry of `R`.
    #[must_use]
    pub const fn new<R: Reward>() -> Self {
        Self {
            name: R::NAME,
            item: || describe::<R::Settings>(ItemKind::Reward, R::NAME, R::DOC, Vec::new()),
            score: |settings, transition| {
                let settings = read_settings(R::NAME, settings)?;
                let WireOutcome { done, truncated, facts, evidence } = transition.outcome;
                let transition = Transition {
                    task: transition.task,
                    actions: read_actions(R::NAME, transition.actions)?,
                    done,
                    truncated,
                    facts: read(R::NAME, "the environment's facts", &facts)?,
                    evidence: read(R::NAME, "the environment's evidence", &evidence)?,
                };
                R::score(&settings, &transition)
            },
        }
    }
}

/// Returns all items of `R`, in the order of `describe`.
#[must_use]
pub fn items<R: Registry>() -> Vec<Item> {
    let environments = R::ENVIRONMENTS.iter().map(|entry| (entry.item)());
    let agents = R::AGENTS.iter().map(|entry| (entry.item)());
    let rewards = R::REWARDS.iter().map(|entry| (entry.item)());
    environments.chain(agents).chain(rewards).collect()
}

/// See the contract's `episode.start`.
///
/// # Errors
/// The environment's own, or an error if there is no such environment.
pub fn start<R: Registry>(item: &str, settings: &str, task: &Task, seed: u64) -> Result<BoxedEpisode> {
    (environment::<R>(item)?.start)(settings, task, seed)
}

/// See the contract's `episode.restore`.
///
/// # Errors
/// If the snapshot can't be read, or there is no such environment.
pub fn restore<R: Registry>(item: &str, settings: &str, snapshot: &[u8]) -> Result<BoxedEpisode> {
    (environment::<R>(item)?.restore)(settings, snapshot)
}

/// See the contract's `tasks`.
///
/// # Errors
/// The environment's own, or an error if there is no such environment.
pub fn tasks<R: Registry>(item: &str, settings: &str, request: &TaskRequest) -> Result<Vec<Task>> {
    (environment::<R>(item)?.tasks)(settings, request)
}

/// See the contract's `prompt`.
///
/// # Errors
/// The agent's own, or an error if there is no such agent.
pub fn prompt<R: Registry>(item: &str, settings: &str, view: &str, turn: &Turn) -> Result<Option<Request>> {
    (agent::<R>(item)?.prompt)(settings, view, turn)
}

/// See the contract's `call-tools`.
///
/// # Errors
/// The agent's own, or an error if there is no such agent.
pub fn call_tools<R: Registry>(
    item: &str,
    settings: &str,
    view: &str,
    calls: &[ToolCall],
) -> Result<Option<Vec<String>>> {
    (agent::<R>(item)?.call_tools)(settings, view, calls)
}

/// See the contract's `parse`.
///
/// # Errors
/// The agent's own, or an error if there is no such agent.
pub fn parse<R: Registry>(item: &str, settings: &str, view: &str, completion: &Completion) -> Result<String> {
    (agent::<R>(item)?.parse)(settings, view, completion)
}

/// See the contract's `score`.
///
/// # Errors
/// The reward's own, or an error if there is no such reward.
pub fn score<R: Registry>(item: &str, settings: &str, transition: WireTransition) -> Result<Scores> {
    let entry = R::REWARDS.iter().find(|entry| entry.name == item);
    (entry.ok_or_else(|| unknown("reward", item))?.score)(settings, transition)
}

fn environment<R: Registry>(item: &str) -> Result<&'static EnvironmentEntry> {
    R::ENVIRONMENTS.iter().find(|entry| entry.name == item).ok_or_else(|| unknown("environment", item))
}

fn agent<R: Registry>(item: &str) -> Result<&'static AgentEntry> {
    R::AGENTS.iter().find(|entry| entry.name == item).ok_or_else(|| unknown("agent", item))
}

fn unknown(kind: &str, item: &str) -> Error {
    Error::internal(format!("this plugin has no {kind} `{item}`"))
}

fn read<T: DeserializeOwned>(item: &str, what: &str, json: &str) -> Result<T> {
    serde_json::from_str(json)
        .map_err(|e| Error::unreadable(ErrorKind::Internal, &format!("{item} cannot read {what}"), &e))
}

fn read_settings<S: DeserializeOwned>(item: &str, json: &str) -> Result<S> {
    serde_json::from_str(json)
        .or_else(|error| {
            let settings: Value = serde_json::from_str(json)?;
            serde_json::from_value(with_integers(settings)).map_err(|_| error)
        })
        .map_err(|e| Error::unreadable(ErrorKind::Settings, &format!("settings of {item}"), &e))
}

/// Writes numbers such as 3.0 as integers: JSON Schema counts them as such, serde does not.
fn with_integers(value: Value) -> Value {
    match value {
        Value::Number(number) => match number.as_f64() {
            // Beyond 2^53 a float may stand for several integers.
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= (1_u64 << 53) as f64 => {
                Value::from(float as i64)
            }
            _ => Value::Number(number),
        },
        Value::Array(items) => items.into_iter().map(with_integers).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, field)| (name, with_integers(field))).collect()
        }
        other => other,
    }
}

fn read_view<V: DeserializeOwned>(item: &str, json: &str) -> Result<V> {
    read(item, "the environment's view (is the agent made for this environment?)", json)
}

fn read_actions<A: DeserializeOwned>(item: &str, actions: Vec<AgentAction>) -> Result<Vec<Action<A>>> {
    let typed = actions.into_iter().map(|AgentAction { agent, action }| {
        let what = format!("the action of agent `{agent}` (is the agent made for this environment?)");
        Ok(Action { action: read(item, &what, &action)?, agent })
    });
    typed.collect()
}

fn write(item: &str, what: &str, value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| {
        Error::unreadable(ErrorKind::Internal, &format!("{item}: its {what} has no JSON form"), &e)
    })
}

fn describe<S: JsonSchema>(kind: ItemKind, name: &str, doc: &str, facts: Vec<Fact>) -> Item {
    let (name, doc) = (name.to_owned(), doc.to_owned());
    Item { kind, name, doc, settings_schema: schema::<S>().to_string(), facts }
}

/// Returns a self-contained schema, without references.
fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Lists the fields of a facts struct, from its schema.
fn facts<F: JsonSchema>() -> Vec<Fact> {
    let schema = schema::<F>();
    let Some(fields) = schema.get("properties").and_then(Value::as_object) else {
        return Vec::new();
    };
    let known = fields.iter().filter_map(|(name, field)| {
        let doc = field.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Fact { name: name.clone(), kind: fact_kind(field.get("type")?)?, doc })
    });
    known.collect()
}

/// Returns a fact's kind. An optional field's type is a list that includes `null`.
fn fact_kind(kind: &Value) -> Option<FactKind> {
    match kind {
        Value::String(name) => match name.as_str() {
            "boolean" => Some(FactKind::Boolean),
            "integer" | "number" => Some(FactKind::Number),
            "string" => Some(FactKind::Text),
            _ => None,
        },
        Value::Array(kinds) => kinds.iter().find_map(fact_kind),
        _ => None,
    }
}
