//! Parts of responses with chat completions.

use pl_types::Finish;
use serde_json::{Map, Value, json};

use crate::service::unix_time;

/// The fields that all responses and chunks of a request share.
pub(crate) struct Envelope {
    id: String,
    created: u64,
    model: String,
}

impl Envelope {
    pub(crate) fn new(model: &str) -> Self {
        let number: u128 = rand::random();
        Self { id: format!("chatcmpl-{number:032x}"), created: unix_time(), model: model.to_owned() }
    }

    pub(crate) fn object(&self, kind: &str, choices: &[Value]) -> Map<String, Value> {
        let fields = [
            ("id", json!(self.id)),
            ("object", json!(kind)),
            ("created", json!(self.created)),
            ("model", json!(self.model)),
            ("choices", json!(choices)),
        ];
        fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    pub(crate) fn chunk(&self, choice: Value) -> Value {
        Value::Object(self.object("chat.completion.chunk", &[choice]))
    }

    pub(crate) fn usage_chunk(&self, usage: Value) -> Value {
        let mut chunk = self.object("chat.completion.chunk", &[]);
        chunk.insert("usage".to_owned(), usage);
        Value::Object(chunk)
    }
}

/// Returns the reason for which a completion ended, as OpenAI names it.
pub(crate) fn finish_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::ToolCalls => "tool_calls",
    }
}

/// Returns the counts of tokens of a response.
pub(crate) fn usage(prompt: usize, completion: usize) -> Value {
    json!({ "prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion })
}
