//! The roles of an episode as traits: environment, agent, reward, prompt encoder.
//!
//! They separate the interpreter from the plugin host: the interpreter knows turns and candidates, not
//! components. A call log that is passed to a role receives what its plugin does besides returning a value
//! (log lines, output, jobs for the sandbox, HTTP requests). In a replay it also supplies the recorded
//! answers to jobs and requests.

use async_trait::async_trait;
use pl_plugin::call_log::CallLog;
use pl_plugin::{
    Completion, DrawingForm, Message, Outcome, PromptRequest, Scores, Snapshot, Task, Tool, ToolCall, Turn,
};

use crate::fault::Fault;

/// An environment: starts episodes.
#[async_trait]
pub trait Environment: Send + Sync {
    /// Starts an episode. `seed` fixes the starting state, `stream` (a ChaCha key) all later randomness.
    async fn start(
        &self,
        task: &Task,
        seed: u64,
        stream: [u8; 32],
        call_log: &CallLog,
    ) -> Result<Box<dyn Episode>, Fault>;
    /// Restores a copy of an episode from its snapshot.
    async fn restore(&self, snapshot: &Snapshot, call_log: &CallLog) -> Result<Box<dyn Episode>, Fault>;
    /// Number of copies that can be live at a time. Further episodes have to be suspended while they wait for
    /// a model.
    fn capacity(&self) -> usize {
        usize::MAX
    }
}

/// One live copy of an environment.
#[async_trait]
pub trait Episode: Send {
    /// The state as JSON, as one agent sees it.
    async fn view(&mut self, agent: &str) -> Result<String, Fault>;
    /// Applies pairs of agent and action, all at once.
    async fn apply(&mut self, actions: &[(String, String)]) -> Result<Outcome, Fault>;
    /// An action of `agent`, as JSON, that leads to success. `None` if the environment knows none.
    async fn oracle(&mut self, agent: &str) -> Result<Option<String>, Fault> {
        let _ = agent;
        Ok(None)
    }
    /// A drawing of the state for people. `None` if the environment has none in this form.
    async fn draw(&mut self, form: DrawingForm) -> Result<Option<String>, Fault> {
        let _ = form;
        Ok(None)
    }
    /// Serialises the state.
    async fn snapshot(&mut self) -> Result<Snapshot, Fault>;
    /// Frees the copy's slot until the next call. Has no effect on results.
    async fn suspend(&mut self) -> Result<(), Fault> {
        Ok(())
    }
    /// False if a wall clock, not the code, decided something that the environment has seen.
    fn reproducible(&self) -> bool {
        true
    }
}

/// An agent: builds prompts and parses completions. Stateless.
#[async_trait]
pub trait Agent: Send + Sync {
    /// The messages of the agent's next prompt. `None` if the agent skips the turn.
    async fn prompt(
        &self,
        view: &str,
        turn: &Turn,
        call_log: &CallLog,
    ) -> Result<Option<PromptRequest>, Fault>;
    /// Answers the tool calls of a completion, one result for each. `None` if the agent takes the completion as it is.
    async fn call_tools(
        &self,
        view: &str,
        calls: &[ToolCall],
        call_log: &CallLog,
    ) -> Result<Option<Vec<String>>, Fault> {
        let _ = (view, calls, call_log);
        Ok(None)
    }
    /// The action, as JSON, that a completion stands for.
    async fn parse(&self, view: &str, completion: &Completion, call_log: &CallLog) -> Result<String, Fault>;
}

/// A reward: scores the step that was just applied.
#[async_trait]
pub trait Reward: Send + Sync {
    async fn score(
        &self,
        task: &Task,
        actions: &[(String, String)],
        outcome: &Outcome,
        call_log: &CallLog,
    ) -> Result<Scores, Fault>;
}

/// The chat templates and tokenizers of the policies' models.
pub trait PromptEncoder: Send + Sync {
    /// Token ids of a prompt for a policy (an index into the workflow's), including the tools on offer and the
    /// generation prompt.
    fn encode(&self, policy: usize, messages: &[Message], tools: &[Tool]) -> Result<Vec<u32>, Fault>;
    /// The tool calls in the text of a completion, as the policy's model writes them.
    fn tool_calls(&self, policy: usize, text: &str) -> Vec<ToolCall> {
        let _ = (policy, text);
        Vec::new()
    }
    /// Largest number of tokens of a prompt with its completion. `None` if it isn't known.
    fn context(&self, policy: usize) -> Option<usize> {
        let _ = policy;
        None
    }
}

/// A generator of tasks by index.
#[async_trait]
pub trait TaskGenerator: Send + Sync {
    async fn tasks(&self, split: &str, start: u64, count: u32, level: u32) -> Result<Vec<Task>, Fault>;
}
