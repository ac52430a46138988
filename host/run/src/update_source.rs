//! Completions that an update trains on, in this process or in another.

use std::ops::Range;
use std::sync::Arc;

use pl_trainer::LearnerTraining;
use pl_types::Transition;

/// Completions of a step that an update trains on.
pub(crate) struct UpdateSource {
    pub step: u64,
    pub transitions: Arc<Vec<Transition>>,
    /// Numbers of the agents whose completions are not trained on.
    pub left_out: Vec<Range<u32>>,
}

impl UpdateSource {
    /// Returns the transitions that a learner's update after `step` trains on.
    pub fn trained(&self, training: &LearnerTraining<'_>, step: u64) -> Vec<&Transition> {
        let is_left_out = |one: &Transition| self.left_out.iter().any(|all| all.contains(&one.key.agent));
        let is_trained =
            |one: &&Transition| !is_left_out(one) && training.trains_on(one.policy, self.step, step);
        self.transitions.iter().filter(is_trained).collect()
    }
}
