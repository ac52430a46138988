//! Copies of an environment whose calls are recorded.

use pl_plugin::call_log::CallLog;
use pl_plugin::{Outcome, Snapshot};
use tracing::Instrument;

use crate::components::Episode;
use crate::context::EpisodeContext;
use crate::fault::Fault;
use crate::setup::EpisodeSetup;
use crate::spans::call_span;
use crate::trace::recorder::TraceRecorder;

/// A live copy of an environment with the call log of its plugin. Every call is recorded.
pub(crate) struct EnvironmentCopy {
    episode: Box<dyn Episode>,
    call_log: CallLog,
}

impl EpisodeSetup {
    /// Starts the first copy of an episode.
    pub(crate) async fn start(
        &self,
        context: &EpisodeContext,
        recorder: &mut TraceRecorder,
    ) -> Result<EnvironmentCopy, Fault> {
        let (key, call_log) = (&context.key, recorder.start_call_log());
        let started =
            self.environment.start(&context.task, key.start_seed(), key.environment(), &call_log).await;
        recorder.record_calls(None, "start", &call_log);
        Ok(EnvironmentCopy::new(started?, call_log, recorder))
    }

    /// Restores a copy from a snapshot, for the recorder's node visit or candidate.
    pub(crate) async fn restore(
        &self,
        state: &Snapshot,
        recorder: &mut TraceRecorder,
    ) -> Result<EnvironmentCopy, Fault> {
        let call_log = recorder.restore_call_log();
        let restored = self.environment.restore(state, &call_log).await;
        recorder.record_calls(None, "restore", &call_log);
        Ok(EnvironmentCopy::new(restored?, call_log, recorder))
    }
}

impl EnvironmentCopy {
    fn new(episode: Box<dyn Episode>, call_log: CallLog, recorder: &mut TraceRecorder) -> EnvironmentCopy {
        let copy = EnvironmentCopy { episode, call_log };
        copy.record_clock(recorder);
        copy
    }

    pub async fn view(&mut self, agent: &str, recorder: &mut TraceRecorder) -> Result<String, Fault> {
        let view = self.episode.view(agent).instrument(call_span("view", agent)).await;
        self.record(Some(agent), "view", recorder);
        view
    }

    pub async fn apply(
        &mut self,
        actions: &[(String, String)],
        recorder: &mut TraceRecorder,
    ) -> Result<Outcome, Fault> {
        let outcome = self.episode.apply(actions).instrument(call_span("apply", "")).await;
        self.record(None, "apply", recorder);
        outcome
    }

    pub async fn snapshot(&mut self, recorder: &mut TraceRecorder) -> Result<Snapshot, Fault> {
        let state = self.episode.snapshot().await;
        self.record(None, "snapshot", recorder);
        state
    }

    pub async fn suspend(&mut self, recorder: &mut TraceRecorder) -> Result<(), Fault> {
        let suspended = self.episode.suspend().await;
        self.record(None, "suspend", recorder);
        suspended
    }

    fn record(&self, agent: Option<&str>, function: &str, recorder: &mut TraceRecorder) {
        recorder.record_calls(agent, function, &self.call_log);
        self.record_clock(recorder);
    }

    /// Copies the flag of the copy to the recorder after each call: a tree drops its copies, and a restored
    /// copy starts with a clean flag.
    fn record_clock(&self, recorder: &mut TraceRecorder) {
        if !self.episode.reproducible() {
            recorder.mark_irreproducible();
        }
    }
}
