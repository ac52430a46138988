//! Vocabulary of a GGUF file, from its metadata.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::error::Error;
use crate::formats::gguf::file::MetadataValue;

/// Token types of GGUF.
pub(super) const UNKNOWN: i64 = 2;
pub(super) const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;
pub(super) const BYTE: i64 = 6;

/// Vocabulary of the file.
pub(super) struct Vocabulary<'a> {
    metadata: &'a HashMap<String, MetadataValue>,
    pub path: &'a Path,
    /// Tokens by id.
    pub tokens: Vec<&'a str>,
    /// Token types by id; empty if the file has none.
    kinds: Vec<i64>,
}

impl<'a> Vocabulary<'a> {
    pub(super) fn read(metadata: &'a HashMap<String, MetadataValue>, path: &'a Path) -> Result<Self, Error> {
        let mut this = Self { metadata, path, tokens: Vec::new(), kinds: Vec::new() };
        this.tokens = this.texts("tokens")?;
        let kinds = this.get("token_type").and_then(MetadataValue::list).unwrap_or_default();
        this.kinds = kinds.iter().map(|kind| kind.int().unwrap_or_default()).collect();
        Ok(this)
    }

    pub(super) fn get(&self, key: &str) -> Option<&'a MetadataValue> {
        self.metadata.get(&format!("tokenizer.ggml.{key}"))
    }

    pub(super) fn list(&self, key: &str) -> Result<&'a [MetadataValue], Error> {
        self.get(key).and_then(MetadataValue::list).ok_or_else(|| {
            Error::format(
                self.path,
                format!("`tokenizer.ggml.{key}` is missing or not a list; download the file again"),
            )
        })
    }

    pub(super) fn texts(&self, key: &str) -> Result<Vec<&'a str>, Error> {
        let invalid = |index: usize| {
            let reason =
                format!("entry {index} of `tokenizer.ggml.{key}` is not a text; download the file again");
            Error::format(self.path, reason)
        };
        self.list(key)?
            .iter()
            .enumerate()
            .map(|(index, item)| item.text().ok_or_else(|| invalid(index)))
            .collect()
    }

    pub(super) fn kind(&self, id: usize) -> i64 {
        self.kinds.get(id).copied().unwrap_or_default()
    }

    /// Returns the map from tokens to ids.
    pub(super) fn vocab(&self) -> Map<String, Value> {
        self.tokens.iter().enumerate().map(|(id, token)| ((*token).to_owned(), id.into())).collect()
    }

    /// Returns the tokens that are recognised in a text before it is split.
    pub(super) fn added(&self) -> Vec<Value> {
        let recognised = |id: &usize| matches!(self.kind(*id), UNKNOWN | CONTROL | USER_DEFINED);
        (0..self.tokens.len())
            .filter(recognised)
            .map(|id| {
                json!({
                    "id": id, "content": self.tokens[id], "single_word": false, "lstrip": false,
                    "rstrip": false, "normalized": false, "special": self.kind(id) != USER_DEFINED,
                })
            })
            .collect()
    }
}
