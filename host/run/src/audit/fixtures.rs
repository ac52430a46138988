//! Traces for the tests of audits.

use pl_dsl::workflow::Rollout;
use pl_plugin::Task;
use pl_rollout::{EpisodeEnd, EventKind, EventPosition, Trace, TraceEvent};
use pl_types::{Phase, StreamKey};

/// Returns the trace of an episode without success, all of whose events are at one position.
pub(super) fn trace(task: &str, agent: Option<&str>, kinds: Vec<EventKind>) -> Trace {
    let position = EventPosition { node_visit: 0, candidate: None, agent: agent.map(str::to_owned) };
    let event = |kind| TraceEvent { position: position.clone(), kind };
    Trace {
        key: StreamKey { seed: 0, phase: Phase::Play, step: 0, task: 0, sample: 0, attempt: 0 },
        scenario: None,
        design: None,
        task: Task { id: task.to_owned(), data: "{}".to_owned() },
        mode: Rollout::Flat,
        candidates: 1,
        suspends: false,
        events: kinds.into_iter().map(event).collect(),
        end: EpisodeEnd { success: false, truncated: false, turns: 1, tokens: 0, failure: None },
    }
}
