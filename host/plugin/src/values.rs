//! Arguments and results of calls into plugins. They are separate from the generated bindings, so that other
//! crates don't depend on the calling convention.

use pl_types::Finish;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One problem to solve.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Task {
    /// Unique within its task set.
    pub id: String,
    /// A JSON document: an unchanged record of a task file, or the environment's own.
    pub data: String,
}

/// Result of a step of an environment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The episode is over.
    pub done: bool,
    /// The episode ended early, without a decision.
    pub truncated: bool,
    /// Values of exactly the facts that the environment declares, each of its kind.
    pub facts: Map<String, Value>,
    /// A JSON document that only rewards see.
    pub evidence: String,
}

/// Form of a drawing of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DrawingForm {
    /// An SVG document. Untrusted: it may have scripts and references.
    Svg,
    /// Lines of text in a monospaced font.
    Text,
}

/// A turn of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Turn {
    /// The agent's name in the workflow.
    pub agent: String,
    /// Number of the agent's earlier visits in this episode.
    pub visit: u32,
}

/// Author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool's result.
    Tool,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text(String),
    /// An image.
    Image {
        /// MIME type, such as `image/png`.
        mime: String,
        /// Content of the file.
        bytes: Vec<u8>,
    },
    /// Anything else.
    Data {
        /// MIME type, such as `audio/wav`.
        mime: String,
        /// Content of the file.
        bytes: Vec<u8>,
    },
}

/// One message to a model.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Message {
    /// Author.
    pub role: Role,
    /// Content, in order.
    pub parts: Vec<Part>,
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tool {
    /// Name by which the model calls it.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// JSON Schema of the arguments object, as text.
    pub parameters: String,
}

/// A prompt for the model.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PromptRequest {
    /// Messages; at least one.
    pub messages: Vec<Message>,
    /// Tools that the model may call; may be empty.
    pub tools: Vec<Tool>,
    /// Non-empty strings that end the completion and are not part of its text.
    pub stop: Vec<String>,
}

/// A tool call of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ToolCall {
    /// The tool's name.
    pub name: String,
    /// Arguments: a JSON object, as text.
    pub arguments: String,
}

/// A completion of the model.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Completion {
    /// Text without stop strings.
    pub text: String,
    /// Tool calls; usually empty.
    pub tool_calls: Vec<ToolCall>,
    /// Reason for its end.
    pub finish: Finish,
}

impl Completion {
    /// Creates a completion without tool calls.
    pub fn new(text: impl Into<String>, finish: Finish) -> Self {
        Self { text: text.into(), tool_calls: Vec::new(), finish }
    }
}

/// Score of one agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentScore {
    /// The agent's name in the workflow.
    pub agent: String,
    /// Finite reward.
    pub reward: f64,
    /// `true` if this agent's own part is right.
    pub success: bool,
}

/// Scores of a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scores {
    /// Finite reward that all agents share.
    pub team: f64,
    /// One score per agent that acted, in the order of the actions.
    pub local: Vec<AgentScore>,
    /// `true` if the team has solved the task.
    pub success: bool,
}
