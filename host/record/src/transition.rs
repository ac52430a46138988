//! What a rollout hands to a learner, and what a run folder keeps of it.

use serde::{Deserialize, Serialize};

/// Where a transition belongs. Transitions are sorted by key before they are packed, so that a run does not
/// depend on the order in which episodes end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    pub step: u64,
    /// Position in the step's task list.
    pub task: u32,
    /// Flat: the episode of the task. Tree: 0.
    pub sample: u32,
    /// Stops of the turn cursor before this one.
    pub node_visit: u32,
    /// Index into the workflow's agents.
    pub agent: u32,
    /// Tree: the candidate. Flat: 0.
    pub branch: u32,
}

/// Transitions of one group are compared with each other to get advantages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Group {
    pub step: u64,
    pub task: u32,
    pub agent: u32,
    /// The agent's earlier visits.
    pub turn: u32,
    /// Tree: stops of the turn cursor before this one. Flat: none, since starting states may differ.
    pub node_visit: Option<u32>,
}

/// One completion, what led to it and what it earned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transition {
    pub key: Key,
    pub group: Group,
    /// The task's id.
    pub task_id: String,
    pub agent: String,
    /// Index into the workflow's policies.
    pub policy: u32,
    /// The agent's earlier visits.
    pub turn: u32,
    pub prompt: Vec<u32>,
    /// As sampled, the end-of-turn token included where one was sampled.
    pub completion: Vec<u32>,
    /// Natural logarithms, one per completion token, under exactly the distribution sampled from.
    pub logprobs: Vec<f32>,
    /// Per completion token, the ids that its sampler drew from (top-k, top-p, min-p); an empty list: the whole
    /// vocabulary. None: nothing was ever cut off.
    pub kept: Option<Vec<Vec<u32>>>,
    pub temperature: f64,
    /// Versions of all policies when the episode started.
    pub versions: Vec<u64>,
    /// Version of this policy for the completion.
    pub version: u64,
    pub team_reward: f64,
    pub local_reward: f64,
    /// Weighted sum of the two.
    pub reward: f64,
    pub success: bool,
    /// Tree: whether the episode went on from here. Flat: always.
    pub chosen: bool,
    /// The action, JSON.
    pub action: String,
    /// Hash of the environment's snapshot before the turn (tree) or empty (flat).
    pub state: String,
}
