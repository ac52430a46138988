//! Designers of the checked workflow.

use pl_types::Sampling;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `designer architect = std.designer { policy = coder; palette { … } }`: a model that writes teams.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Designer {
    pub name: String,
    /// Position in the workflow's `policies`.
    pub policy: usize,
    /// Designs of a round.
    pub designs: u32,
    /// Episodes that a design plays.
    pub executions: u32,
    /// Completions that the advantages of its designs' agents compare.
    #[serde(default)]
    pub executor_groups: ExecutorGroups,
    /// Hand-made teams that are played before the first round.
    pub patterns: Vec<String>,
    /// Text at the end of its prompt.
    pub instructions: Option<String>,
    /// True if its designs are sampled from the grammar of the palette.
    pub constrained: bool,
    #[serde(flatten)]
    pub sampling: Sampling,
    pub max_tokens: u32,
    pub palette: Palette,
}

/// Groups of the completions of designs' agents.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExecutorGroups {
    /// By design, agent and turn.
    #[default]
    Design,
    /// By task, item, policy and turn.
    Role,
}

/// `palette { agents = [std.chat]; policies = [coder]; max_agents = 5 }`: parts that designs may use, and their bounds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Palette {
    /// Items such as `std.chat`.
    pub agents: Vec<String>,
    /// Names of policies.
    pub policies: Vec<String>,
    /// Largest number of agents.
    pub max_agents: usize,
    /// Largest number of visits of one agent in an episode.
    pub max_visits: u32,
    /// Largest bound of the tokens of an episode.
    pub max_tokens: u64,
}
