//! Groups and completions that an update leaves out.
//!
//! Filters see the groups in which returns are compared ([`compared_by`]) and leave out, in this order:
//!
//! - `flat_groups = drop`: groups whose completions all have the same return (dynamic sampling; Yu et al. 2025,
//!   arXiv:2503.14476, section 3.2). A group of one is left out only if advantages are relative to the group;
//! - `drop_groups`: of the `n` groups left, the `⌊share · n⌋` with the smallest mean or standard deviation of
//!   returns (StarPO-S; Wang et al. 2025, arXiv:2504.20073, section 4.1);
//! - `outliers`: of each group left, the completions whose return is further than `outliers` standard deviations
//!   from the mean of the group.
//!
//! An agent's turns of one episode count as one member of their group, as they do for advantages.
//!
//! Returns are those of the rewards as they were scored: penalties for length and the KL divergence would give every
//! group a spread. What is left out counts in no mean, and other completions of its episode keep their returns.

use std::collections::{BTreeMap, BTreeSet};

use pl_dsl::workflow::objective::{Advantage, DropBy, FlatGroups, GroupBy, Objective, PolicyTraining};
use pl_types::{Group, Transition};

use crate::advantage::{GroupStatistics, TurnReturn, group_of};
use crate::returns::{Trajectories, returns};

/// Completions that an update leaves out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// One per completion: true if it is left out.
    pub completions: Vec<bool>,
    /// Groups left out because all returns are equal.
    pub flat_groups: u64,
    /// Groups left out by `drop_groups`.
    pub dropped_groups: u64,
    /// Turns left out by `outliers`.
    pub outliers: u64,
}

/// The turns of a group, by their positions among all turns.
struct ComparedTurns {
    turns: Vec<(usize, TurnReturn)>,
    statistics: GroupStatistics,
}

impl ComparedTurns {
    fn new(turns: Vec<(usize, TurnReturn)>) -> Self {
        let returns: Vec<TurnReturn> = turns.iter().map(|&(_, turn)| turn).collect();
        Self { turns, statistics: GroupStatistics::new(&returns) }
    }
}

/// Returns true if an objective leaves anything out.
pub fn has_filters(objective: &Objective) -> bool {
    objective.flat_groups == FlatGroups::Drop || objective.drop_groups > 0.0 || objective.outliers > 0.0
}

/// Properties that completions of one group agree in. An objective without groups is filtered by agent and turn.
pub fn compared_by(objective: &Objective) -> GroupBy {
    match objective.advantage {
        Advantage::Group => objective.group_by,
        _ => GroupBy { agent: true, turn: true },
    }
}

/// Applies the filters of an objective to a policy's turns of a step, given by their groups and returns. Each turn has one of the
/// completions of the result.
pub fn left_out(objective: &Objective, turns: impl IntoIterator<Item = (Group, TurnReturn)>) -> LeftOut {
    let mut groups: BTreeMap<Group, Vec<(usize, TurnReturn)>> = BTreeMap::new();
    let mut count = 0;
    for (index, (group, turn)) in turns.into_iter().enumerate() {
        groups.entry(group_of(&group, compared_by(objective))).or_default().push((index, turn));
        count = index + 1;
    }
    let mut result = LeftOut { completions: vec![false; count], ..LeftOut::default() };
    let mut left: Vec<ComparedTurns> = groups.into_values().map(ComparedTurns::new).collect();
    if objective.flat_groups == FlatGroups::Drop {
        let trains_alone = !objective.is_relative_to_group();
        left.retain(|group| {
            let statistics = &group.statistics;
            let keeps = !statistics.is_flat || (trains_alone && statistics.size() == 1);
            if !keeps {
                result.flat_groups += 1;
                result.drop_all(group);
            }
            keeps
        });
    }
    let dropped = (objective.drop_groups * left.len() as f64).floor() as usize;
    let rank = |group: &ComparedTurns| match objective.drop_by {
        DropBy::Mean => group.statistics.mean,
        DropBy::Spread => group.statistics.deviation,
    };
    // Stable: of equal groups, the first in the order of keys are dropped.
    left.sort_by(|a, b| rank(a).total_cmp(&rank(b)));
    for group in left.drain(..dropped.min(left.len())) {
        result.dropped_groups += 1;
        result.drop_all(&group);
    }
    if objective.outliers > 0.0 {
        for group in &left {
            let GroupStatistics { mean, deviation, .. } = group.statistics;
            let is_outlier = |value: f64| (value - mean).abs() > objective.outliers * deviation;
            for (index, _) in group.turns.iter().filter(|(_, turn)| is_outlier(turn.value)) {
                result.outliers += 1;
                result.completions[*index] = true;
            }
        }
    }
    result
}

