//! Events that the outer loop waits for.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Instant;

use pl_trainer::{LearnerUpdate, ServedPolicy};
use pl_types::Transition;

use crate::error::Error;
use crate::schedule::UpdateKey;
use crate::schedule::lanes::StepPart;

use super::rollouts::{PlayedEvaluation, PlayedStep};

/// Finished work.
pub(super) enum LoopEvent {
    Rollout(RolloutEvent),
    Trained(Box<TrainedStep>),
}

/// Sender of events. An error ends the loop.
pub(super) type EventSender = Sender<Result<LoopEvent, Error>>;

/// A step that a learner has trained on.
pub(super) struct TrainedStep {
    /// Position among the learners.
    pub learner: usize,
    pub step: u64,
    pub update: LearnerUpdate,
    /// Weights after the update. `None` if it left them as they were.
    pub policies: Option<Vec<ServedPolicy>>,
    pub started: Instant,
    pub ended: Instant,
}

impl TrainedStep {
    /// Key of the update.
    pub fn key(&self) -> UpdateKey {
        UpdateKey { learner: self.learner, step: self.step }
    }
}

/// Finished work of the rollout thread.
pub(super) enum RolloutEvent {
    /// Evaluations of the weights after an update.
    Evaluated {
        evaluations: Vec<PlayedEvaluation>,
        ended: Instant,
        seconds: f64,
    },
    /// The transitions of a lane's part of a step that is not whole yet.
    PartPlayed {
        part: StepPart,
        transitions: Arc<Vec<Transition>>,
    },
    Played(Box<PlayedStep>),
    /// A stop was requested before the next step was played.
    Stopped,
}

/// Runs the body of a thread of the loop. A panic is an event too, so that the loop does not wait for the thread for ever.
pub(super) fn report_panic(events: &EventSender, body: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(body)) {
        drop(events.send(Err(Error::lost("a thread"))));
        resume_unwind(panic);
    }
}
