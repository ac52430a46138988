//! What a conversation is made of: messages, the calls of tools in them, and how it is to be written.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// One message of a conversation, in the form that chat templates read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Its text; may be empty where an assistant only calls tools.
    pub content: String,
    /// What the assistant thought before it answered, without the marks around it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The tools that the assistant called.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Of a tool's answer: the call that it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Of a tool's answer: the tool's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl ChatMessage {
    /// A message that is text alone.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), ..Self::default() }
    }
}

/// One call of a tool. Templates see `{"type": "function", "function": {"name": …, "arguments": …}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// What an answer refers to.
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// Its arguments, as a rule an object.
    pub arguments: Value,
}

impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Function<'a> {
            name: &'a str,
            arguments: &'a Value,
        }
        let mut map = serializer.serialize_map(None)?;
        if let Some(id) = &self.id {
            map.serialize_entry("id", id)?;
        }
        map.serialize_entry("type", "function")?;
        map.serialize_entry("function", &Function { name: &self.name, arguments: &self.arguments })?;
        map.end()
    }
}

/// How a conversation is written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RenderOptions {
    /// The tools on offer, each `{"type": "function", "function": {"name", "description", "parameters"}}`.
    pub tools: Vec<Value>,
    /// Whether the text goes on to where the assistant's answer begins.
    pub add_generation_prompt: bool,
    /// Whether the model may think first (`enable_thinking`); none leaves it to the template.
    pub thinking: Option<bool>,
}

impl RenderOptions {
    /// For a prompt: no tools, up to where the answer begins.
    pub fn prompt() -> Self {
        Self { add_generation_prompt: true, ..Self::default() }
    }
}
