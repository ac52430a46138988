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
//! Each learner has a staleness and a pace of its own: a step is played with the weights of each learner after the update
//! that its staleness names, and a learner trains on a step as soon as it is played, however far the others are. Learners that
//! share no episodes are in different [`lanes`]: each lane plays its part of a step on its own.
//!
//! A learner may be updated after some steps alone ([`UpdateSteps`]): one whose policies are frozen at first, or train on the
//! tasks of several steps at once. After the other steps its weights are those of its last update, which is the number that
//! the schedule gives them, so that nothing waits for weights that are in use already.
//!
//! The rule depends on step numbers alone, never on time, so a run has the same results however fast its parts
//! are.

pub mod admission;
pub mod batches;
pub mod lanes;
pub mod simulate;

use std::ops::{Range, RangeInclusive};

use pl_dsl::workflow::objective::UpdateSteps;

use self::lanes::Lanes;

/// An update of a learner, of which there is one for a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UpdateKey {
    /// Position among the learners.
    pub learner: usize,
    /// Step after which it is made. 0 stands for the weights that the learner begins with.
    pub step: u64,
}

/// The schedule of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepSchedule {
    steps: u64,
    /// Staleness of each learner.
    staleness: Vec<u64>,
    /// Steps after which each learner's policies are updated.
    updates: Vec<Vec<UpdateSteps>>,
    /// Oldest update of each learner whose weights are available.
    first: Vec<u64>,
    /// Number of updates that a task may wait for slower ones. 0 if each update trains on the tasks that were drawn for it.
    late: u64,
    lanes: Lanes,
}

impl StepSchedule {
    /// A schedule of `steps` steps for learners that have a staleness each: the number of their updates that the weights of
    /// a rollout are behind.
    pub fn new(steps: u64, staleness: Vec<u64>) -> StepSchedule {
        let updates = vec![vec![UpdateSteps::ALL]; staleness.len()];
        StepSchedule {
            steps,
            first: vec![0; staleness.len()],
            staleness,
            updates,
            late: 0,
            lanes: Lanes::ONE,
        }
    }

    /// Sets the steps after which the policies of each learner are updated, instead of all.
    pub fn with_updates(self, updates: Vec<Vec<UpdateSteps>>) -> StepSchedule {
        StepSchedule { updates, ..self }
    }

    /// Divides the steps among lanes. There is one alone if learners wait for each other in every step, or if an update trains on
    /// the tasks of any scenario that end first.
    pub fn with_lanes(self, lanes: Lanes) -> StepSchedule {
        let is_divided = self.overlaps() && !self.is_by_arrival();
        StepSchedule { lanes: if is_divided { lanes } else { Lanes::ONE }, ..self }
    }

    /// Lanes of the run.
    pub fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    /// A schedule in which an update trains on the tasks that end first, for learners that have the same staleness: half of it,
    /// rounded up, is the number of updates that the weights of a rollout are behind, and the rest the number of updates
    /// that a task may be late. A staleness of 0 or 1 leaves no choice of tasks.
    pub fn by_arrival(steps: u64, staleness: u64, learners: usize) -> StepSchedule {
        let late = staleness / 2;
        StepSchedule { late, ..StepSchedule::new(steps, vec![staleness - late; learners]) }
    }

    /// True if an update trains on the tasks that end first.
    pub fn is_by_arrival(&self) -> bool {
        self.late > 0
    }

    /// Number of updates that a task may be trained on after the one that it was drawn for.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Sets the oldest update of each learner whose weights are available. Steps that would be played with earlier ones are
    /// played with these: the first ones after the former end of a run that was prolonged.
    pub fn without_weights_before(self, first: Vec<u64>) -> StepSchedule {
        StepSchedule { first, ..self }
    }

    /// Total number of steps.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Number of learners.
    pub fn learners(&self) -> usize {
        self.staleness.len()
    }

    /// Largest staleness of a learner: the number of updates that the weights of a rollout are behind.
    pub fn staleness(&self) -> u64 {
        self.staleness.iter().copied().max().unwrap_or(0)
    }

    /// Smallest staleness of a learner.
    fn least_staleness(&self) -> u64 {
        self.staleness.iter().copied().min().unwrap_or(0)
    }

    /// True if a step can be played while another is trained on.
    pub fn overlaps(&self) -> bool {
        self.staleness() > 0
    }

    /// Returns the step of the last update of each learner in the weights that a step is played with.
    pub fn updates(&self, step: u64) -> Vec<u64> {
        let own = self.staleness.iter().zip(&self.first).enumerate();
        let newest = |staleness: u64, first: u64| step.saturating_sub(1 + staleness).max(first);
        own.map(|(learner, (own, first))| self.last_update(learner, newest(*own, *first))).collect()
    }

