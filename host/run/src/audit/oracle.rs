//! The environment's oracle as a player: it tells which tasks can be solved at all, and what a solution earns.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use pl_plugin::call_log::CallLog;
use pl_plugin::{Completion, DrawingForm, Message, Outcome, PromptRequest, Snapshot, Task, Tool, Turn};
use pl_rollout::{Agent, Environment, Episode, Fault, PromptEncoder};
use pl_types::{Finish, Generate, GenerateError, Request};
use serde::{Deserialize, Serialize};

/// Result of the oracle on some tasks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OracleResult {
    /// Name of the environment or of the evaluation whose tasks it played.
    pub tasks: String,
    /// Level of generated tasks. `None` for those of a file or a data set.
    pub level: Option<u32>,
    pub episodes: usize,
    /// Share of the episodes that succeeded within the workflow's limit on visits.
    pub success: f64,
    /// Share of the episodes that did not succeed under a longer limit either.
    pub unsolvable: f64,
    /// Mean over episodes and agents of the sum of an agent's rewards.
    pub reward: f64,
    /// Number of episodes that a fault of a plugin ended.
    pub faults: usize,
}

impl OracleResult {
    /// Returns the name of the tasks, with their level if they are generated.
    pub fn named(&self) -> String {
        match self.level {
            Some(level) => format!("{} (level {level})", self.tasks),
            None => self.tasks.clone(),
        }
    }
}

/// A view with the oracle's advice on it.
#[derive(Serialize, Deserialize)]
struct AdvisedView {
    view: String,
    /// Action of the agent, if the oracle knows one.
    action: Option<String>,
}

/// An environment whose views carry the oracle's action.
pub(super) struct AdvisedEnvironment {
    pub environment: Arc<dyn Environment>,
    /// Number of actions that the oracle gave.
    pub advice: Arc<AtomicU64>,
}

#[async_trait]
impl Environment for AdvisedEnvironment {
    async fn start(
        &self,
        task: &Task,
        seed: u64,
        stream: [u8; 32],
        call_log: &CallLog,
    ) -> Result<Box<dyn Episode>, Fault> {
        let episode = self.environment.start(task, seed, stream, call_log).await?;
        Ok(Box::new(AdvisedEpisode { episode, advice: Arc::clone(&self.advice) }))
    }

    async fn restore(&self, snapshot: &Snapshot, call_log: &CallLog) -> Result<Box<dyn Episode>, Fault> {
        let episode = self.environment.restore(snapshot, call_log).await?;
        Ok(Box::new(AdvisedEpisode { episode, advice: Arc::clone(&self.advice) }))
    }

    fn capacity(&self) -> usize {
        self.environment.capacity()
    }
}

struct AdvisedEpisode {
    episode: Box<dyn Episode>,
    advice: Arc<AtomicU64>,
}

#[async_trait]
impl Episode for AdvisedEpisode {
    async fn view(&mut self, agent: &str) -> Result<String, Fault> {
        let view = self.episode.view(agent).await?;
        let action = self.episode.oracle(agent).await?;
        self.advice.fetch_add(u64::from(action.is_some()), Ordering::Relaxed);
        serde_json::to_string(&AdvisedView { view, action }).map_err(|error| Fault::new("view", error))
    }

    async fn apply(&mut self, actions: &[(String, String)]) -> Result<Outcome, Fault> {
        self.episode.apply(actions).await
    }

    async fn oracle(&mut self, agent: &str) -> Result<Option<String>, Fault> {
        self.episode.oracle(agent).await
    }

    async fn draw(&mut self, form: DrawingForm) -> Result<Option<String>, Fault> {
        self.episode.draw(form).await
    }

    async fn snapshot(&mut self) -> Result<Snapshot, Fault> {
        self.episode.snapshot().await
    }

    async fn suspend(&mut self) -> Result<(), Fault> {
        self.episode.suspend().await
    }

    fn reproducible(&self) -> bool {
        self.episode.reproducible()
    }
}

/// An agent that acts as the oracle says; without advice it parses the empty completion.
pub(super) struct AdvisedAgent(pub Arc<pl_plugin::Agent>);

#[async_trait]
impl Agent for AdvisedAgent {
    async fn prompt(
        &self,
        view: &str,
        turn: &Turn,
        call_log: &CallLog,
    ) -> Result<Option<PromptRequest>, Fault> {
        // The agent decides if it skips the turn.
        Agent::prompt(self.0.as_ref(), &read(view)?.view, turn, call_log).await
    }

    async fn parse(&self, view: &str, completion: &Completion, call_log: &CallLog) -> Result<String, Fault> {
        let AdvisedView { view, action } = read(view)?;
        match action {
            Some(action) => Ok(action),
            None => Agent::parse(self.0.as_ref(), &view, completion, call_log).await,
        }
    }
}

fn read(view: &str) -> Result<AdvisedView, Fault> {
    serde_json::from_str(view).map_err(|error| Fault::new("view", error))
}

/// An encoder without tokens of its own, and a generator of empty completions: the oracle reads no prompts.
pub(super) struct Silent;

impl PromptEncoder for Silent {
    fn encode(&self, _policy: usize, _messages: &[Message], _tools: &[Tool]) -> Result<Vec<u32>, Fault> {
        Ok(vec![0])
    }
}

#[async_trait]
impl Generate for Silent {
    async fn generate(&self, request: Request) -> Result<Vec<pl_types::Completion>, GenerateError> {
        let completion = |_: &[u8; 32]| pl_types::Completion {
            tokens: vec![0],
            logprobs: vec![0.0],
            support: None,
            values: None,
            top: Vec::new(),
            text: String::new(),
            finish: Finish::Stop,
            version: 0,
            version_changes: Vec::new(),
        };
        Ok(request.seeds.iter().map(completion).collect())
    }
}
