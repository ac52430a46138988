//! What the world answered in a recorded attempt: to each copy of the environment, and to each call of an agent or a
//! reward. A replay answers with it again.

use std::collections::HashMap;

use pl_dsl::workflow::Rollout;
use pl_plugin::journal::{Answers, Journal};

use crate::trace::{Candidate, Position, Trace, What};

/// The answers of an attempt, by who was answered.
#[derive(Debug, Default)]
pub struct Recorded(HashMap<Asker, Answers>);

/// Who had code run, or asked a host.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Asker {
    /// A copy of the environment, over all its calls.
    Copy(CopyId),
    /// One call of an agent or the reward: a function, and where it was called.
    Call(Position, String),
}

/// Tells the copies of an environment within an attempt apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CopyId {
    /// Flat: there is no other.
    First,
    /// Tree: of a stop, or of one of its candidates.
    Later(u32, Option<Candidate>),
}

impl Recorded {
    /// Those of a recorded attempt.
    pub fn of(trace: &Trace) -> Recorded {
        let mut recorded = Recorded::default();
        for entry in &trace.entries {
            let What::Did { function, events } = &entry.what else { continue };
            let asker = match (trace.mode, entry.at.candidate, function.as_str()) {
                (.., "prompt" | "parse" | "score") => Asker::Call(entry.at.clone(), function.clone()),
                // Only the copy that a tree starts with has its state taken outside of a candidate.
                (Rollout::Flat, ..) | (Rollout::Tree, None, "start" | "snapshot") => {
                    Asker::Copy(CopyId::First)
                }
                (Rollout::Tree, candidate, _) => Asker::Copy(CopyId::Later(entry.at.stop, candidate)),
            };
            recorded.0.entry(asker).or_default().extend(events);
        }
        recorded
    }

    /// A journal that answers as it was recorded.
    pub(crate) fn journal(&self, asker: &Asker) -> Journal {
        Journal::replaying(self.0.get(asker).cloned().unwrap_or_default())
    }
}