    /// Returns the last update of each learner of a lane in the weights that a step is played with.
    pub fn lane_updates(&self, lane: usize, step: u64) -> Vec<UpdateKey> {
        let all = self.updates(step).into_iter().enumerate();
        let own = all.filter(|(learner, _)| self.lanes.of_learner(*learner) == lane);
        own.map(|(learner, step)| UpdateKey { learner, step }).collect()
    }

    /// Returns the last update of each learner when all of them have trained on `step` steps.
    pub fn updates_after(&self, step: u64) -> Vec<UpdateKey> {
        let last = |learner| UpdateKey { learner, step: self.last_update(learner, step) };
        (0..self.learners()).map(last).collect()
    }

    /// Returns the step of the last update of a learner up to `step`; 0 if there was none.
    pub fn last_update(&self, learner: usize, step: u64) -> u64 {
        let own = self.updates_of(learner).iter();
        own.map(|policy| policy.last(step)).max().unwrap_or(0)
    }

    /// Returns true if a learner is updated after a step.
    pub fn is_updated(&self, learner: usize, step: u64) -> bool {
        self.last_update(learner, step) == step
    }

    /// Returns the steps that a learner's update after `step` trains on, the longest list of its policies. Empty if none is due.
    pub fn trained_steps(&self, learner: usize, step: u64) -> RangeInclusive<u64> {
        let own = self.updates_of(learner).iter();
        own.map(|policy| *policy.trained(step).start()).min().unwrap_or(step + 1)..=step
    }

    /// Returns the steps after which the policies of a learner are updated.
    pub fn updates_of(&self, learner: usize) -> &[UpdateSteps] {
        self.updates.get(learner).map_or(&[], Vec::as_slice)
    }

    /// Returns the oldest step that an update after later steps than `step` trains on.
    pub fn first_untrained(&self, step: u64) -> u64 {
        let all = self.updates.iter().flatten();
        all.map(|policy| policy.first_untrained(step)).min().unwrap_or(step + 1).min(step + 1)
    }

    /// Steps whose part in a lane becomes playable when the learners have done `updates`, in order. `played` is the last step
    /// whose part was playable before.
    pub fn steps_to_play(&self, lane: usize, updates: &[u64], played: u64) -> RangeInclusive<u64> {
        let own = updates.iter().zip(&self.staleness).enumerate();
        let own = own.filter(|(learner, _)| self.lanes.of_learner(*learner) == lane);
        let last = own.map(|(_, (update, staleness))| update + 1 + staleness).min();
        played + 1..=last.unwrap_or(0).min(self.steps)
    }

    /// Last step that must have been played before a checkpoint after `update` is complete: later ones can be played with
    /// the weights in the checkpoint and those that [`StepSchedule::earlier_updates`] names.
    pub fn played_before_checkpoint(&self, update: u64) -> u64 {
        (update + self.least_staleness()).min(self.steps)
    }

    /// Returns the updates before the last one up to `update` after which a learner's weights are still used by steps that
    /// [`StepSchedule::played_before_checkpoint`] does not include.
    pub fn earlier_updates(&self, learner: usize, update: u64) -> Range<u64> {
        let (next, last) = (self.played_before_checkpoint(update) + 1, self.last_update(learner, update));
        match self.staleness.get(learner) {
            // Up to `update`, even if the run ends before it uses them: it may be prolonged.
            Some(staleness) if next <= self.steps => {
                self.last_update(learner, next.saturating_sub(1 + staleness))..last
            }
            _ => last..last,
        }
    }

