//! Tasks of environments and evaluations, and the levels of generated ones.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Source of tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Tasks {
    /// A JSONL file, path relative to the workflow file (or to the working folder when from `--set`).
    File(String),
    /// A split of a data set of the program's catalogue: `gsm8k:train`.
    Named(DataName),
    /// The environment's own generator.
    Generated { split: String, level: u32 },
}

/// `gsm8k:train`: a data set and one of its splits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DataName {
    pub data: String,
    pub split: String,
}

impl DataName {
    /// Parses `NAME:SPLIT`. Returns `None` for a path: both parts consist of letters, digits, `_` and `-`.
    pub fn parse(text: &str) -> Option<DataName> {
        let is_word = |part: &str| {
            !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        };
        let (data, split) = text.split_once(':').filter(|(data, split)| is_word(data) && is_word(split))?;
        Some(DataName { data: data.to_owned(), split: split.to_owned() })
    }
}

impl fmt::Display for DataName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.data, self.split)
    }
}

/// `curriculum { from = 1; to = 5 }`: the level of generated tasks rises during training.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Curriculum {
    /// Level of the first step.
    pub from: u32,
    /// Level at which it stays.
    pub to: u32,
    pub rise: Rise,
}

/// Occasion on which the level of a curriculum rises by one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rise {
    /// Each time that this number of steps is finished.
    Steps(u32),
    /// When the mean success of a number of steps with tasks of the level reaches a bound.
    Success { at: f64, window: u32 },
}
