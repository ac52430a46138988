//! Copies of an environment whose calls are recorded.

use pl_plugin::call_log::CallLog;
use pl_plugin::{DrawingForm, Outcome, Snapshot};
use tracing::Instrument;

use crate::components::Episode;
use crate::context::EpisodeContext;
use crate::events::EpisodeEvent;
use crate::fault::Fault;
use crate::setup::EpisodeSetup;
use crate::spans::call_span;
use crate::trace::EventKind;
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
        let mut copy = EnvironmentCopy::new(started?, call_log, recorder);
        self.record_drawing(&mut copy, recorder).await?;
        self.show_drawing(&mut copy).await?;
        Ok(copy)
    }

    /// Records a drawing of the state if the setup asks for it and the environment has one.
    pub(crate) async fn record_drawing(
        &self,
        environment: &mut EnvironmentCopy,
        recorder: &mut TraceRecorder,
    ) -> Result<(), Fault> {
        if self.drawings
            && let Some(svg) = environment.draw(DrawingForm::Svg).await?
        {
            recorder.record(None, EventKind::Drawing(svg));
        }
        Ok(())
    }

    /// Sends a drawing of the state as text to the observer.
    pub(crate) async fn show_drawing(&self, environment: &mut EnvironmentCopy) -> Result<(), Fault> {
        if let Some(observer) = &self.observer
            && let Some(drawing) = environment.draw(DrawingForm::Text).await?
        {
            // The observer may have closed the channel.
            let _ = observer.send(EpisodeEvent::Drawn(drawing));
        }
        Ok(())
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

    /// A drawing of the state. What the plugin does besides is not recorded: a replay draws nothing.
    pub async fn draw(&mut self, form: DrawingForm) -> Result<Option<String>, Fault> {
        let drawing = self.episode.draw(form).await;
        self.call_log.take();
        drawing
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
