//! Training data: a rollout produces transitions, a learner consumes them, and the run folder stores them.

use serde::{Deserialize, Serialize};

use crate::version::{VersionChange, version_spans};

/// The position of a transition in a run. Transitions are sorted by key before they are packed, so that a run
/// does not depend on the order in which episodes end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Training step, from 1.
    pub step: u64,
    /// Position in the step's task list.
    pub task: u32,
    /// Flat: the episode of the task. Tree: 0.
    pub sample: u32,
    /// Number of node visits before this one.
    pub node_visit: u32,
    /// Index into the workflow's agents.
    pub agent: u32,
    /// Tree: the candidate. Flat: 0.
    pub branch: u32,
    /// Number of model calls before this one in the turn: an agent may be asked again with the results of its tool calls.
    pub call: u32,
}

/// The group of a transition. Advantages come from comparing the transitions of one group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Group {
    pub step: u64,
    pub task: u32,
    pub agent: u32,
    /// Number of the agent's earlier visits.
    pub turn: u32,
    /// Tree: number of node visits before this one. Flat: `None`, since starting states may differ.
    pub node_visit: Option<u32>,
}

/// One completion with its prompt and its reward. The completions of a turn with tool calls all have the turn's reward;
/// training counts the turn once, and gives all of them its advantage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Transition {
    pub key: Key,
    pub group: Group,
    /// The task's id.
    pub task_id: String,
    pub agent: String,
    /// Index into the workflow's policies.
    pub policy: u32,
    /// Number of the agent's earlier visits.
    pub turn: u32,
    pub prompt: Vec<u32>,
    /// Token ids as sampled, including the end-of-turn token if it was sampled.
    pub completion: Vec<u32>,
    /// Natural logarithms, one per completion token, under exactly the distribution sampled from.
    pub logprobs: Vec<f32>,
    /// Sampled support: per completion token, the ids that it was drawn from (top-k, top-p, min-p, a grammar); an empty
    /// list means the whole vocabulary. `None` if no token was ever left out.
    pub support: Option<Vec<Vec<u32>>>,
    pub temperature: f64,
    /// Limit on completion tokens.
    pub max_tokens: u32,
    /// True if the limit, or the model's longest sequence, ended the completion.
    pub cut_off: bool,
    /// True for the completion that the turn's action was parsed from: the last of the turn.
    pub final_call: bool,
    /// Versions of all policies when the episode started.
    pub versions: Vec<u64>,
    /// Version of this policy at the completion's first token.
    pub version: u64,
    /// Later versions, which took over between tokens.
    #[serde(default)]
    pub version_changes: Vec<VersionChange>,
    pub team_reward: f64,
    pub local_reward: f64,
    /// Weighted sum of the two.
    pub reward: f64,
    pub success: bool,
    /// Tree: true if the episode continued from this candidate. Flat: always true.
    pub chosen: bool,
    /// The action, JSON. `null` unless the completion is the turn's last.
    pub action: String,
    /// Tree: hash of the environment's snapshot before the turn. Flat: empty.
    pub state: String,
    /// Tree, for a policy with a critic: the agent's next prompt as the state after the step gives it, before other
    /// agents act. `None` if the tree continued from this candidate, or if the agent could not act again.
    pub next_prompt: Option<Vec<u32>>,
    /// Value of the state before each completion token when it was sampled. `None` if the policy had no value head, or
    /// a server generated.
    pub values: Option<Vec<f32>>,
}

impl Transition {
    /// Returns the versions that the tokens of the completion were sampled with, in order, each with its number of tokens.
    pub fn version_spans(&self) -> Vec<(u64, usize)> {
        version_spans(self.version, &self.version_changes, self.completion.len())
    }
}