impl LeftOut {
    fn drop_all(&mut self, group: &ComparedTurns) {
        for (index, _) in &group.turns {
            self.completions[*index] = true;
        }
    }
}

/// Returns the tasks, by [`pl_types::Key::task`], all of whose groups are left out because their returns are equal.
/// `trainings` are those of the workflow's policies, `None` for policies that are not trained. Policies that no update trains on
/// the tasks of `step` don't count.
pub fn tasks_without_spread(
    transitions: &[Transition],
    trainings: &[Option<PolicyTraining>],
    step: u64,
) -> BTreeSet<u32> {
    let (mut without, mut with) = (BTreeSet::new(), BTreeSet::new());
    for (policy, training) in trainings.iter().enumerate() {
        let Some(PolicyTraining { objective, .. }) = training.as_ref().filter(|own| own.trains_on(step))
        else {
            continue;
        };
        let own: Vec<&Transition> = transitions.iter().filter(|t| t.policy as usize == policy).collect();
        let rewards: Vec<f64> = own.iter().map(|transition| transition.reward).collect();
        let trajectories = Trajectories::new(&own);
        let credited = returns(&trajectories, &rewards, objective.returns, objective.gamma_turn);
        let flat_only = Objective { drop_groups: 0.0, outliers: 0.0, ..*objective };
        let turns = || own.iter().enumerate().filter(|(index, _)| trajectories.is_turn(*index));
        let compared =
            turns().map(|(index, turn)| (turn.group.clone(), trajectories.turn_return(index, &credited)));
        let out = left_out(&flat_only, compared);
        for ((_, transition), is_out) in turns().zip(out.completions) {
            if is_out { &mut without } else { &mut with }.insert(transition.key.task);
        }
    }
    without.difference(&with).copied().collect()
}

#[cfg(test)]
mod tests {
    use pl_dsl::workflow::objective::{Baseline, Scale};

    use super::*;
    use crate::fixtures::{objective, training, transition};

    fn group(task: u32) -> Group {
        Group { step: 1, task, agent: 0, turn: 0, node_visit: None }
    }

    fn turn(task: u32, episode: usize, value: f64) -> (Group, TurnReturn) {
        (group(task), TurnReturn { episode, value })
    }

    /// Four groups of three: equal returns, one that differs, a low spread, a high one.
    fn completions() -> Vec<(Group, TurnReturn)> {
        let returns = [[1.0, 1.0, 1.0], [0.0, 0.0, 3.0], [2.0, 2.1, 2.2], [-4.0, 0.0, 4.0]];
        let groups = returns.into_iter().zip(0..);
        groups.flat_map(|(own, task)| [0, 1, 2].map(|episode| turn(task, episode, own[episode]))).collect()
    }

    /// Numbers of the groups that are left out, and of single completions.
    fn positions(objective: &Objective) -> (Vec<usize>, Vec<usize>) {
        let out = left_out(objective, completions()).completions;
        let whole = |group: &usize| out[group * 3..group * 3 + 3].iter().all(|is_out| *is_out);
        let groups: Vec<usize> = (0..4).filter(whole).collect();
        let single = (0..12).filter(|&index| out[index] && !groups.contains(&(index / 3))).collect();
        (groups, single)
    }

    #[test]
    fn filters_leave_out_what_they_name() {
        let plain = objective();
        assert_eq!(positions(&plain), (vec![], vec![]));
        let flat = Objective { flat_groups: FlatGroups::Drop, ..plain };
        assert_eq!(positions(&flat), (vec![0], vec![]));
        // Half of four.
        let half = Objective { drop_groups: 0.5, ..plain };
        assert_eq!(positions(&half), (vec![0, 2], vec![]));
        // Means 1, 1, 2.1 and 0: of the equal ones, the first goes.
        let by_mean = Objective { drop_by: DropBy::Mean, ..half };
        assert_eq!(positions(&by_mean), (vec![0, 3], vec![]));
        // Half of the three that have a spread is one.
        assert_eq!(positions(&Objective { drop_groups: 0.5, ..flat }), (vec![0, 2], vec![]));
        // 3 is 2 / √3 = 1.155 standard deviations from the mean of its group; the ends of the others are at 1.
        let outliers = Objective { outliers: 1.1, ..plain };
        assert_eq!(positions(&outliers), (vec![], vec![5]));
        assert_eq!(positions(&Objective { outliers: 1.2, ..plain }), (vec![], vec![]));
        let counts = left_out(&Objective { drop_groups: 0.5, outliers: 1.1, ..flat }, completions());
        assert_eq!((counts.flat_groups, counts.dropped_groups, counts.outliers), (1, 1, 1));
    }

