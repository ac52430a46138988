//! Tool calls in OpenAI's form: those of a conversation's messages, and those in completions.

use pl_model::{ToolCall, ToolCallFormat};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::models::ServedModel;

/// A tool call of an assistant's message.
#[derive(Debug, Deserialize)]
pub(crate) struct MessageToolCall {
    id: Option<String>,
    function: CalledFunction,
}

#[derive(Debug, Deserialize)]
struct CalledFunction {
    name: String,
    /// The text of a JSON object.
    arguments: String,
}

impl MessageToolCall {
    /// Returns the call in the form of chat templates.
    ///
    /// # Errors
    /// If the arguments are not JSON.
    pub(crate) fn to_chat(&self) -> Result<ToolCall, ApiError> {
        let CalledFunction { name, arguments } = &self.function;
        let arguments = serde_json::from_str(arguments).map_err(|error| {
            ApiError::field(
                "messages",
                format!("the arguments of the tool call `{name}` are not JSON: {error}"),
            )
        })?;
        Ok(ToolCall { id: self.id.clone(), name: name.clone(), arguments })
    }
}

/// Checks the tools that a request offers: a template would write one without a name as it is.
///
/// # Errors
/// Status 400 if one is not a function with a name.
pub(crate) fn check_offered(tools: &[Value]) -> Result<(), ApiError> {
    let is_named = |tool: &Value| {
        tool["type"] == "function" && tool["function"]["name"].as_str().is_some_and(|name| !name.is_empty())
    };
    match tools.iter().position(|tool| !is_named(tool)) {
        Some(at) => {
            let form = r#"{"type": "function", "function": {"name": …}}"#;
            Err(ApiError::field("tools", format!("`tools[{at}]` is not of the form `{form}`")))
        }
        None => Ok(()),
    }
}

/// Returns the beginning of a completion's text that belongs to no tool call, whatever follows. White space alone counts as
/// nothing.
pub(crate) fn text_before<'t>(model: &ServedModel, text: &'t str) -> &'t str {
    let before = ToolCallFormat::of_template(&model.template).text_before(text);
    if before.trim().is_empty() { "" } else { before }
}

/// Returns the tool calls in a completion's text as a message has them. Returns `None` if there are none.
pub(crate) fn of_completion(model: &ServedModel, text: &str) -> Option<Vec<Value>> {
    let calls = ToolCallFormat::of_template(&model.template).parse(text);
    let message = |(index, call): (usize, ToolCall)| {
        let number: u128 = rand::random();
        let function = json!({ "name": call.name, "arguments": call.arguments.to_string() });
        json!({ "index": index, "id": format!("call_{number:032x}"), "type": "function", "function": function })
    };
    (!calls.is_empty()).then(|| calls.into_iter().enumerate().map(message).collect())
}
