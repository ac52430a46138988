//! Policies that are hosted models: conversations go out, text comes back.
//!
//! Such a model has a tokenizer and a chat template that are not public. So the prompt of such a policy is the
//! conversation itself, as the JSON that [`conversation_template`] writes, in tokens of the policy's `model`; and the
//! tokens of a completion are those of its text. They are what traces show. Log-probabilities don't exist.

use std::sync::Arc;

use pl_model::{ChatTemplate, StopStringMatcher, Tokenizer};
use pl_servers::{ChatCompletion, ChatRequest, Fleet, ServerError};
use pl_types::{Chunk, Completion, Finish, GenerateError, Request};
use serde::Deserialize;
use serde_json::Value;

/// Template of conversations as JSON.
const CONVERSATION: &str = "{{ {\"messages\": messages, \"tools\": tools} | tojson }}";

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
    messages: Value,
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
            messages,
            tools,
            seeds: request.seeds.clone(),
            max_tokens: request.max_tokens,
            sampling: request.sampling.clone(),
            stop: request.stop.to_vec(),
        };
        let answers = self.fleet.chat(&sent).await.map_err(|error| match error {
            ServerError::Refused { .. } => refuse(error.to_string()),
            error => GenerateError::Failed { policy: self.policy, reason: error.to_string() },
        })?;
        let mut completions = Vec::new();
        for (index, answer) in answers.into_iter().enumerate() {
            let completion = self.finish(answer, &request).map_err(|error| refuse(error.to_string()))?;
            if let Some(listener) = &request.listener {
                let Completion { tokens, logprobs, top, text, .. } = completion.clone();
                // A closed listener is not an error: the completion is also returned whole.
                let _ = listener.send(Chunk { index, tokens, logprobs, top, text, last: true });
            }
            completions.push(completion);
        }
        Ok(completions)
    }

    /// Ends a completion before the first stop string: servers take only some of them.
    fn finish(&self, answer: ChatCompletion, request: &Request) -> Result<Completion, pl_model::Error> {
        let mut tokens = self.tokenizer.encode(&answer.text)?;
        let mut matcher = StopStringMatcher::new(&request.stop);
        let end = tokens.iter().position(|token| matcher.push(&self.tokenizer, *token));
        if let Some(end) = end {
            tokens.truncate(end + 1);
        }
        Ok(Completion {
            text: matcher.text(&self.tokenizer, &tokens),
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

#[cfg(test)]
mod tests {
    use pl_model::{ChatMessage, Model, RenderOptions};

    use super::*;

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
