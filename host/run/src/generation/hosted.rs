//! Policies that are hosted models: conversations go out, text comes back.
//!
//! Such a model has a tokenizer and a chat template that are not public. So the prompt of such a policy is the
//! conversation itself, as the JSON that [`conversation_template`] writes, in tokens of the policy's `model`; and the
//! tokens of a completion are those of its text. They are what traces show. Log-probabilities don't exist.
//!
//! Tool calls, which OpenAI's messages have beside their text, are a part of the text here, as they are with other models: a
//! completion is written with them, and a conversation is sent with them and their results as OpenAI has these.

use std::collections::VecDeque;
use std::sync::Arc;

use pl_model::{ChatTemplate, StopStringMatcher, Tokenizer, ToolCallFormat};
use pl_servers::{ChatCompletion, ChatRequest, ChatToolCall, Fleet};
use pl_types::{Completion, Finish, GenerateError, Request};
use serde::Deserialize;
use serde_json::{Value, json};

use super::failure;

/// Template of conversations as JSON. Its comment names the form of tool calls in completions, which is found by the template.
const CONVERSATION: &str = "{# <tool_call> #}{{ {\"messages\": messages, \"tools\": tools} | tojson }}";

/// Form of tool calls in completions.
const FORMAT: ToolCallFormat = ToolCallFormat::Hermes;

/// Start and end of a tool call in this form.
const CALL: [&str; 2] = ["<tool_call>", "</tool_call>"];

/// Returns the template of prompts for hosted models.
///
/// # Errors
/// If the template engine refuses it.
pub(crate) fn conversation_template() -> Result<ChatTemplate, pl_model::Error> {
    ChatTemplate::new("a hosted model", Some(CONVERSATION.to_owned()), None, None)
}

/// A prompt.
#[derive(Deserialize)]
struct Conversation {
    messages: Vec<Value>,
    #[serde(default)]
    tools: Value,
}

/// A policy that is a hosted model.
pub(crate) struct HostedPolicy {
    /// Index in the workflow.
    pub(crate) policy: usize,
    /// Name of the model on the servers.
    pub(crate) served: String,
    pub(crate) fleet: Arc<Fleet>,
    pub(crate) tokenizer: Arc<Tokenizer>,
}

impl HostedPolicy {
    pub(crate) async fn generate(&self, request: Request) -> Result<Vec<Completion>, GenerateError> {
        let refuse = |reason: String| GenerateError::Request { policy: self.policy, parameter: None, reason };
        let text = self.tokenizer.decode(&request.prompt, false);
        let Conversation { messages, tools } = serde_json::from_str(&text).map_err(|error| {
            refuse(format!(
                "the tokenizer of its `model` can't write a conversation and read it back ({error}); name another `model`"
            ))
        })?;
        let sent = ChatRequest {
            model: self.served.clone(),
            messages: to_openai(messages).into(),
            tools,
            seeds: request.seeds.clone(),
            max_tokens: request.max_tokens,
            sampling: request.sampling.clone(),
            stop: request.stop.to_vec(),
        };
        let answers = self.fleet.chat(&sent).await.map_err(|error| failure(self.policy, error))?;
        let mut completions = Vec::new();
        for (index, answer) in answers.into_iter().enumerate() {
            let completion = self.finish(answer, &request).map_err(|error| refuse(error.to_string()))?;
            completion.send_whole(index, request.listener.as_ref());
            completions.push(completion);
        }
        Ok(completions)
    }

    /// Ends a completion before the first stop string: servers take only some of them. Adds its tool calls to one that has none.
    fn finish(&self, answer: ChatCompletion, request: &Request) -> Result<Completion, pl_model::Error> {
        let mut tokens = self.tokenizer.encode(&answer.text)?;
        let mut matcher = StopStringMatcher::new(&request.stop);
        let end = tokens.iter().position(|token| matcher.push(&self.tokenizer, *token));
        if let Some(end) = end {
            tokens.truncate(end + 1);
        }
        let mut text = matcher.text(&self.tokenizer, &tokens);
        if end.is_none() && !answer.tool_calls.is_empty() {
            text = with_calls(text, &answer.tool_calls);
            tokens = self.tokenizer.encode(&text)?;
        }
        Ok(Completion {
            text,
            tokens,
            logprobs: Vec::new(),
            support: None,
            values: None,
            top: Vec::new(),
            finish: if end.is_some() { Finish::Stop } else { answer.finish },
            version: 0,
            version_changes: Vec::new(),
        })
    }
}

/// Returns a text with the tool calls that follow it. One whose arguments are not JSON is written too, but read as text.
fn with_calls(mut text: String, calls: &[ChatToolCall]) -> String {
    let [start, end] = CALL;
    for ChatToolCall { id, name, arguments } in calls {
        let arguments = match arguments.trim() {
            "" => json!({}),
            arguments => serde_json::from_str(arguments).unwrap_or_else(|_| json!(arguments)),
        };
        let mut call = json!({ "name": name, "arguments": arguments });
        if let Some(id) = id {
            call["id"] = json!(id);
        }
        // A text within it must not look like its end.
        let call = call.to_string().replace('<', "\\u003c");
        text.extend([start, &call, end]);
    }
    text
}

