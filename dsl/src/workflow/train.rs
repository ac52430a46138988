//! Settings of training that all policies share.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Settings of `train { … }` that all policies share. Those that a policy can change are in the `training` of each policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Train {
    pub rollout: Rollout,
    /// Completions per group.
    pub samples: u32,
    pub tasks_per_step: u32,
    /// Limit on the rounds of tasks that a step plays in place of tasks without a spread of returns.
    #[serde(default)]
    pub max_refills: u32,
    #[serde(default)]
    pub faults: Faults,
    /// Amount that a completion which made a plugin fail is penalised by: minus its reward.
    #[serde(default)]
    pub fault_penalty: f64,
    pub steps: u32,
    pub schedule: Schedule,
    /// Number of updates that the weights of a rollout are behind; 0 for `sync`.
    #[serde(default)]
    pub staleness: u32,
    /// Tasks that an update trains on.
    #[serde(default)]
    pub order: BatchOrder,
    /// Weights of episodes in progress when a policy was updated.
    #[serde(default)]
    pub in_flight: InFlight,
    /// Passes over a step's transitions.
    pub epochs: u32,
    /// Optimiser steps per pass.
    pub mini_batches: u32,
    /// Permute rewards within their groups: a control that can't learn.
    pub shuffle_rewards: bool,
    /// Tokens in one packed forward pass. A prefix that its sequences share counts once. `None` for a number that depends on the
    /// device.
    pub token_budget: Option<u32>,
    /// Ranks that the work up to an optimiser step is divided among.
    #[serde(default = "one")]
    pub data_parallel: u32,
    /// Recompute each block in the backward pass instead of keeping its activations.
    pub gradient_checkpointing: bool,
    /// Choose deterministic algorithms on a GPU.
    #[serde(default)]
    pub deterministic: bool,
    /// Write what each update computed of each token.
    #[serde(default)]
    pub record_tokens: bool,
    /// Steps between checkpoints.
    pub checkpoint_every: u32,
    /// Number of newest checkpoints to keep, besides the best one.
    pub keep_checkpoints: u32,
    /// Episodes in flight.
    pub episodes: u32,
}

fn one() -> u32 {
    1
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rollout {
    Tree,
    Flat,
}

/// Treatment of completions that make a plugin fail.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Faults {
    /// Draws them again.
    #[default]
    Redraw,
    /// Trains on them with a penalty as their reward.
    Penalize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    Sync,
    OneStepOff,
    Async,
}

/// Tasks that an update trains on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BatchOrder {
    /// Those that were drawn for it.
    #[default]
    Keys,
    /// Those that ended first.
    Arrival,
}

/// Weights of episodes in progress when a policy was updated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InFlight {
    /// Those that they began with.
    #[default]
    Off,
    /// The new ones, which compute the keys and values of earlier tokens anew.
    Recompute,
    /// The new ones, with the keys and values of earlier tokens.
    Keep,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LrSchedule {
    Constant,
    Cosine,
}
