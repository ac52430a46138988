//! Order of rollouts and updates: which weights the episodes of a step are played with.
//!
//! A run alternates between playing a step and training on it. With a staleness of `k`, the rollouts of a step
//! use the weights after the update `k + 1` steps before it, so that up to `k` steps are played while earlier
//! ones are trained on:
//!
//! ```text
//! staleness 0   play 1 (v0)   train 1   play 2 (v1)   train 2   …
//! staleness 1   play 1 (v0)   play 2 (v0)   play 3 (v1)   play 4 (v2)   …
//!                             train 1       train 2       train 3       …
//! ```
//!
//! The rule depends on step numbers alone, never on time, so a run has the same results however fast its parts
//! are.

pub mod admission;
pub mod simulate;

use std::ops::RangeInclusive;

use pl_dsl::workflow::Train;

/// The schedule of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepSchedule {
    steps: u64,
    staleness: u64,
}

impl StepSchedule {
    /// A schedule of `steps` steps, each played with weights that are at most `staleness` updates behind.
    pub fn new(steps: u64, staleness: u64) -> StepSchedule {
        StepSchedule { steps, staleness }
    }

    /// Total number of steps.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Largest number of updates that the weights of a rollout are behind.
    pub fn staleness(&self) -> u64 {
        self.staleness
    }

    /// True if a step can be played while another is trained on.
    pub fn overlaps(&self) -> bool {
        self.staleness > 0
    }

    /// Steps to play with the weights after `update`, in order. `played` is the last step that has been played
    /// already.
    pub fn steps_to_play(&self, update: u64, played: u64) -> RangeInclusive<u64> {
        played + 1..=(update + 1 + self.staleness).min(self.steps)
    }

    /// Last step that must have been played before a checkpoint after `update` is complete: later ones can be
    /// played with the weights in the checkpoint.
    pub fn played_before_checkpoint(&self, update: u64) -> u64 {
        (update + self.staleness).min(self.steps)
    }
}

impl From<&Train> for StepSchedule {
    fn from(train: &Train) -> Self {
        StepSchedule::new(u64::from(train.steps), u64::from(train.staleness))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Number of updates in the weights that each step of a run is played with, from step 1 on.
    fn versions(schedule: StepSchedule) -> Vec<u64> {
        let mut played = 0;
        let mut versions = Vec::new();
        for update in 0..=schedule.steps() {
            for step in schedule.steps_to_play(update, played) {
                versions.push(update);
                played = step;
            }
        }
        versions
    }

    #[test]
    fn rollouts_are_as_many_updates_behind_as_the_staleness_allows() {
        assert_eq!(versions(StepSchedule::new(4, 0)), [0, 1, 2, 3]);
        assert_eq!(versions(StepSchedule::new(5, 1)), [0, 0, 1, 2, 3]);
        assert_eq!(versions(StepSchedule::new(5, 3)), [0, 0, 0, 0, 1]);
        assert_eq!(versions(StepSchedule::new(2, 9)), [0, 0]);
    }

    proptest! {
        /// Updates run as soon as their step is played, so no step may wait for an update after it.
        #[test]
        fn every_step_is_played_once_within_the_staleness(steps in 1u64..40, staleness in 0u64..10) {
            let versions = versions(StepSchedule::new(steps, staleness));
            prop_assert_eq!(versions.len() as u64, steps);
            for (index, version) in versions.into_iter().enumerate() {
                prop_assert!(version <= index as u64 && index as u64 <= version + staleness);
            }
        }

        /// A run that continues from a checkpoint plays each step with the same weights as an undisturbed one.
        #[test]
        fn a_resumed_run_plays_with_the_same_weights(steps in 1u64..20, staleness in 0u64..6, at in 0u64..20) {
            let schedule = StepSchedule::new(steps, staleness);
            let at = at.min(steps);
            let undisturbed = versions(schedule);
            let mut played = schedule.played_before_checkpoint(at);
            for update in at..=steps {
                for step in schedule.steps_to_play(update, played) {
                    prop_assert_eq!(undisturbed[step as usize - 1], update);
                    played = step;
                }
            }
            prop_assert_eq!(played, steps);
        }
    }
}