    /// True if learners may be behind by different numbers of updates.
    pub fn differs(&self) -> bool {
        self.least_staleness() < self.staleness()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(steps: u64, staleness: u64) -> StepSchedule {
        StepSchedule::new(steps, vec![staleness])
    }

    /// Updates in the weights that each step of a run is played with, from step 1 on, if all learners keep pace.
    fn versions(schedule: &StepSchedule) -> Vec<u64> {
        let mut played = 0;
        let mut versions = Vec::new();
        for update in 0..=schedule.steps() {
            for step in schedule.steps_to_play(0, &vec![update; schedule.learners()], played) {
                versions.push(update);
                played = step;
            }
        }
        versions
    }

    #[test]
    fn rollouts_are_as_many_updates_behind_as_the_staleness_allows() {
        assert_eq!(versions(&one(4, 0)), [0, 1, 2, 3]);
        assert_eq!(versions(&one(5, 1)), [0, 0, 1, 2, 3]);
        assert_eq!(versions(&one(5, 3)), [0, 0, 0, 0, 1]);
        assert_eq!(versions(&one(2, 9)), [0, 0]);
    }

    #[test]
    fn each_learner_has_its_own_staleness() {
        let schedule = StepSchedule::new(9, vec![1, 4]);
        assert_eq!(schedule.updates(6), [4, 1]);
        assert_eq!((schedule.staleness(), schedule.overlaps()), (4, true));
        // The first learner is ahead, so the second decides.
        assert_eq!(schedule.steps_to_play(0, &[5, 1], 4), 5..=6);
        // After update 5, step 6 is played and 7 needs the second learner's weights after update 2.
        assert_eq!(schedule.played_before_checkpoint(5), 6);
        assert_eq!((schedule.earlier_updates(0, 5).count(), schedule.earlier_updates(1, 5)), (0, 2..5));
        assert_eq!(schedule.earlier_updates(1, 9).count(), 0);
    }

    #[test]
    fn each_lane_plays_its_part_of_a_step_on_its_own() {
        let lanes = Lanes::new(3, &[[0, 2].into(), [1].into()]);
        let schedule = StepSchedule::new(9, vec![1, 4, 1]).with_lanes(lanes.clone());
        let update = |learner, step| UpdateKey { learner, step };
        assert_eq!(schedule.steps_to_play(0, &[5, 0, 3], 4), 5..=5);
        assert_eq!(schedule.steps_to_play(1, &[5, 0, 3], 4), 5..=5);
        assert_eq!(schedule.steps_to_play(1, &[0, 3, 0], 5), 6..=8);
        assert_eq!(
            (schedule.lane_updates(0, 6), schedule.lane_updates(1, 6)),
            (vec![update(0, 4), update(2, 4)], vec![update(1, 1)])
        );
        // Without overlap, and by arrival, there is one.
        assert_eq!(one(9, 0).with_lanes(lanes.clone()).lanes().count(), 1);
        assert_eq!(StepSchedule::by_arrival(9, 2, 3).with_lanes(lanes).lanes().count(), 1);
    }

    #[test]
    fn weights_are_those_of_the_last_update() {
        let every_third = UpdateSteps { first: 4, every: 3, count: 3 };
        let all = vec![UpdateSteps::ALL];
        let schedule = StepSchedule::new(12, vec![1, 1]).with_updates(vec![all, vec![every_third]]);
        assert_eq!([5, 6, 7, 9].map(|step| schedule.updates(step)), [[3, 0], [4, 4], [5, 4], [7, 7]]);
        let updates = |steps: [u64; 2]| [0, 1].map(|learner| UpdateKey { learner, step: steps[learner] });
        assert_eq!([6, 3].map(|step| schedule.updates_after(step)), [updates([6, 4]), updates([3, 0])]);
        // A checkpoint after step 7 has both weights of step 9; one after step 8 has too.
        assert_eq!([7, 8].map(|step| schedule.earlier_updates(1, step).count()), [0, 0]);
        assert_eq!([3, 4, 6, 7].map(|step| schedule.first_untrained(step)), [2, 5, 5, 8]);
        assert_eq!(one(9, 1).first_untrained(4), 5);
    }

    proptest! {
        /// Updates run as soon as their step is played, so no step may wait for an update after it.
        #[test]
        fn every_step_is_played_once_within_the_staleness(steps in 1u64..40, staleness in 0u64..10) {
            let schedule = one(steps, staleness);
            let versions = versions(&schedule);
            prop_assert_eq!(versions.len() as u64, steps);
            for (index, version) in versions.into_iter().enumerate() {
                prop_assert!(version <= index as u64 && index as u64 <= version + staleness);
                prop_assert_eq!(schedule.updates(index as u64 + 1), [version]);
            }
        }

        /// A run that continues from a checkpoint has the weights of every later step: those of the checkpoint, those
        /// that it keeps besides, and those of later updates.
        #[test]
        fn a_checkpoint_has_all_weights_that_are_used_later(
            steps in 1u64..20,
            learners in prop::collection::vec((0u64..6, admission::tests::update_steps()), 1..4),
            at in 0u64..20,
        ) {
            let (staleness, updates): (Vec<u64>, Vec<UpdateSteps>) = learners.into_iter().unzip();
            let updates = updates.into_iter().map(|own| vec![own]).collect();
            let schedule = StepSchedule::new(steps, staleness).with_updates(updates);
            let at = at.min(steps);
            for step in schedule.played_before_checkpoint(at) + 1..=steps {
                for (learner, update) in schedule.updates(step).into_iter().enumerate() {
                    let is_newest = update >= schedule.last_update(learner, at);
                    prop_assert!(is_newest || schedule.earlier_updates(learner, at).contains(&update));
                }
            }
        }
    }
}
