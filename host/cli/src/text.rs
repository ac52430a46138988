//! Messages to token ids through a model's chat template and tokenizer.

use std::sync::Arc;

use pl_model::{ChatMessage, ChatTemplate, RenderOptions, Tokenizer};
use pl_plugin::{Message, Part, Role};
use pl_rollout::{Encode, Fault};

/// A model's way to write a conversation.
pub struct ModelText {
    pub tokenizer: Arc<Tokenizer>,
    pub template: Arc<ChatTemplate>,
}

impl Encode for ModelText {
    fn encode(&self, messages: &[Message]) -> Result<Vec<u32>, Fault> {
        let messages = messages.iter().map(plain).collect::<Result<Vec<_>, _>>()?;
        let text = self
            .template
            .render(&messages, &RenderOptions::prompt())
            .map_err(|e| Fault::new("chat template", e))?;
        self.tokenizer.encode(&text).map_err(|e| Fault::new("tokenizer", e))
    }
}

fn plain(message: &Message) -> Result<ChatMessage, Fault> {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let mut content = String::new();
    for part in &message.parts {
        match part {
            Part::Text(text) => content.push_str(text),
            Part::Image { .. } | Part::Data { .. } => {
                return Err(Fault::new(
                    "prompt",
                    "this model reads text alone, but a message has an image or data part",
                ));
            }
        }
    }
    Ok(ChatMessage::new(role, content))
}
