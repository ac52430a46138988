//! What goes into calls and comes out of them, apart from the generated types so that others need not know how
//! plugins are called.

use pl_types::Finish;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One problem to solve.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Task {
    /// Unique within its task set.
    pub id: String,
    /// A JSON document: a record of a task file as it stands there, or what the environment made.
    pub data: String,
}

/// What an environment says after a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The episode is over.
    pub done: bool,
    /// The episode was cut short: over, but not decided.
    pub truncated: bool,
    /// Exactly the facts that the environment declares, each of its kind.
    pub facts: Map<String, Value>,
    /// A JSON document for rewards alone.
    pub evidence: String,
}

/// The turn that an agent is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Turn {
    /// The agent's name in the workflow.
    pub agent: String,
    /// The agent's earlier visits in this episode.
    pub visit: u32,
}

/// Who speaks in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Sets the frame.
    System,
    /// Asks.
    User,
    /// The model.
    Assistant,
    /// A tool's answer.
    Tool,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text(String),
    /// A picture.
    Image {
        /// Such as `image/png`.
        mime: String,
        /// The file.
        bytes: Vec<u8>,
    },
    /// Anything else.
    Data {
        /// Such as `audio/wav`.
        mime: String,
        /// The file.
        bytes: Vec<u8>,
    },
}

/// One message to a model.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What, in order.
    pub parts: Vec<Part>,
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tool {
    /// What the model writes to call it.
    pub name: String,
    /// For the model.
    pub description: String,
    /// JSON Schema of the arguments object, as text.
    pub parameters: String,
}

/// What to ask the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PromptRequest {
    /// At least one.
    pub messages: Vec<Message>,
    /// May be empty.
    pub tools: Vec<Tool>,
    /// Strings that end the completion and are no part of its text. None is empty.
    pub stop: Vec<String>,
}

/// A call that the model asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ToolCall {
    /// The tool.
    pub name: String,
    /// A JSON object, as text.
    pub arguments: String,
}

/// What the model answered.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Completion {
    /// Without stop strings.
    pub text: String,
    /// Mostly empty.
    pub tool_calls: Vec<ToolCall>,
    /// Why it ended.
    pub finish: Finish,
}

impl Completion {
    /// A completion that calls no tools.
    pub fn new(text: impl Into<String>, finish: Finish) -> Self {
        Self { text: text.into(), tool_calls: Vec::new(), finish }
    }
}

/// What one agent earned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentScore {
    /// The agent's name in the workflow.
    pub agent: String,
    /// Finite.
    pub reward: f64,
    /// Whether this agent's own part is right.
    pub success: bool,
}

/// What a step earned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// The part that all agents share. Finite.
    pub team: f64,
    /// One per agent that acted, in the order of the actions.
    pub local: Vec<AgentScore>,
    /// Whether the team has solved the task as things stand.
    pub success: bool,
}
