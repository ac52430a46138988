//! The rollout thread of a run: plays steps and evaluations with the weights that the trainer hands over.
//!
//! It handles [`Handover`]s one after the other, in the order in which the trainer sent them. So it plays each
//! step with the weights that the schedule names, and the engine's weights never change while episodes run.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use crate::checkpoints::PolicyVersions;
use crate::error::Error;
use crate::evaluation::EvaluationReport;
use crate::generation::PolicyRouter;
use crate::host::Host;

use super::StopRequest;
use super::cursor::ScenarioCursor;
use super::rollouts::{PlayedStep, Rollouts};

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
    /// Positions in the tasks of the scenarios. Empty before the first step.
    pub cursors: Vec<ScenarioCursor>,
    /// Total number of steps of the run.
    pub steps: u64,
    /// Request that ends the thread before it plays the next step. `None` if steps that the schedule has begun
    /// must be played, because a checkpoint needs them.
    pub stop: Option<StopRequest>,
}

impl RolloutThread<'_> {
    /// Body of the thread. Ends when the trainer hangs up, or after the first error.
    pub fn run(mut self, handovers: &Receiver<Handover>, events: &Sender<Result<RolloutEvent, Error>>) {
        for handover in handovers {
            // A trainer that has hung up needs no result.
            let result = self.handle(handover, &mut |event| drop(events.send(Ok(event))));
            if let Err(error) = result {
                drop(events.send(Err(error)));
                return;
            }
        }
    }

    fn handle(&mut self, handover: Handover, send: &mut dyn FnMut(RolloutEvent)) -> Result<(), Error> {
        let Handover { update, weights, evaluate, steps } = handover;
        let versions = weights.versions.clone();
        weights.publish(self.host, &self.router)?;
        if evaluate {
            let started = Instant::now();
            let reports = self.rollouts.evaluate(self.host, update, update == self.steps, &versions)?;
            send(RolloutEvent::Evaluated { reports, seconds: started.elapsed().as_secs_f64() });
        }
        for step in steps {
            // The first step is always played: a run without one has nothing to continue from.
            if update > 0 && self.stop.as_ref().is_some_and(StopRequest::is_requested) {
                send(RolloutEvent::Stopped);
                return Ok(());
            }
            let played = self.rollouts.play_step(self.host, step, &self.cursors, &versions)?;
            self.cursors.clone_from(&played.cursors);
            send(RolloutEvent::Played(Box::new(played)));
        }
        Ok(())
    }
}
