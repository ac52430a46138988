//! Body of a request for chat completions.

use std::sync::Arc;

use pl_model::ChatMessage;
use pl_types::Sampling;
use serde::Deserialize;
use serde_json::Value;

use crate::error::ApiError;
use crate::logprobs;
use crate::response_format::ResponseFormat;
use crate::sampling::SamplingFields;
use crate::tool_calls::{self, MessageToolCall};

/// Body of a request.
#[derive(Debug, Deserialize)]
pub(crate) struct ChatRequest {
    pub(crate) model: Option<String>,
    pub(crate) messages: Vec<Message>,
    #[serde(default)]
    pub(crate) tools: Vec<Value>,
    pub(crate) tool_choice: Option<Value>,
    #[serde(default)]
    pub(crate) stream: bool,
    #[serde(default)]
    pub(crate) stream_options: StreamOptions,
    #[serde(default)]
    pub(crate) logprobs: bool,
    #[serde(default)]
    pub(crate) top_logprobs: usize,
    /// Adds the token ids of the prompt and of the completions.
    #[serde(default)]
    pub(crate) return_token_ids: bool,
    #[serde(default)]
    pub(crate) chat_template_kwargs: TemplateOptions,
    pub(crate) response_format: Option<ResponseFormat>,
    #[serde(skip)]
    pub(crate) sampling: SamplingFields,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct StreamOptions {
    #[serde(default)]
    pub(crate) include_usage: bool,
}

/// Variables of the chat template.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct TemplateOptions {
    pub(crate) enable_thinking: Option<bool>,
}

/// A message of a conversation.
#[derive(Debug, Deserialize)]
pub(crate) struct Message {
    pub(crate) role: String,
    content: Option<Content>,
    name: Option<String>,
    tool_call_id: Option<String>,
    #[serde(default)]
    tool_calls: Vec<MessageToolCall>,
}

/// Roles of messages. Templates write a role as it is, between the parts of a control token in some (`<|user|>`): another
/// word could make another token.
const ROLES: [&str; 9] = [
    "system",
    "developer",
    "user",
    "assistant",
    "tool",
    // Of earlier versions of OpenAI's API, of Llama's, GLM's and Gemma's templates.
    "function",
    "ipython",
    "observation",
    "model",
];

/// Content of a message: a text, or a list of parts.
#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "expected a text or a list of parts, each with a `type`")]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Deserialize)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
}

impl ChatRequest {
    /// Checks fields whose meaning depends on others.
    ///
    /// # Errors
    /// Status 400 if there are no messages, if `top_logprobs` is too large or lacks `logprobs`, if a tool has no name, or if
    /// `tool_choice` asks for a call.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        if self.messages.is_empty() {
            let message = "`messages` is empty; give at least one message";
            return Err(ApiError::field("messages", message));
        }
        logprobs::check_count("top_logprobs", Some(self.top_logprobs))?;
        if self.top_logprobs > 0 && !self.logprobs {
            let message = "`top_logprobs` is given without `logprobs`; set `logprobs` to true";
            return Err(ApiError::field("top_logprobs", message));
        }
        tool_calls::check_offered(&self.tools)?;
        match &self.tool_choice {
            Some(choice) if choice != "auto" && choice != "none" => {
                let message = "the model chooses among the tools: `tool_choice` is `auto` or `none`";
                Err(ApiError::field("tool_choice", message))
            }
            _ => Ok(()),
        }
    }

    /// True if a call in a completion is one of a tool. With `tool_choice` `none`, the prompt has the tools, as in vLLM, and
    /// what the model writes is a text.
    pub(crate) fn may_call_tools(&self) -> bool {
        !self.tools.is_empty() && self.tool_choice.as_ref().is_none_or(|choice| choice != "none")
    }

    /// Returns the distribution that the request asks for, with the grammar of its `response_format`.
    ///
    /// # Errors
    /// Those of [`SamplingFields::distribution`]; if `structured_outputs` constrains the answer too.
    pub(crate) fn distribution(&self) -> Result<Sampling, ApiError> {
        let sampling = self.sampling.distribution()?;
        match self.response_format.as_ref().and_then(ResponseFormat::grammar) {
            None => Ok(sampling),
            Some(_) if sampling.grammar.is_some() => {
                let message = "`response_format` and `structured_outputs` both constrain the answer; leave one of them out";
                Err(ApiError::field("response_format", message))
            }
            grammar => Ok(Sampling { grammar: grammar.map(Arc::new), ..sampling }),
        }
    }
}

impl Message {
    /// Returns the message in the form of chat templates.
    ///
    /// # Errors
    /// If it has another role, parts other than text, or a tool call whose arguments are not JSON.
    pub(crate) fn to_chat(&self) -> Result<ChatMessage, ApiError> {
        if !ROLES.contains(&self.role.as_str()) {
            let message = format!("there is no role {:?}; the roles are {}", self.role, ROLES.join(", "));
            return Err(ApiError::field("messages", message));
        }
        let mut message = ChatMessage::new(self.role.as_str(), self.text()?);
        message.name.clone_from(&self.name);
        message.tool_call_id.clone_from(&self.tool_call_id);
        message.tool_calls =
            self.tool_calls.iter().map(MessageToolCall::to_chat).collect::<Result<_, ApiError>>()?;
        Ok(message)
    }

    /// Returns the text of the content.
    ///
    /// # Errors
    /// If it has parts other than text.
    pub(crate) fn text(&self) -> Result<String, ApiError> {
        match &self.content {
            None => Ok(String::new()),
            Some(Content::Text(text)) => Ok(text.clone()),
            Some(Content::Parts(parts)) => parts.iter().map(Part::text).collect(),
        }
    }
}

impl Part {
    fn text(&self) -> Result<&str, ApiError> {
        match (&*self.kind, &self.text) {
            ("text", Some(text)) => Ok(text),
            ("text", None) => Err(ApiError::field("messages", "a part with type `text` has no `text`")),
            (kind, _) => Err(ApiError::field(
                "messages",
                format!("this model reads only text, but a part has type `{kind}`"),
            )),
        }
    }
}