    #[test]
    fn an_episode_counts_once_in_its_group_however_many_turns_it_has() {
        // A task with a single episode; one whose episodes have a turn and four turns; one whose episodes have a turn each.
        let turns = || {
            let single = [turn(0, 0, 0.0), turn(0, 0, 1.0)];
            let long = [0.0; 4].map(|value| turn(1, 1, value));
            let short = [turn(2, 0, 0.3), turn(2, 1, 0.5)];
            single.into_iter().chain([turn(1, 0, 1.0)]).chain(long).chain(short)
        };
        let flat = Objective { flat_groups: FlatGroups::Drop, ..objective() };
        let mut expected = [false; 9];
        expected[..2].fill(true);
        assert_eq!(left_out(&flat, turns()).completions, expected);
        // The means are 0.5 and 0.4, and those of all turns alike 0.2 and 0.4.
        let low = Objective { drop_groups: 0.5, drop_by: DropBy::Mean, ..flat };
        expected[7..].fill(true);
        let out = left_out(&low, turns());
        assert_eq!(out.completions, expected);
        assert_eq!((out.flat_groups, out.dropped_groups), (1, 1));
        // 1 is 0.5 / √0.5 = 0.71 standard deviations from the mean of its group, and 1.79 among all turns alike.
        assert_eq!(left_out(&Objective { outliers: 1.2, ..objective() }, turns()).outliers, 0);
        // Without a comparison, the single episode has an advantage.
        let plain = Objective { baseline: Baseline::None, scale: Scale::Batch, ..flat };
        assert_eq!(left_out(&plain, turns()).flat_groups, 0);
    }

    #[test]
    fn groups_of_one_are_flat_only_if_advantages_are_relative_to_the_group() {
        let grouped = Objective { flat_groups: FlatGroups::Drop, ..objective() };
        let plain = Objective {
            advantage: Advantage::Return,
            baseline: Baseline::None,
            scale: Scale::Batch,
            ..grouped
        };
        let critic = Objective { advantage: Advantage::Gae, ..plain };
        let own = Objective { advantage: Advantage::Group, ..plain };
        // The second task has two samples of equal return.
        let completions = || [turn(0, 0, 1.0), turn(1, 0, 1.0), turn(1, 1, 1.0)];
        let out = |objective: &Objective| left_out(objective, completions()).completions;
        assert_eq!(out(&grouped), [true, true, true]);
        for objective in [plain, critic, own] {
            assert_eq!(out(&objective), [false, true, true], "{objective:?}");
        }
        // One sample for each task: every task trains the policy, so none is replaced.
        let transitions = [transition(0, 0, 2, 2), transition(0, 1, 2, 2)];
        let tasks = |objective: Objective| {
            let training = Some(PolicyTraining { objective, ..training() });
            tasks_without_spread(&transitions, &[training], 1).len()
        };
        assert_eq!((tasks(plain), tasks(critic), tasks(grouped)), (0, 0, 2));
    }

    #[test]
    fn a_task_is_replaced_only_if_no_policy_learns_from_it() {
        let turn = |task: u32, sample: u32, policy: u32, reward: f64| {
            let mut t = transition(policy, sample, 2, 2);
            (t.key.task, t.key.sample, t.key.agent, t.reward) = (task, sample, policy, reward);
            t.group = Group { agent: policy, ..group(task) };
            t
        };
        // Task 0: no spread at all. Task 1: none for the first policy. Task 2: none for the second.
        let rewards = [[[1.0, 1.0], [0.0, 0.0]], [[1.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 1.0]]];
        let mut transitions = Vec::new();
        for (task, policies) in rewards.iter().enumerate() {
            for (policy, own) in policies.iter().enumerate() {
                for (sample, reward) in own.iter().enumerate() {
                    transitions.push(turn(task as u32, sample as u32, policy as u32, *reward));
                }
            }
        }
        let with = |objective: Objective| Some(PolicyTraining { objective, ..training() });
        let drop = || with(Objective { flat_groups: FlatGroups::Drop, ..objective() });
        let tasks = |trainings: [Option<PolicyTraining>; 2], step: u64| {
            tasks_without_spread(&transitions, &trainings, step).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(tasks([drop(), drop()], 1), [0]);
        // A policy that isn't updated needs no groups.
        assert_eq!(tasks([drop(), None], 1), [0, 1]);
        assert_eq!(tasks([drop(), with(objective())], 1), Vec::<u32>::new());
        let frozen = drop().map(|training| PolicyTraining { freeze: 2, ..training });
        assert_eq!(tasks([drop(), frozen.clone()], 2), [0, 1]);
        assert_eq!(tasks([drop(), frozen], 3), [0]);
    }
}
