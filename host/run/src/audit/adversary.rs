//! Adversaries: generators that answer prompts without a model.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use pl_plugin::call_log::CallLog;
use pl_plugin::{Completion, Message, Part, PromptRequest, Role, Tool, Turn};
use pl_rollout::{Agent, Fault, PromptEncoder};
use pl_types::{Finish, Generate, GenerateError, Request};
use serde::{Deserialize, Serialize, Serializer};

use super::fragments::fragments;

/// Rule by which an adversary answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Strategy {
    /// The empty answer.
    Empty,
    /// The last message of the prompt.
    Echo,
    /// A fragment of the prompt, drawn for each turn.
    Random,
    /// Always the fragment of this number.
    Constant(usize),
    /// Two fragments in turn.
    Alternate(usize, usize),
    /// The oracle's actions in another task, which they solve.
    OtherSolution,
    /// Moves of an agent that lead back to an earlier state, again and again.
    Loop,
    /// A plan of thousands of times the same move.
    LongPlan,
    /// An answer that the user gave.
    Given(String),
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Strategy::Empty => f.write_str("the empty answer"),
            Strategy::Echo => f.write_str("an echo of the prompt"),
            Strategy::Random => f.write_str("a random fragment of the prompt"),
            Strategy::Constant(index) => write!(f, "fragment {} of the prompt", index + 1),
            Strategy::Alternate(first, second) => {
                write!(f, "an alternation of fragments {} and {}", first + 1, second + 1)
            }
            Strategy::OtherSolution => f.write_str("the oracle's solution of another task"),
            Strategy::Loop => f.write_str("a loop of known moves"),
            Strategy::LongPlan => f.write_str("a long plan of one known move"),
            Strategy::Given(text) => write!(f, "the answer {text:?}"),
        }
    }
}

impl Serialize for Strategy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Prompt as an adversary reads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct TextPrompt {
    /// Index of the agent.
    agent: usize,
    /// Number of the agent's earlier visits.
    visit: u32,
    view: String,
    /// Pairs of role and text.
    pub messages: Vec<(String, String)>,
}

impl TextPrompt {
    /// Returns the text of all messages.
    pub fn text(&self) -> String {
        self.messages.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n")
    }
}

/// Reads a prompt that [`TextEncoder`] wrote. `None` for other tokens.
pub(super) fn decode(tokens: &[u32]) -> Option<TextPrompt> {
    let bytes: Option<Vec<u8>> = tokens.iter().map(|&token| u8::try_from(token).ok()).collect();
    serde_json::from_slice(&bytes?).ok()
}

/// An encoder with a token for each byte of the prompt as JSON.
pub(super) struct TextEncoder;

/// An agent that adds a message with its index, its visit and its view to each prompt.
pub(super) struct TaggingAgent {
    pub agent: Arc<pl_plugin::Agent>,
    pub index: usize,
}

impl PromptEncoder for TextEncoder {
    fn encode(&self, _policy: usize, messages: &[Message], _tools: &[Tool]) -> Result<Vec<u32>, Fault> {
        let broken = || Fault::new("prompt", "the prompt has no tag");
        let (tag, messages) = messages.split_last().ok_or_else(broken)?;
        let own: TextPrompt = serde_json::from_str(&text_of(tag)).map_err(|_| broken())?;
        let role = |message: &Message| match message.role {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
        };
        let messages = messages.iter().map(|one| (role(one).to_owned(), text_of(one))).collect();
        let prompt = TextPrompt { messages, ..own };
        let text = serde_json::to_string(&prompt).map_err(|error| Fault::new("prompt", error))?;
        Ok(text.bytes().map(u32::from).collect())
    }
}

fn text_of(message: &Message) -> String {
    let text = |part: &Part| match part {
        Part::Text(text) => text.clone(),
        Part::Image { .. } | Part::Data { .. } => String::new(),
    };
    message.parts.iter().map(text).collect()
}

#[async_trait]
impl Agent for TaggingAgent {
    async fn prompt(
        &self,
        view: &str,
        turn: &Turn,
        call_log: &CallLog,
    ) -> Result<Option<PromptRequest>, Fault> {
        let request = Agent::prompt(self.agent.as_ref(), view, turn, call_log).await?;
        let Some(mut request) = request else { return Ok(None) };
        let (agent, visit, view) = (self.index, turn.visit, view.to_owned());
        let tag = TextPrompt { agent, visit, view, messages: Vec::new() };
        let text = serde_json::to_string(&tag).map_err(|error| Fault::new("prompt", error))?;
        request.messages.push(Message { role: Role::System, parts: vec![Part::Text(text)] });
        Ok(Some(request))
    }

    async fn parse(&self, view: &str, completion: &Completion, call_log: &CallLog) -> Result<String, Fault> {
        Agent::parse(self.agent.as_ref(), view, completion, call_log).await
    }
}

/// Generator that answers by a rule.
pub(super) struct Adversary {
    pub agents: Vec<Arc<pl_plugin::Agent>>,
    pub strategy: Strategy,
}

impl Adversary {
    /// Returns the fragments of a prompt that the agent takes for another action than the empty answer.
    async fn vocabulary(&self, prompt: &TextPrompt) -> Vec<String> {
        let Some(agent) = self.agents.get(prompt.agent) else { return Vec::new() };
        let parse = async |text: &str| {
            let completion = Completion::new(text.to_owned(), Finish::Stop);
            agent.parse(&prompt.view, &completion).await.ok()
        };
        let empty = parse("").await;
        let mut known = Vec::new();
        let mut words = Vec::new();
        for fragment in fragments(&prompt.messages) {
            let action = parse(&fragment).await;
            if action.is_some() && action != empty && !known.contains(&action) {
                known.push(action);
                words.push(fragment);
            }
        }
        words
    }

    async fn answer(&self, prompt: &TextPrompt, seed: &[u8; 32]) -> String {
        let numbered = async |index: usize| {
            let words = self.vocabulary(prompt).await;
            words.get(index % words.len().max(1)).cloned().unwrap_or_default()
        };
        match &self.strategy {
            // Solutions and moves are actions, which no agent parses.
            Strategy::Empty | Strategy::OtherSolution | Strategy::Loop | Strategy::LongPlan => String::new(),
            Strategy::Given(text) => text.clone(),
            Strategy::Echo => prompt.messages.last().map(|(_, text)| text.clone()).unwrap_or_default(),
            Strategy::Random => numbered(usize::from(u16::from_le_bytes([seed[0], seed[1]]))).await,
            Strategy::Constant(index) => numbered(*index).await,
            Strategy::Alternate(first, second) => {
                numbered(if prompt.visit.is_multiple_of(2) { *first } else { *second }).await
            }
        }
    }
}

#[async_trait]
impl Generate for Adversary {
    async fn generate(&self, request: Request) -> Result<Vec<pl_types::Completion>, GenerateError> {
        let failed =
            |reason: &str| GenerateError::Failed { policy: request.policy, reason: reason.to_owned() };
        let prompt = decode(&request.prompt).ok_or_else(|| failed("the prompt is not that of an audit"))?;
        let mut completions = Vec::new();
        for seed in &request.seeds {
            completions.push(pl_types::Completion {
                tokens: vec![0],
                logprobs: vec![0.0],
                support: None,
                values: None,
                top: Vec::new(),
                text: self.answer(&prompt, seed).await,
                finish: Finish::Stop,
                version: 0,
                version_changes: Vec::new(),
            });
        }
        Ok(completions)
    }
}
