//! Environments, agents and rewards as a plugin describes them.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One environment, agent or reward of a plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// The kind of item.
    pub kind: ItemKind,
    /// The name after the dot, as in `maths.problems`. Unique among the plugin's items of one kind.
    pub name: String,
    /// Documentation for people.
    pub doc: String,
    /// JSON Schema of the item's settings object.
    pub settings_schema: Value,
    /// Facts that an environment reports after each step. Empty for agents and rewards.
    pub facts: Vec<Fact>,
}

impl Item {
    /// True for a reward that scores only the end of an episode: its settings schema has `"x-scores": "end"`.
    pub fn scores_end(&self) -> bool {
        self.settings_schema.get("x-scores").and_then(Value::as_str) == Some("end")
    }

    /// Returns the smallest and the largest part of a reward that its settings schema declares: `"x-range": [LOW, HIGH]`.
    /// `None` if it declares none.
    pub fn reward_range(&self) -> Option<(f64, f64)> {
        let range = self.settings_schema.get("x-range")?;
        Some((range.get(0)?.as_f64()?, range.get(1)?.as_f64()?))
    }
}

/// The kind of an item: the block of a workflow that it can be used in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// Used in `environment NAME =`; each start is an episode.
    Environment,
    /// Used in `agent NAME =`; builds prompts and parses completions.
    Agent,
    /// Used in `reward NAME =`; scores steps.
    Reward,
}

impl fmt::Display for ItemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Environment => "environment",
            Self::Agent => "agent",
            Self::Reward => "reward",
        })
    }
}

/// A value that an environment reports after each step; `when` conditions read it as `env.NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// The name after `env.`.
    pub name: String,
    /// The type of its value.
    pub kind: FactKind,
    /// Documentation for people.
    #[serde(default)]
    pub doc: String,
}

/// The type of a fact's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FactKind {
    /// `true` or `false`.
    Boolean,
    /// Any JSON number.
    Number,
    /// A string.
    Text,
}

impl FactKind {
    /// True if `value` has this type.
    pub fn admits(self, value: &Value) -> bool {
        match self {
            Self::Boolean => value.is_boolean(),
            Self::Number => value.is_number(),
            Self::Text => value.is_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_reward_may_declare_its_range() {
        let range = |settings_schema: Value| {
            let (name, doc, facts) = ("score".to_owned(), String::new(), Vec::new());
            Item { kind: ItemKind::Reward, name, doc, settings_schema, facts }.reward_range()
        };
        assert_eq!(range(json!({ "type": "object", "x-range": [-1, 0.5] })), Some((-1.0, 0.5)));
        for none in [json!({}), json!(true), json!({ "x-range": [1] }), json!({ "x-range": ["0", "1"] })] {
            assert_eq!(range(none), None);
        }
    }
}
