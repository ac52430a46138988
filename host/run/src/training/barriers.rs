//! Steps after which all learners wait for each other.

use pl_dsl::workflow::Train;

use super::rollouts::Rollouts;

/// Returns true if all learners wait for each other after a step, because the team is evaluated or saved as a whole.
pub(super) fn is_barrier(train: &Train, rollouts: &Rollouts, step: u64) -> bool {
    is_checkpoint_due(train, step) || rollouts.evaluates_after(step, step == u64::from(train.steps))
}

/// Returns true if a checkpoint is saved after a step.
pub(super) fn is_checkpoint_due(train: &Train, step: u64) -> bool {
    step.is_multiple_of(u64::from(train.checkpoint_every.max(1)))
}
