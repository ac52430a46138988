//! Events that an observer of running episodes receives. Observing has no effect on the episodes.

use pl_plugin::Message;
use pl_types::Chunk;
use tokio::sync::mpsc::UnboundedReceiver;

/// An event of a running episode.
#[derive(Debug)]
pub enum EpisodeEvent {
    /// An agent was prompted, and its policy generates.
    Prompted {
        agent: String,
        /// Number of the agent's earlier visits.
        visit: u32,
        messages: Vec<Message>,
        /// The text of the completions as it is generated.
        text: UnboundedReceiver<Chunk>,
    },
    /// An agent's prompt leaves no room for a completion, so that the episode ends.
    PromptTooLong {
        agent: String,
        /// Number of tokens of the prompt.
        tokens: usize,
        /// Number of tokens of the model's context.
        context: usize,
    },
    /// An agent acted, and the episode continues from there.
    Acted(AgentStep),
    /// The environment's drawing of the state as lines of text: at the start, and after each step.
    Drawn(String),
    /// The episode failed and is played again from its start, with other random streams. Has the failure in words.
    Restarted(String),
}

/// An agent's action with its reward.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentStep {
    pub agent: String,
    /// JSON.
    pub action: String,
    pub reward: f64,
    pub success: bool,
    /// Number of tokens of the prompts of the turn's model calls.
    pub prompt_tokens: usize,
    /// Number of tokens of the turn's completions.
    pub tokens: usize,
}
