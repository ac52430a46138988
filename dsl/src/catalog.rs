//! What plugins offer, as far as the check needs to know it.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::workflow::Plugin;

/// Tells the check what plugins offer. The language knows no WebAssembly: whoever runs the check does.
pub trait Catalog {
    /// The items that a plugin offers.
    ///
    /// # Errors
    /// Why the plugin can't be loaded, in words that fit behind `plugin "x" can't be loaded: `.
    fn items(&self, plugin: &Plugin) -> Result<Vec<Item>, String>;

    /// The text of a file that an `include`, a `use` or a call of `file` names; the path is relative to the folder of
    /// the workflow file.
    ///
    /// # Errors
    /// Why it can't be read, in words that fit behind `x.mas can't be read: `.
    fn text(&self, path: &Path) -> Result<String, String>;
}

/// An environment, agent or reward of a plugin.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// What it can be used as.
    pub kind: ItemKind,
    /// What stands behind the dot: `problems` in `maths.problems`.
    pub name: String,
    /// For people.
    pub doc: String,
    /// JSON Schema of the item's settings object.
    pub settings_schema: Value,
    /// What an environment reports after each step. Empty for agents and rewards.
    pub facts: Vec<Fact>,
}

/// What an item can be used as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// Behind `environment NAME =`.
    Environment,
    /// Behind `agent NAME =`.
    Agent,
    /// Behind `reward NAME =`.
    Reward,
}

impl fmt::Display for ItemKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ItemKind::Environment => "environment",
            ItemKind::Agent => "agent",
            ItemKind::Reward => "reward",
        })
    }
}

/// A fact that `when` conditions read as `env.NAME`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// What stands behind `env.`.
    pub name: String,
    /// Its type.
    pub kind: FactKind,
}

/// The type of a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FactKind {
    /// `true` or `false`.
    Boolean,
    /// A number.
    Number,
    /// A text.
    Text,
}
