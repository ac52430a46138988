//! Grammars that completions are constrained to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A language of texts. Constrained decoding samples no token that leads out of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grammar {
    /// A context-free grammar in the dialect of Lark that llguidance reads. Its texts derive from `start`.
    Lark(String),
    /// A JSON Schema. Its texts are the JSON documents that fit.
    JsonSchema(String),
}
