//! Designers of the checked workflow.

use std::num::NonZeroU32;

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
    /// Steps of a run in which the agents of its designs learn, and then the designer. `None` if both learn in every step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alternate: Option<NonZeroU32>,
    /// Hand-made teams that are played before the first round.
    pub patterns: Vec<String>,
    /// Text at the end of its prompt.
    pub instructions: Option<String>,
    /// True if its designs are sampled from the grammar of the palette.
    pub constrained: bool,
    /// Designs of a task in a run that are sampled from the grammar although the others are not, and that the designer learns
    /// from as from its own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub guided: u32,
    #[serde(flatten)]
    pub sampling: Sampling,
    pub max_tokens: u32,
    pub palette: Palette,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Designer {
    /// Returns true if an update of `step` (counted from 1) trains on the designer's completions: in all steps, or in every
    /// other block of `alternate` steps, from the second on. In the blocks between, the agents of its designs learn.
    pub fn learns_in(&self, step: u64) -> bool {
        let block = |steps: NonZeroU32| step.saturating_sub(1) / u64::from(steps.get());
        self.alternate.is_none_or(|steps| block(steps) % 2 == 1)
    }
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
