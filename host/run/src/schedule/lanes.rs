//! Lanes: parts of a run that play and train at a pace of their own.
//!
//! A learner can only be slowed down by those that it shares episodes with. Learners whose policies meet in a scenario, also
//! through others, are in one lane, with all of their scenarios:
//!
//! ```text
//! scenario sums    policies coder, checker     ┐ lane 0
//! scenario proofs  policies checker, prover    ┘
//! scenario games   policy player                 lane 1
//! ```
//!
//! The tasks of a step are divided among the lanes. Each lane plays its part of a step as soon as its own learners' weights are
//! there, and these train on it, however far the other lanes are.

use std::collections::BTreeSet;

use pl_dsl::workflow::{Scenario, Workflow};

/// Lane of each learner and scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lanes {
    /// Empty if all are in the first lane.
    of_learner: Vec<usize>,
    of_scenario: Vec<usize>,
    count: usize,
}

/// Part of a step that a lane plays and trains on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepPart {
    pub step: u64,
    pub lane: usize,
}

impl Lanes {
    /// One lane for everything.
    pub const ONE: Lanes = Lanes { of_learner: Vec::new(), of_scenario: Vec::new(), count: 1 };

    /// Lanes of a workflow whose learners have these policies each.
    pub fn of_workflow(workflow: &Workflow, learners: &[Vec<usize>]) -> Lanes {
        let learner_of = |policy: usize| learners.iter().position(|own| own.contains(&policy));
        let used = |scenario: &Scenario| match scenario.weight > 0.0 {
            true => workflow.policies_of(scenario).into_iter().filter_map(learner_of).collect(),
            false => BTreeSet::new(),
        };
        Lanes::new(learners.len(), &workflow.scenarios.iter().map(used).collect::<Vec<_>>())
    }

    /// Lanes of `learners` learners. `scenarios` has the learners that the episodes of each scenario may use; it is empty for one
    /// that is not played. What belongs to no other lane is in the first one.
    pub fn new(learners: usize, scenarios: &[BTreeSet<usize>]) -> Lanes {
        let mut lane_of: Vec<usize> = (0..learners).collect();
        for used in scenarios {
            let lanes: BTreeSet<usize> = used.iter().map(|learner| lane_of[*learner]).collect();
            let Some(first) = lanes.first() else { continue };
            lane_of.iter_mut().filter(|lane| lanes.contains(lane)).for_each(|lane| *lane = *first);
        }
        let is_played = |lane: &usize| scenarios.iter().flatten().any(|learner| lane_of[*learner] == *lane);
        let distinct: BTreeSet<usize> = lane_of.iter().copied().filter(is_played).collect();
        let number = |lane: usize| distinct.iter().position(|own| *own == lane).unwrap_or(0);
        let of_learner: Vec<usize> = lane_of.iter().map(|lane| number(*lane)).collect();
        let of_scenario =
            scenarios.iter().map(|used| used.first().map_or(0, |learner| of_learner[*learner])).collect();
        Lanes { of_learner, of_scenario, count: distinct.len().max(1) }
    }

    /// Lanes that learners were in, of a run whose scenarios are not known.
    pub fn of_learners(of_learner: Vec<usize>) -> Lanes {
        let count = of_learner.iter().max().map_or(1, |last| last + 1);
        Lanes { of_learner, of_scenario: Vec::new(), count }
    }

    /// Number of lanes.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the lane of a learner.
    pub fn of_learner(&self, learner: usize) -> usize {
        self.of_learner.get(learner).copied().unwrap_or(0)
    }

    /// Returns the lane of a scenario.
    pub fn of_scenario(&self, scenario: usize) -> usize {
        self.of_scenario.get(scenario).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(learners: usize, scenarios: &[&[usize]]) -> (Vec<usize>, Vec<usize>, usize) {
        let scenarios: Vec<BTreeSet<usize>> =
            scenarios.iter().map(|own| own.iter().copied().collect()).collect();
        let lanes = Lanes::new(learners, &scenarios);
        let of_learners = (0..learners).map(|learner| lanes.of_learner(learner)).collect();
        (of_learners, (0..scenarios.len()).map(|index| lanes.of_scenario(index)).collect(), lanes.count())
    }

    #[test]
    fn learners_that_meet_are_in_one_lane() {
        assert_eq!(lanes(2, &[&[0], &[1]]), (vec![0, 1], vec![0, 1], 2));
        assert_eq!(lanes(2, &[&[0], &[0, 1]]), (vec![0, 0], vec![0, 0], 1));
        // Through a third one.
        assert_eq!(lanes(4, &[&[3, 1], &[0], &[1, 2]]), (vec![0, 1, 1, 1], vec![1, 0, 1], 2));
    }

    #[test]
    fn what_is_not_played_is_in_the_first_lane() {
        // Learner 0 has no scenario, scenario 1 no learner.
        assert_eq!(lanes(3, &[&[1], &[], &[2]]), (vec![0, 0, 1], vec![0, 0, 1], 2));
        assert_eq!(lanes(2, &[&[]]), (vec![0, 0], vec![0], 1));
        assert_eq!(lanes(0, &[]), (vec![], vec![], 1));
    }
}
