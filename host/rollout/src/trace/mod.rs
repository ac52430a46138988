//! The trace of an attempt at an episode, successful or failed: enough to run its components again without a
//! model, and to see what they did.
//!
//! A trace lists events in the interpreter's order, independent of timing: the token ids of each prompt, the
//! completion, its action, the outcome, the scores, and the call logs of plugins. Views are not stored: in a
//! replay the environment produces them again.

pub(crate) mod answers;
pub(crate) mod recorder;

use pl_dsl::workflow::Rollout;
use pl_plugin::call_log::Event;
use pl_plugin::{Outcome, Scores, Task};
use pl_types::{Completion, Finish, StreamKey};
use serde::{Deserialize, Serialize};

use crate::fault::Fault;

/// An attempt at an episode (flat) or a tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    pub key: StreamKey,
    /// Name of the scenario. `None` in a workflow without `scenario` blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scenario: Option<String>,
    /// Text of the design that wrote the team. `None` for the scenario's own team, and for a designer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub design: Option<String>,
    pub task: Task,
    pub mode: Rollout,
    /// Tree: candidates per node visit.
    pub candidates: u32,
    /// Flat: true if the environment was suspended while a model generated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspends: bool,
    pub events: Vec<TraceEvent>,
    pub end: EpisodeEnd,
}

/// An event of an episode with its position.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceEvent {
    pub position: EventPosition,
    pub kind: EventKind,
}

/// The position of an event within an episode.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EventPosition {
    /// Number of node visits before this one.
    pub node_visit: u32,
    /// The candidate of the node visit. `None` for what its candidates share, and always in flat sampling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<CandidateAttempt>,
    /// The workflow's name of the acting agent, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
}

/// One attempt at a candidate of a node visit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CandidateAttempt {
    pub branch: u32,
    /// Number of earlier attempts at the candidate that failed.
    pub retry: u32,
}

/// The kind of an event, with its data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// An agent was prompted; within a turn again after the results of tool calls.
    Prompted {
        /// Number of the agent's earlier visits.
        visit: u32,
        /// Token ids.
        prompt: Vec<u32>,
    },
    /// An agent skipped the turn.
    Skipped,
    /// The model completed a prompt.
    Completion { text: String, finish: Finish, tokens: Vec<u32> },
    /// The agent answered the tool calls of the completion, one result for each.
    ToolResults(Vec<String>),
    /// The prompt left no room for a completion in the model's context, so that the episode was truncated: at once, or
    /// after the turn if the prompt had the results of tool calls.
    PromptTooLong { tokens: usize, context: usize },
    /// The agent parsed the completion into an action (JSON).
    Action(String),
    /// The environment applied the joint action. Truncated also if a prompt of the turn was too long.
    Outcome(Outcome),
    /// The environment's drawing of the state, an SVG document of the plugin's: at the start, and after each step.
    Drawing(String),
    /// The reward scored the step.
    Scores(Scores),
    /// Tree: the branch that the episode continues from.
    Chosen(u32),
    /// The call log of a plugin: its activity during one call of a contract function.
    CallLog { function: String, events: Vec<Event> },
    /// The episode or the candidate failed.
    Fault { stage: String, cause: String, reproducible: bool },
}

impl EventKind {
    pub(crate) fn from_fault(fault: &Fault) -> EventKind {
        EventKind::Fault {
            stage: fault.stage.to_owned(),
            cause: fault.cause.clone(),
            reproducible: fault.reproducible,
        }
    }
}

/// Returns a completion as it was recorded. It is not trained on: it has no log-probabilities.
pub(crate) fn recorded_completion(text: &str, finish: Finish, tokens: &[u32]) -> Completion {
    Completion {
        tokens: tokens.to_vec(),
        logprobs: Vec::new(),
        support: None,
        values: None,
        top: Vec::new(),
        text: text.to_owned(),
        finish,
        version: 0,
        version_changes: Vec::new(),
    }
}

impl Trace {
    /// Returns the agent whose prompt left no room for a completion and so ended the episode, with the tokens of the prompt and of
    /// the context. Of the candidates of a tree, only those that the episode went on from count.
    pub fn long_prompt(&self) -> Option<(&str, usize, usize)> {
        let is_taken = |position: &EventPosition| {
            position.candidate.is_none_or(|own| {
                self.events.iter().any(|other| {
                    other.position.node_visit == position.node_visit
                        && matches!(other.kind, EventKind::Chosen(branch) if branch == own.branch)
                })
            })
        };
        let ended = self.events.iter().rev().filter(|_| self.end.truncated);
        ended.filter(|event| is_taken(&event.position)).find_map(|event| match event.kind {
            EventKind::PromptTooLong { tokens, context } => {
                Some((event.position.agent.as_deref().unwrap_or_default(), tokens, context))
            }
            _ => None,
        })
    }
}

/// The end of an attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpisodeEnd {
    /// The team's success after the last step.
    pub success: bool,
    /// True if a limit ended the episode.
    pub truncated: bool,
    /// Number of node visits.
    pub turns: u32,
    /// Number of tokens sampled.
    pub tokens: u64,
    /// Description of the failure, if the attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}