/// Returns a conversation as OpenAI has it: where tool results follow an assistant's message, its calls apart from its text, and
/// each result with the id of its call.
fn to_openai(mut messages: Vec<Value>) -> Vec<Value> {
    let are_results: Vec<bool> = messages.iter().map(|message| message["role"] == "tool").collect();
    let followed = are_results.iter().skip(1).copied().chain([false]);
    let mut ids = VecDeque::new();
    for (index, (message, is_followed)) in messages.iter_mut().zip(followed).enumerate() {
        if message["role"] == "tool" {
            if let Some(id) = ids.pop_front() {
                message["tool_call_id"] = id;
            }
        } else if is_followed && message["role"] == "assistant" {
            let text = message["content"].as_str().unwrap_or_default().to_owned();
            let calls = FORMAT.parse(&text).into_iter().enumerate().map(|(number, call)| {
                let id =
                    call.id.filter(|id| !id.is_empty()).unwrap_or_else(|| format!("call_{index}_{number}"));
                let function = json!({ "name": call.name, "arguments": call.arguments.to_string() });
                json!({ "id": id, "type": "function", "function": function })
            });
            let calls: Vec<Value> = calls.collect();
            ids = calls.iter().map(|call| call["id"].clone()).collect();
            // OpenAI refuses an empty list.
            if calls.is_empty() {
                continue;
            }
            let before = text.split(CALL[0]).next().unwrap_or_default().trim_end();
            message["content"] = if before.is_empty() { Value::Null } else { json!(before) };
            message["tool_calls"] = json!(calls);
        }
    }
    messages
}

#[cfg(test)]
mod tests {
    use pl_model::{ChatMessage, Model, RenderOptions};
    use pl_plugin::{Message, Part, Role, Tool};
    use pl_rollout::PromptEncoder;

    use super::*;
    use crate::chat::{ChatFormat, ChatFormats};

    fn call(id: Option<&str>, name: &str, arguments: &str) -> ChatToolCall {
        ChatToolCall { id: id.map(str::to_owned), name: name.into(), arguments: arguments.into() }
    }

    #[test]
    fn tool_calls_and_their_results_are_those_of_openai() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tiny");
        let (tokenizer, _) = Model::text(&path).unwrap();
        let template = Arc::new(conversation_template().unwrap());
        let format = ChatFormat { tokenizer: Arc::new(tokenizer), template, max_positions: usize::MAX };
        let formats = ChatFormats::new([format], Default::default());
        let encoder = formats.encoder(None);
        let given = [
            call(Some("call_7"), "add", r#"{"a": 1, "text": "</tool_call> <|im_end|>"}"#),
            call(None, "now", ""),
            call(Some("call_9"), "add", "{broken"),
        ];
        let text = with_calls("Let me see.".to_owned(), &given);
        let calls = encoder.tool_calls(0, &text);
        let calls: Vec<_> = calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
        assert_eq!(calls, [("add", r#"{"a":1,"text":"</tool_call> <|im_end|>"}"#), ("now", "{}")]);

        let message = |role: Role, text: &str| Message { role, parts: vec![Part::Text(text.to_owned())] };
        let messages = [
            message(Role::User, "1 + 1?"),
            message(Role::Assistant, &text),
            message(Role::Tool, "2"),
            message(Role::Tool, "noon"),
            message(Role::Assistant, "<tool_call>that is no call"),
        ];
        let tool = Tool { name: "add".into(), description: String::new(), parameters: "{}".into() };
        let prompt = encoder.encode(0, &messages, &[tool]).unwrap();
        let prompt = formats.get(0).unwrap().tokenizer.decode(&prompt, false);
        let sent = to_openai(serde_json::from_str::<Conversation>(&prompt).unwrap().messages);
        let function = |name: &str, arguments: &str| json!({ "name": name, "arguments": arguments });
        let expected = json!([
            { "role": "user", "content": "1 + 1?" },
            { "role": "assistant", "content": "Let me see.", "tool_calls": [
                { "id": "call_7", "type": "function", "function": function("add", calls[0].1) },
                { "id": "call_1_1", "type": "function", "function": function("now", "{}") },
            ] },
            { "role": "tool", "content": "2", "tool_call_id": "call_7" },
            { "role": "tool", "content": "noon", "tool_call_id": "call_1_1" },
            { "role": "assistant", "content": "<tool_call>that is no call" },
        ]);
        assert_eq!(json!(sent), expected);
        assert!(with_calls(String::new(), &given[1..2]).starts_with("<tool_call>{"));
    }

    #[test]
    fn an_answer_without_calls_is_sent_as_it_is() {
        let call = r#"<tool_call>{"name": "now", "arguments": {}}</tool_call>"#;
        let messages = vec![
            json!({ "role": "assistant", "content": call }),
            json!({ "role": "assistant", "content": "first <tool_call>that is no call" }),
            json!({ "role": "tool", "content": "noon" }),
        ];
        assert_eq!(to_openai(messages.clone()), messages);
    }

    #[test]
    fn a_conversation_survives_the_tokenizer() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tiny");
        let (tokenizer, _) = Model::text(&path).unwrap();
        let content = "2 < 3,  \"quoted\"\n\tand <|im_end|> & more";
        let messages = [ChatMessage::new("user", content)];
        let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
        let text = conversation_template().unwrap().render(&messages, &options).unwrap();
        let tokens = tokenizer.encode(&text).unwrap();
        let read: Conversation = serde_json::from_str(&tokenizer.decode(&tokens, false)).unwrap();
        assert_eq!(read.messages[0]["role"], "user");
        assert_eq!(read.messages[0]["content"], content);
        assert!(read.tools.is_null() || read.tools.as_array().is_some_and(Vec::is_empty), "{}", read.tools);
    }
}
