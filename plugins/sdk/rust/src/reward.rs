//! Rewards: a stateless function that scores a transition.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

pub use crate::bindings::exports::pl_host::plugin::rewards::{AgentScore, Scores};
use crate::environment::{Action, Task};
use crate::error::Result;

/// A reward: one function of a transition.
pub trait Reward: 'static {
    /// Name of the item, as a workflow writes it after the plugin's name.
    const NAME: &'static str;
    /// One sentence for users.
    const DOC: &'static str;
    /// The item's settings. Derive `Deserialize` with `deny_unknown_fields`, so that a typing mistake is
    /// found.
    type Settings: DeserializeOwned + JsonSchema;
    /// Action of the environment's agents (or the parts of it that the reward reads).
    type Action: DeserializeOwned;
    /// The environment's facts that the reward reads.
    type Facts: DeserializeOwned;
    /// The environment's evidence that the reward reads.
    type Evidence: DeserializeOwned;

    /// Scores the step.
    ///
    /// # Errors
    /// If the settings contradict each other.
    fn score(
        settings: &Self::Settings,
        transition: &Transition<Self::Action, Self::Facts, Self::Evidence>,
    ) -> Result<Scores>;
}

/// One step of an episode: the actions and their result.
#[derive(Debug, Clone)]
pub struct Transition<A, F, E> {
    /// The episode's task.
    pub task: Task,
    /// The turn's actions.
    pub actions: Vec<Action<A>>,
    /// True if the episode is over.
    pub done: bool,
    /// True if the episode was truncated.
    pub truncated: bool,
    /// The environment's facts after the step.
    pub facts: F,
    /// The environment's evidence after the step.
    pub evidence: E,
}
