//! Rewards: what a transition is worth, stateless.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

pub use crate::bindings::exports::pl_host::plugin::rewards::{AgentScore, Scores};
use crate::environment::{Action, Task};
use crate::error::Result;

/// A reward: one function of a transition.
pub trait Reward: 'static {
    /// Name of the item, as a workflow writes it after the plugin's name.
    const NAME: &'static str;
    /// One sentence for people.
    const DOC: &'static str;
    /// The item's settings. Derive `Deserialize` with `deny_unknown_fields`, so that a typing mistake is found.
    type Settings: DeserializeOwned + JsonSchema;
    /// What the agents of the environment may do (or what of it matters here).
    type Action: DeserializeOwned;
    /// What the reward reads of the environment's facts.
    type Facts: DeserializeOwned;
    /// What the reward reads of the environment's evidence.
    type Evidence: DeserializeOwned;

    /// What the step earned.
    ///
    /// # Errors
    /// When the settings are at odds with themselves.
    fn score(
        settings: &Self::Settings,
        transition: &Transition<Self::Action, Self::Facts, Self::Evidence>,
    ) -> Result<Scores>;
}

/// One step: who did what, and what came of it.
#[derive(Debug, Clone)]
pub struct Transition<A, F, E> {
    /// The episode's task.
    pub task: Task,
    /// The turn's actions.
    pub actions: Vec<Action<A>>,
    /// The episode is over.
    pub done: bool,
    /// The episode was cut short.
    pub truncated: bool,
    /// The environment's facts after the step.
    pub facts: F,
    /// The environment's evidence after the step.
    pub evidence: E,
}
