//! Conversations: messages, tool calls, and options of their rendering.

use chrono::NaiveDate;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// One message of a conversation, in the form that chat templates read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ChatMessage {
    /// `system`, `user`, `assistant` or `tool`.
    pub role: String,
    /// Text; may be empty if an assistant only calls tools.
    pub content: String,
    /// The assistant's reasoning before the answer, without its delimiters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Tool calls of the assistant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// Id of the call that a tool's answer belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Name of the tool, in a tool's answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl ChatMessage {
    /// Creates a message with only a text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: content.into(), ..Self::default() }
    }
}

/// One call of a tool. In templates: `{"type": "function", "function": {"name": …, "arguments": …}}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Id that the tool's answer refers to.
    pub id: Option<String>,
    /// Name of the tool.
    pub name: String,
    /// Arguments, usually an object.
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

/// Options of rendering a conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RenderOptions {
    /// Available tools, each `{"type": "function", "function": {"name", "description", "parameters"}}`.
    pub tools: Vec<Value>,
    /// Ends the text with the start of the assistant's answer.
    pub add_generation_prompt: bool,
    /// Turns the model's reasoning on or off (`enable_thinking`); `None` for the template's default.
    pub thinking: Option<bool>,
    /// Date that `strftime_now` formats, at midnight. `None` for the current time in UTC, with which equal
    /// conversations have other texts tomorrow.
    pub date: Option<NaiveDate>,
}

impl RenderOptions {
    /// Returns the options of a prompt: no tools, and the text ends with the start of the answer.
    pub fn prompt() -> Self {
        Self { add_generation_prompt: true, ..Self::default() }
    }
}
