//! Who plays: the parts of a workflow, ready to act.
//!
//! The traits are the seam between the interpreter and the plugin host: the interpreter knows turns and
//! candidates, not components.

use std::sync::Arc;

use async_trait::async_trait;
use pl_dsl::workflow::Turns;
use pl_inference::{Generate, Sampling};
use pl_plugin::journal::Journal;
use pl_plugin::{Completion, Message, Outcome, PromptRequest, Scores, Snapshot, Task, Tool, Turn};
use tokio::sync::mpsc::UnboundedSender;

use crate::{Fault, Heard};

/// Makes episodes of one environment.
#[async_trait]
pub trait Environment: Send + Sync {
    /// `seed` fixes the start, `stream` (a ChaCha key) all later randomness. All that the copy does goes into
    /// `journal`, which may also answer in the sandbox's place.
    async fn start(
        &self,
        task: &Task,
        seed: u64,
        stream: [u8; 32],
        journal: &Journal,
    ) -> Result<Box<dyn Episode>, Fault>;
    async fn restore(&self, snapshot: &Snapshot, journal: &Journal) -> Result<Box<dyn Episode>, Fault>;
    /// Copies that can be held at a time. More than that have to rest while they wait for a model.
    fn seats(&self) -> usize {
        usize::MAX
    }
}

/// One copy of an environment.
#[async_trait]
pub trait Episode: Send {
    async fn view(&mut self, agent: &str) -> Result<String, Fault>;
    /// Pairs of agent and action, applied together.
    async fn apply(&mut self, actions: &[(String, String)]) -> Result<Outcome, Fault>;
    async fn snapshot(&mut self) -> Result<Snapshot, Fault>;
    /// Makes room for others until the next call. What follows is the same as without.
    async fn rest(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    /// False once a wall clock, not the code, decided something that the environment has seen.
    fn reproducible(&self) -> bool {
        true
    }
}

/// Asks and understands; keeps nothing.
#[async_trait]
pub trait Agent: Send + Sync {
    async fn prompt(
        &self,
        view: &str,
        turn: &Turn,
        journal: &Journal,
    ) -> Result<Option<PromptRequest>, Fault>;
    async fn parse(&self, view: &str, completion: &Completion, journal: &Journal) -> Result<String, Fault>;
}

/// Scores what has just been applied.
#[async_trait]
pub trait Reward: Send + Sync {
    async fn score(
        &self,
        task: &Task,
        actions: &[(String, String)],
        outcome: &Outcome,
        journal: &Journal,
    ) -> Result<Scores, Fault>;
}

/// Messages to token ids: a model's chat template and tokenizer.
pub trait Encode: Send + Sync {
    /// The prompt of one completion, the tools on offer and the generation prompt included.
    fn encode(&self, messages: &[Message], tools: &[Tool]) -> Result<Vec<u32>, Fault>;
}

/// An agent with what stands behind it.
#[derive(Clone)]
pub struct Player {
    pub name: String,
    pub agent: Arc<dyn Agent>,
    pub encoder: Arc<dyn Encode>,
    /// Index into the workflow's policies.
    pub policy: usize,
    pub sampling: Sampling,
    pub max_tokens: u32,
    /// Strings that end a completion, beside those that the agent asks for.
    pub stop: Vec<String>,
}

/// Everything an episode needs.
#[derive(Clone)]
pub struct Cast {
    pub environment: Arc<dyn Environment>,
    /// By agent index.
    pub players: Vec<Player>,
    pub reward: Arc<dyn Reward>,
    pub team_weight: f64,
    pub local_weight: f64,
    pub turns: Turns,
    pub generator: Arc<dyn Generate>,
    /// Hears of what happens while it does. It changes nothing.
    pub listener: Option<UnboundedSender<Heard>>,
}
