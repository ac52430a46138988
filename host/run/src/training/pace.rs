//! Progress of learners that train at their own pace.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::schedule::UpdateKey;

use super::loop_events::TrainedStep;

/// Steps that each learner has trained on since all of them were at the same one.
pub(super) struct Pace {
    learners: Vec<LearnerPace>,
    /// Results of steps that some learner has still to train on.
    unfinished: BTreeMap<u64, Vec<LearnerResult>>,
}

struct LearnerPace {
    trained: u64,
    /// Seconds that the learner waited before the update that it has begun.
    begun: Option<f64>,
    idle_since: Instant,
}

/// Result of one learner's update.
pub(super) struct LearnerResult {
    pub trained: TrainedStep,
    /// Seconds that the learner waited for the step.
    pub waited: f64,
}

impl Pace {
    /// Starts with all learners after the same step.
    pub fn new(step: u64, learners: usize) -> Pace {
        let idle = || LearnerPace { trained: step, begun: None, idle_since: Instant::now() };
        Pace { learners: (0..learners).map(|_| idle()).collect(), unfinished: BTreeMap::new() }
    }

    /// Number of steps that each learner has trained on.
    pub fn updates(&self) -> Vec<u64> {
        self.learners.iter().map(|learner| learner.trained).collect()
    }

    /// Number of steps that all learners have trained on.
    pub fn finished(&self) -> u64 {
        self.learners.iter().map(|learner| learner.trained).min().unwrap_or(0)
    }

    /// Last step that a learner has trained on or has begun to.
    pub fn last_begun(&self) -> u64 {
        let last = |learner: &LearnerPace| learner.trained + u64::from(learner.begun.is_some());
        self.learners.iter().map(last).max().unwrap_or(0)
    }

    /// Returns the next update of each learner that trains on no step.
    pub fn next_updates(&self) -> Vec<UpdateKey> {
        let idle = self.learners.iter().enumerate().filter(|(_, own)| own.begun.is_none());
        idle.map(|(learner, own)| UpdateKey { learner, step: own.trained + 1 }).collect()
    }

    /// Begins a learner's next update.
    pub fn begin(&mut self, learner: usize) {
        if let Some(own) = self.learners.get_mut(learner) {
            own.begun = Some(own.idle_since.elapsed().as_secs_f64());
        }
    }

    /// Ends a learner's update. Returns the results of all learners, in their order, if it was the last of the step.
    pub fn end(&mut self, trained: TrainedStep) -> Option<Vec<LearnerResult>> {
        let (learner, step) = (trained.learner, trained.step);
        let own = self.learners.get_mut(learner)?;
        let waited = own.begun.take().unwrap_or(0.0);
        (own.trained, own.idle_since) = (step, trained.ended);
        let results = self.unfinished.entry(step).or_default();
        results.push(LearnerResult { trained, waited });
        if results.len() < self.learners.len() {
            return None;
        }
        let mut results = self.unfinished.remove(&step)?;
        results.sort_by_key(|result| result.trained.learner);
        Some(results)
    }
}
