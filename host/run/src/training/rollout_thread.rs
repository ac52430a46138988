//! The rollout thread of a run: plays steps and evaluations with the weights that the trainer hands over.
//!
//! [`Admission`] decides what starts next. Episodes of several steps play at the same time, each with the weights that
//! the schedule names for its step; steps are handed to the trainer in order. Weights that can't be kept beside others
//! are replaced when no episode runs.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;

use crate::checkpoints::PolicyVersions;
use crate::error::Error;
use crate::evaluation::EvaluationReport;
use crate::generation::PolicyRouter;
use crate::host::Host;
use crate::schedule::admission::{Action, Admission};

use super::StopRequest;
use super::cursor::ScenarioCursor;
use super::open_step::{EndedEpisode, OpenStep};
use super::rollouts::{PlayedStep, Rollouts};
use super::step_weights::StepWeights;

/// Weights after an update, with the work that they are for.
pub(super) struct Handover {
    /// Number of updates that the weights include.
    pub update: u64,
    pub weights: PolicyVersions,
    /// True to run the evaluations that are due after this update, before any step is played.
    pub evaluate: bool,
    /// Steps to play.
    pub steps: RangeInclusive<u64>,
}

/// Finished work of the rollout thread.
pub(super) enum RolloutEvent {
    /// Evaluations of the weights after an update.
    Evaluated {
        reports: Vec<EvaluationReport>,
        seconds: f64,
    },
    Played(Box<PlayedStep>),
    /// A stop was requested before the next step was played.
    Stopped,
}

/// State and surroundings of the rollout thread.
pub(super) struct RolloutThread<'r> {
    pub host: &'r Host,
    pub rollouts: &'r Rollouts,
    pub router: Arc<PolicyRouter>,
    pub admission: Admission,
    /// True if weights are kept beside others.
    pub keeps_versions: bool,
    /// Positions in the tasks of the scenarios. Empty before the first step.
    pub cursors: Vec<ScenarioCursor>,
    /// Total number of steps of the run.
    pub steps: u64,
    /// Request that ends the thread before it plays the next step. `None` if steps that the schedule has begun
    /// must be played, because a checkpoint needs them.
    pub stop: Option<StopRequest>,
    /// Weights that were handed over, by their update.
    pub weights: BTreeMap<u64, HandedWeights>,
    pub open: BTreeMap<u64, OpenStep>,
}

/// Weights that were handed over.
pub(super) enum HandedWeights {
    /// Not in use yet.
    New(PolicyVersions),
    InUse(StepWeights),
}

impl RolloutThread<'_> {
    /// Body of the thread. Ends when the trainer hangs up, or after the first error.
    pub fn run(
        mut self,
        handovers: UnboundedReceiver<Handover>,
        events: &Sender<Result<RolloutEvent, Error>>,
    ) {
        let host = self.host;
        let result = host.block_on(async {
            let mut running = JoinSet::new();
            // A trainer that has hung up needs no result.
            let mut send = |event| drop(events.send(Ok(event)));
            let result = self.play(handovers, &mut running, &mut send).await;
            running.shutdown().await;
            result
        });
        if let Err(error) = result {
            drop(events.send(Err(error)));
        }
    }

    async fn play(
        &mut self,
        mut handovers: UnboundedReceiver<Handover>,
        running: &mut JoinSet<EndedEpisode>,
        send: &mut dyn FnMut(RolloutEvent),
    ) -> Result<(), Error> {
        let mut is_connected = true;
        loop {
            while let Some(action) = self.admission.next_action() {
                self.act(action, running, send).await?;
            }
            if !is_connected && running.is_empty() {
                return Ok(());
            }
            tokio::select! {
                handover = handovers.recv(), if is_connected => match handover {
                    Some(Handover { update, weights, evaluate, steps }) => {
                        self.admission.hand_over(update, evaluate, steps);
                        self.weights.insert(update, HandedWeights::New(weights));
                        self.drop_unused_weights();
                    }
                    None => {
                        is_connected = false;
                        self.admission.stop();
                    }
                },
                Some(ended) = running.join_next() => {
                    let failed = |error| Error::Rollout {
                        source: Box::new(pl_rollout::Error::from(error)),
                        run: None,
                        episode: None,
                    };
                    let ended = ended.map_err(failed)?;
                    let step = ended.step;
                    if let Some(open) = self.open.get_mut(&step) {
                        open.end(ended);
                    }
                    self.admission.finished(step);
                }
            }
        }
    }

    async fn act(
        &mut self,
        action: Action,
        running: &mut JoinSet<EndedEpisode>,
        send: &mut dyn FnMut(RolloutEvent),
    ) -> Result<(), Error> {
        match action {
            Action::Evaluate { update } => {
                let weights = self.use_weights(update).await?;
                let started = Instant::now();
                let last = update == self.steps;
                let reports = self.rollouts.evaluate(self.host, update, last, &weights).await?;
                self.admission.evaluated();
                self.drop_unused_weights();
                send(RolloutEvent::Evaluated { reports, seconds: started.elapsed().as_secs_f64() });
            }
            Action::Draw { step, update } => {
                // The first step is always played: a run without one has nothing to continue from.
                if update > 0 && self.stop.as_ref().is_some_and(StopRequest::is_requested) {
                    self.admission.stop();
                    send(RolloutEvent::Stopped);
                    return Ok(());
                }
                let weights = self.use_weights(update).await?;
                let open = OpenStep::draw(self.rollouts, self.host, step, &self.cursors, weights).await?;
                self.cursors = open.cursors().to_vec();
                self.admission.add_episodes(step, open.round_size());
                self.open.insert(step, open);
            }
            Action::Start { step, episode } => {
                if let Some(playing) = self.open.get_mut(&step).and_then(|open| open.play(episode)) {
                    running.spawn(playing);
                }
            }
            Action::Collect { step } => {
                let Some(open) = self.open.get_mut(&step) else { return Ok(()) };
                if open.refill(self.rollouts).await? {
                    self.admission.add_episodes(step, open.round_size());
                    return Ok(());
                }
                self.admission.close(step);
                if let Some(open) = self.open.remove(&step) {
                    let played = open.close(self.rollouts, self.host)?;
                    if self.rollouts.draws_in_turn() {
                        self.cursors.clone_from(&played.cursors);
                    }
                    send(RolloutEvent::Played(Box::new(played)));
                }
                self.drop_unused_weights();
            }
        }
        Ok(())
    }

    /// Returns the weights after an update, ready to be used.
    async fn use_weights(&mut self, update: u64) -> Result<StepWeights, Error> {
        let ready = match self.weights.remove(&update) {
            Some(HandedWeights::InUse(weights)) => weights,
            Some(HandedWeights::New(weights)) => {
                let versions = weights.versions.clone();
                match self.keeps_versions {
                    true => StepWeights { versions, generator: Some(Arc::new(weights.pin(&self.router)?)) },
                    false => {
                        weights.publish(&self.router).await?;
                        StepWeights { versions, generator: None }
                    }
                }
            }
            None => return Err(Error::Engine(pl_types::GenerateError::Stopped)),
        };
        self.weights.insert(update, HandedWeights::InUse(ready.clone()));
        Ok(ready)
    }

    fn drop_unused_weights(&mut self) {
        let admission = &self.admission;
        self.weights.retain(|update, _| admission.uses(*update));
    }
}
