//! Values with their types: the ground type of evaluation.

use std::time::Duration;

use serde_json::Value as Json;

use crate::settings::{show_bytes, show_duration};

/// A typed value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Scalar {
    Integer(i64),
    Number(f64),
    Boolean(bool),
    Text(String),
    Bytes(u64),
    Duration(Duration),
    List(Vec<Scalar>),
}

impl Scalar {
    /// Returns the type as a phrase for messages.
    pub fn type_phrase(&self) -> &'static str {
        match self {
            Scalar::Integer(_) => "a whole number",
            Scalar::Number(_) => "a decimal number",
            Scalar::Boolean(_) => "`true` or `false`",
            Scalar::Text(_) => "text",
            Scalar::Bytes(_) => "a size",
            Scalar::Duration(_) => "a duration",
            Scalar::List(_) => "a list",
        }
    }

    /// Converts to JSON for plugins and run folders: sizes in bytes, durations in seconds.
    pub fn to_json(&self) -> Json {
        match self {
            Scalar::Integer(whole) => Json::from(*whole),
            Scalar::Number(number) => Json::from(*number),
            Scalar::Boolean(truth) => Json::from(*truth),
            Scalar::Text(text) => Json::from(text.as_str()),
            Scalar::Bytes(bytes) => Json::from(*bytes),
            Scalar::Duration(duration) => Json::from(duration.as_secs_f64()),
            Scalar::List(values) => values.iter().map(Scalar::to_json).collect(),
        }
    }

    /// Returns the text that `${ … }` inserts.
    pub fn to_text(&self) -> String {
        match self {
            Scalar::Text(text) => text.clone(),
            other => other.display(),
        }
    }

    /// Returns the value in the language's notation, for messages. Long values are shortened.
    pub fn display(&self) -> String {
        const MAX_SHOWN: usize = 40;
        match self {
            Scalar::Integer(whole) => whole.to_string(),
            Scalar::Number(number) => number.to_string(),
            Scalar::Boolean(truth) => truth.to_string(),
            Scalar::Text(text) if text.chars().count() > MAX_SHOWN => {
                format!("{:?}…", text.chars().take(MAX_SHOWN).collect::<String>())
            }
            Scalar::Text(text) => format!("{text:?}"),
            Scalar::Bytes(bytes) => show_bytes(*bytes),
            Scalar::Duration(duration) => show_duration(*duration),
            Scalar::List(values) => match values.get(..MAX_SHOWN.min(values.len())) {
                Some(first) => {
                    let first: Vec<String> = first.iter().map(Scalar::display).collect();
                    let more = if values.len() > MAX_SHOWN { ", …" } else { "" };
                    format!("[{}{more}]", first.join(", "))
                }
                None => String::new(),
            },
        }
    }

    /// Returns the number, whole or not, as a float.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            Scalar::Integer(whole) => Some(*whole as f64),
            Scalar::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// True if values of its type have an order.
    pub fn has_order(&self) -> bool {
        matches!(self, Scalar::Integer(_) | Scalar::Number(_) | Scalar::Bytes(_) | Scalar::Duration(_))
    }

    /// Size for the budget of a scope: bytes of text, and 32 for each element of a list.
    pub fn size(&self) -> usize {
        match self {
            Scalar::Text(text) => text.len(),
            Scalar::List(values) => values.iter().map(|one| 32 + one.size()).sum(),
            _ => 0,
        }
    }
}
