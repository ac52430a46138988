//! The recorded answers to plugins' jobs, queries and HTTP requests. A replay gives them again.

use std::collections::HashMap;

use pl_dsl::workflow::Rollout;
use pl_plugin::call_log::{CallLog, ReplayAnswers};

use super::{CandidateAttempt, EventKind, EventPosition, Trace};

/// The answers of a recorded attempt, by the plugin call or environment copy that received them.
#[derive(Debug, Default)]
pub struct RecordedAnswers(HashMap<AnswerKey, ReplayAnswers>);

/// The recipient of answers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum AnswerKey {
    /// A copy of the environment, over all its calls.
    Environment(CopyKey),
    /// One call of an agent or the reward: its position and function.
    Call(EventPosition, String),
}

/// A copy of the environment within an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CopyKey {
    /// The copy that the episode starts with. The only one in flat sampling.
    First,
    /// Tree: the copy of a node visit, or of one of its candidates.
    Restored(u32, Option<CandidateAttempt>),
}

impl RecordedAnswers {
    pub(crate) fn from_trace(trace: &Trace) -> RecordedAnswers {
        let mut recorded = RecordedAnswers::default();
        for event in &trace.events {
            let EventKind::CallLog { function, events } = &event.kind else { continue };
            let position = &event.position;
            let key = match (trace.mode, position.candidate, function.as_str()) {
                (.., "prompt" | "parse" | "score") => AnswerKey::Call(position.clone(), function.clone()),
                // With the number of the model call whose tool calls were answered.
                (.., function) if function.starts_with("call_tools") => {
                    AnswerKey::Call(position.clone(), function.to_owned())
                }
                // Only the copy that a tree starts with is snapshotted outside of a candidate.
                (Rollout::Flat, ..) | (Rollout::Tree, None, "start" | "snapshot") => {
                    AnswerKey::Environment(CopyKey::First)
                }
                (Rollout::Tree, candidate, _) => {
                    AnswerKey::Environment(CopyKey::Restored(position.node_visit, candidate))
                }
            };
            recorded.0.entry(key).or_default().extend(events);
        }
        recorded
    }

    /// A call log that supplies the recorded answers of one recipient.
    pub(crate) fn call_log(&self, key: &AnswerKey) -> CallLog {
        CallLog::replaying(self.0.get(key).cloned().unwrap_or_default())
    }
}
