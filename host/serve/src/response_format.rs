//! Form of a chat's answer, by the names of OpenAI's API.

use pl_types::Grammar;
use serde::Deserialize;
use serde_json::{Value, json};

/// Form that completions are constrained to.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ResponseFormat {
    /// Any text.
    Text,
    /// Any object in JSON.
    JsonObject,
    /// A value in JSON of a schema.
    JsonSchema { json_schema: NamedSchema },
}

/// A JSON Schema with a name, which means nothing here. It is always kept to, as with `strict`.
#[derive(Debug, Deserialize)]
pub(crate) struct NamedSchema {
    /// Any object if it is missing.
    schema: Option<Value>,
}

impl ResponseFormat {
    /// Returns the grammar of the answers. Returns `None` if any text is one.
    pub(crate) fn grammar(&self) -> Option<Grammar> {
        let schema = match self {
            ResponseFormat::Text => return None,
            ResponseFormat::JsonObject => None,
            ResponseFormat::JsonSchema { json_schema } => json_schema.schema.as_ref(),
        };
        let any_object = || json!({ "type": "object" }).to_string();
        Some(Grammar::JsonSchema(schema.map_or_else(any_object, Value::to_string)))
    }
}
