//! Models that a server offers: one per policy.

use std::sync::Arc;

use chrono::NaiveDate;
use pl_model::{ChatMessage, ChatTemplate, RenderOptions, Tokenizer};
use serde_json::Value;

use crate::error::ApiError;

/// A policy as a model of the API.
#[derive(Debug, Clone)]
pub struct ServedModel {
    /// Name of the policy, under which requests ask for it.
    pub name: String,
    /// Index of the policy in the engine.
    pub policy: usize,
    pub tokenizer: Arc<Tokenizer>,
    pub template: Arc<ChatTemplate>,
    /// Largest number of tokens of a prompt with its completion.
    pub max_positions: usize,
    /// Date that chat templates see as today.
    pub date: NaiveDate,
    /// Name of its base model.
    pub base: String,
    /// Hash of the base model's files. Clients find the model that their adapters fit by it.
    pub model_hash: String,
    /// True if the policy is an adapter on the base model, false if it is the base model itself.
    pub is_adapter: bool,
}

impl ServedModel {
    /// Returns the token ids of a text.
    pub(crate) fn encode(&self, text: &str) -> Result<Vec<u32>, ApiError> {
        self.tokenizer.encode(text).map_err(|e| ApiError::field("prompt", e.to_string()))
    }

    /// Returns the token ids of a conversation in the model's chat format.
    ///
    /// # Errors
    /// If the template refuses the messages, or ignores the tools.
    pub(crate) fn encode_chat(
        &self,
        messages: &[ChatMessage],
        tools: Vec<Value>,
        thinking: Option<bool>,
        add_generation_prompt: bool,
    ) -> Result<Vec<u32>, ApiError> {
        let encode = |tools: Vec<Value>| {
            let options = RenderOptions { tools, thinking, add_generation_prompt, date: Some(self.date) };
            let encoded = self.template.encode(&self.tokenizer, messages, &options);
            encoded.map_err(|error| ApiError::field("messages", error.to_string()))
        };
        let offers = !tools.is_empty();
        let tokens = encode(tools)?;
        if offers && tokens == encode(Vec::new())? {
            return Err(ApiError::field("tools", "this model's chat template ignores tools; leave them out"));
        }
        Ok(tokens)
    }

    /// Returns the number of tokens that may follow a prompt: the number that is asked for, or else all that fit. `asked` has
    /// the request's field with that number, and `field` is the one with the prompt.
    ///
    /// # Errors
    /// If the prompt, or the prompt and the tokens asked for together, don't fit into the model.
    pub(crate) fn room(
        &self,
        prompt: usize,
        asked: Option<(&str, u32)>,
        field: &str,
    ) -> Result<u32, ApiError> {
        let (name, most) = (&self.name, self.max_positions);
        if prompt == 0 {
            return Err(ApiError::field(field, "the prompt is empty; give at least one token"));
        }
        // Clients tell by OpenAI's words that the context is too small.
        let known = format!("this model's maximum context length is {most} tokens with the completion");
        let left = most.saturating_sub(prompt);
        if left == 0 {
            let message = format!("{known}, but the prompt for `{name}` has {prompt}; shorten it");
            return Err(ApiError::too_long(field, message));
        }
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        match asked {
            Some((field, asked)) if asked > left => Err(ApiError::too_long(
                field,
                format!(
                    "{known}, but the prompt for `{name}` has {prompt}, and {asked} more may follow; shorten it, or ask for at \
                     most {left}"
                ),
            )),
            Some((_, asked)) => Ok(asked),
            None => Ok(left),
        }
    }
}
