//! Everything that episodes of a workflow need: the environment, the agents with their policies, the reward.

use std::sync::Arc;

use pl_dsl::workflow::{LongPrompt, Turns};
use pl_types::{Generate, Sampling};
use tokio::sync::mpsc::UnboundedSender;

use crate::components::{Agent, Environment, PromptEncoder, Reward};
use crate::events::EpisodeEvent;

/// An agent with the policy that generates for it.
#[derive(Clone)]
pub struct AgentRuntime {
    pub name: String,
    /// Number in keys and groups: the position among the workflow's agents, or one that tells agents of designs apart.
    pub number: u32,
    pub agent: Arc<dyn Agent>,
    pub encoder: Arc<dyn PromptEncoder>,
    /// Index into the workflow's policies.
    pub policy: usize,
    pub sampling: Sampling,
    pub max_tokens: u32,
    /// Strings that end a completion, in addition to those that the agent asks for.
    pub stop: Vec<String>,
    /// Rule for prompts that are longer than the model's context.
    pub long_prompt: LongPrompt,
    /// Limit on the rounds of tool calls within a turn.
    pub tool_rounds: u32,
    /// True if the policy has a critic: a tree then records the prompts that candidates lead to
    /// ([`pl_types::Transition::next_prompt`]).
    pub bootstraps: bool,
}

/// The parts of a workflow that play episodes.
#[derive(Clone)]
pub struct EpisodeSetup {
    /// Name of the scenario, which traces have. `None` if it has none.
    pub scenario: Option<Arc<str>>,
    /// Text of the design that wrote the team, which traces have. `None` for the scenario's own team.
    pub design: Option<Arc<str>>,
    pub environment: Arc<dyn Environment>,
    /// Agents, by index.
    pub agents: Vec<AgentRuntime>,
    pub reward: Arc<dyn Reward>,
    pub team_weight: f64,
    pub local_weight: f64,
    /// True if the reward scores only the end of an episode, which then counts for every agent's last turn.
    pub scores_end: bool,
    /// Amount by which completions that cause a fault are penalised. `None` to draw them again.
    pub fault_penalty: Option<f64>,
    /// True if traces record the environment's drawings.
    pub drawings: bool,
    pub turns: Turns,
    pub generator: Arc<dyn Generate>,
    /// Observer of episode events.
    pub observer: Option<UnboundedSender<EpisodeEvent>>,
}
