//! The recorder of a trace while an attempt is played.

use std::sync::Arc;

use pl_plugin::call_log::{CallLog, Event};

use super::answers::{AnswerKey, CopyKey, RecordedAnswers};
use super::{CandidateAttempt, EventKind, EventPosition, TraceEvent};
use crate::fault::Fault;

/// Records the events of an attempt at the interpreter's current position.
///
/// Concurrent parts of an attempt each have a recorder of their own ([`TraceRecorder::fork`]), which are
/// joined in a fixed order ([`TraceRecorder::append`]), so that a trace does not depend on timing.
#[derive(Debug)]
pub(crate) struct TraceRecorder {
    node_visit: u32,
    candidate: Option<CandidateAttempt>,
    events: Vec<TraceEvent>,
    /// False once a wall clock or an HTTP response, not the code, decided something.
    reproducible: bool,
    /// Replay: the recorded answers to plugins.
    answers: Option<Arc<RecordedAnswers>>,
}

impl TraceRecorder {
    pub fn new(answers: Option<Arc<RecordedAnswers>>) -> TraceRecorder {
        TraceRecorder { node_visit: 0, candidate: None, events: Vec::new(), reproducible: true, answers }
    }

    /// An empty recorder at the same position.
    pub fn fork(&self) -> TraceRecorder {
        let TraceRecorder { node_visit, candidate, .. } = *self;
        TraceRecorder { node_visit, candidate, ..TraceRecorder::new(self.answers.clone()) }
    }

    /// An empty recorder for a candidate of the current node visit.
    pub fn fork_for_candidate(&self, branch: u32, retry: u32) -> TraceRecorder {
        TraceRecorder { candidate: Some(CandidateAttempt { branch, retry }), ..self.fork() }
    }

    /// Appends the events of a fork.
    pub fn append(&mut self, fork: TraceRecorder) {
        self.events.extend(fork.events);
        self.reproducible &= fork.reproducible;
    }

    /// Sets the position of the following events.
    pub fn set_node_visit(&mut self, node_visit: u32) {
        self.node_visit = node_visit;
    }

    pub fn node_visit(&self) -> u32 {
        self.node_visit
    }

    /// The candidate of the current node visit whose events are recorded.
    pub fn candidate(&self) -> Option<CandidateAttempt> {
        self.candidate
    }

    pub fn record(&mut self, agent: Option<&str>, kind: EventKind) {
        let position = self.position(agent);
        self.events.push(TraceEvent { position, kind });
    }

    pub fn record_fault(&mut self, fault: &Fault) {
        self.reproducible &= fault.reproducible;
        self.record(fault.agent.as_deref(), EventKind::from_fault(fault));
    }

    /// Drains the call log of a plugin after one call of a contract function.
    pub fn record_calls(&mut self, agent: Option<&str>, function: &str, call_log: &CallLog) {
        let events = call_log.take();
        if !events.is_empty() {
            self.reproducible &= events.iter().all(is_reproducible);
            self.record(agent, EventKind::CallLog { function: function.to_owned(), events });
        }
    }

    /// Notes that a wall clock, not the code, decided something.
    pub fn mark_irreproducible(&mut self) {
        self.reproducible = false;
    }

    /// True if another run of the same attempt has the same events: no wall clock and no HTTP response
    /// decided anything.
    pub fn reproducible(&self) -> bool {
        self.reproducible
    }

    /// A call log for one call of a stateless plugin: an agent or the reward.
    pub fn call_log(&self, agent: Option<&str>, function: &str) -> CallLog {
        self.new_call_log(|| AnswerKey::Call(self.position(agent), function.to_owned()))
    }

    /// The call log of the copy of the environment that the attempt starts with.
    pub fn start_call_log(&self) -> CallLog {
        self.new_call_log(|| AnswerKey::Environment(CopyKey::First))
    }

    /// The call log of a copy of the environment that is restored at the current position.
    pub fn restore_call_log(&self) -> CallLog {
        self.new_call_log(|| AnswerKey::Environment(CopyKey::Restored(self.node_visit, self.candidate)))
    }

    fn new_call_log(&self, key: impl FnOnce() -> AnswerKey) -> CallLog {
        self.answers.as_ref().map_or_else(CallLog::default, |answers| answers.call_log(&key()))
    }

    fn position(&self, agent: Option<&str>) -> EventPosition {
        EventPosition {
            node_visit: self.node_visit,
            candidate: self.candidate,
            agent: agent.map(str::to_owned),
        }
    }

    pub fn into_events(self) -> Vec<TraceEvent> {
        self.events
    }
}

/// True if the event is the same in another run of the attempt.
fn is_reproducible(event: &Event) -> bool {
    match event {
        Event::Http { .. } => false,
        Event::Sandbox { verdicts, .. } => verdicts.iter().all(|verdict| verdict.reproducible),
        Event::Retrieval { answer, .. } => answer.reproducible,
        Event::Question { answer, .. } => answer.reproducible,
        Event::Log { .. } | Event::Output { .. } | Event::Truncated { .. } => true,
    }
}
