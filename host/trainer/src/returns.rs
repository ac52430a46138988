//! Returns: the reward that each completion is credited with.
//!
//! An agent's trajectory is the sequence of its turns in one episode. With rewards `r_0 … r_n` of its turns,
//! the return of turn `k` is
//!
//! ```text
//! step          r_k
//! episode       r_0 + … + r_n
//! discounted    r_k + γ r_(k+1) + γ² r_(k+2) + …
//! ```
//!
//! In a tree, the episode continues from one candidate of each node visit. A candidate's own path is the
//! chosen candidates before it, itself, and, if it was chosen, the chosen ones after it. A candidate that was
//! not chosen is the last turn of its path.
//!
//! A turn with tool calls has several completions. Its last one stands for the turn: it has the turn's reward, and the
//! others get its return.

use std::collections::BTreeMap;

use pl_dsl::workflow::objective::Returns;
use pl_types::{Key, Transition};

use crate::advantage::TurnReturn;

/// Neighbours of each turn among its agent's turns on its own path, and the completions of each turn. A turn's index is
/// that of its last completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trajectories {
    previous: Vec<Option<usize>>,
    next: Vec<Option<usize>>,
    calls: Calls,
}

/// The completions of each turn.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Calls {
    /// First completion of the turn that each one belongs to.
    first: Vec<usize>,
    /// Last completion of the turn.
    last: Vec<usize>,
    /// Next completion of the turn.
    next: Vec<Option<usize>>,
}

impl Calls {
    fn new(transitions: &[&Transition]) -> Self {
        let mut turns: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
        for (index, transition) in transitions.iter().enumerate() {
            turns.entry(Key { call: 0, ..transition.key.clone() }).or_default().push(index);
        }
        let mut calls = Self {
            first: (0..transitions.len()).collect(),
            last: (0..transitions.len()).collect(),
            next: vec![None; transitions.len()],
        };
        for mut turn in turns.into_values().filter(|turn| turn.len() > 1) {
            turn.sort_by_key(|&index| transitions[index].key.call);
            for pair in turn.windows(2) {
                calls.next[pair[0]] = Some(pair[1]);
            }
            for &index in &turn {
                calls.first[index] = turn[0];
                calls.last[index] = turn[turn.len() - 1];
            }
        }
        calls
    }
}

impl Trajectories {
    /// Links the transitions of a step. They may be in any order, and belong to any number of agents.
    pub fn new(transitions: &[&Transition]) -> Self {
        // Turns on the episodes' paths, by episode and agent.
        let mut paths: BTreeMap<(u64, u32, u32, u32), Vec<usize>> = BTreeMap::new();
        let path = |t: &Transition| (t.key.step, t.key.task, t.key.sample, t.key.agent);
        let calls = Calls::new(transitions);
        let is_last = |index: usize| calls.last[index] == index;
        for (index, transition) in
            transitions.iter().enumerate().filter(|(index, t)| t.chosen && is_last(*index))
        {
            paths.entry(path(transition)).or_default().push(index);
        }
        for turns in paths.values_mut() {
            turns.sort_by_key(|&index| transitions[index].key.node_visit);
        }
        let (mut previous, mut next) = (vec![None; transitions.len()], vec![None; transitions.len()]);
        for (index, transition) in transitions.iter().enumerate().filter(|(index, _)| is_last(*index)) {
            let Some(turns) = paths.get(&path(transition)) else { continue };
            let visit = transition.key.node_visit;
            let earlier = turns.partition_point(|&other| transitions[other].key.node_visit < visit);
            previous[index] = earlier.checked_sub(1).map(|last| turns[last]);
            if transition.chosen {
                next[index] = turns.get(earlier + 1).copied();
            }
        }
        Self { previous, next, calls }
    }

    /// The completion that stands for the turn of a transition: the turn's last.
    pub fn turn_of(&self, index: usize) -> usize {
        self.calls.last[index]
    }

    /// Returns true if a transition stands for its turn.
    pub fn is_turn(&self, index: usize) -> bool {
        self.turn_of(index) == index
    }

    /// The first completion of the turn that a transition stands for.
    pub fn first_call(&self, index: usize) -> usize {
        self.calls.first[index]
    }

    /// The turn's completion after a transition. `None` for its last.
    pub fn next_call(&self, index: usize) -> Option<usize> {
        self.calls.next[index]
    }

    /// Gives the completions of each turn the value of its last.
    pub(crate) fn spread<T: Clone>(&self, values: &mut [T]) {
        for index in (0..values.len()).filter(|index| !self.is_turn(*index)) {
            values[index] = values[self.turn_of(index)].clone();
        }
    }

    /// The agent's turn after a transition on its path. `None` for the last turn and for candidates that the
    /// episode did not continue from.
    pub fn next(&self, index: usize) -> Option<usize> {
        self.next[index]
    }

    /// The agent's turn before a transition. `None` for its first.
    pub fn previous(&self, index: usize) -> Option<usize> {
        self.previous[index]
    }

    /// The turns before a transition, the last one first.
    fn before(&self, index: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.previous[index], |&turn| self.previous[turn])
    }

    /// The turns after a transition, the first one first.
    fn after(&self, index: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(self.next[index], |&turn| self.next[turn])
    }

    /// The last turn of a transition's path, which may be the transition itself.
    pub fn last(&self, index: usize) -> usize {
        self.after(index).last().unwrap_or(index)
    }

    /// The return of a turn, of `returns` of all transitions. The last turn of its path stands for the episode.
    pub fn turn_return(&self, index: usize, returns: &[f64]) -> TurnReturn {
        TurnReturn { episode: self.last(index), value: returns[index] }
    }
}

/// Returns of all transitions, in the order of `rewards`, of which those of the turns count. `gamma` is the discount from
/// one turn to the next.
pub fn returns(trajectories: &Trajectories, rewards: &[f64], kind: Returns, gamma: f64) -> Vec<f64> {
    let all = 0..rewards.len();
    let mut returns = match kind {
        Returns::Step => rewards.to_vec(),
        Returns::Episode => all
            .map(|index| {
                // In the order of turns, so that all turns of an episode have the same bits.
                let mut turns: Vec<usize> = trajectories.before(index).collect();
                turns.reverse();
                turns.push(index);
                turns.extend(trajectories.after(index));
                turns.into_iter().map(|turn| rewards[turn]).sum()
            })
            .collect(),
        Returns::Discounted => all
            .map(|index| {
                let later: Vec<usize> = trajectories.after(index).collect();
                let tail = later.into_iter().rev().fold(0.0, |tail, turn| rewards[turn] + gamma * tail);
                rewards[index] + gamma * tail
            })
            .collect(),
    };
    trajectories.spread(&mut returns);
    returns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::transition;

    /// A transition of `agent` at a node visit.
    fn turn(sample: u32, agent: u32, node_visit: u32, branch: u32, chosen: bool) -> Transition {
        let mut t = transition(0, 0, 2, 2);
        (t.key.sample, t.key.agent, t.key.node_visit, t.key.branch) = (sample, agent, node_visit, branch);
        t.chosen = chosen;
        t
    }

    fn all_returns(transitions: &[Transition], rewards: &[f64], gamma: f64) -> [Vec<f64>; 3] {
        let transitions: Vec<&Transition> = transitions.iter().collect();
        let trajectories = Trajectories::new(&transitions);
        [Returns::Step, Returns::Episode, Returns::Discounted]
            .map(|kind| returns(&trajectories, rewards, kind, gamma))
    }

    #[test]
    fn flat_episodes_of_two_agents() {
        // Episode 0: agent 0, agent 1, agent 0, agent 0. Episode 1: agent 0.
        let episode = [(0, 0, 0), (0, 1, 1), (0, 0, 2), (0, 0, 5), (1, 0, 0)];
        let transitions = episode.map(|(sample, agent, visit)| turn(sample, agent, visit, 0, true));
        let [step, episode, discounted] = all_returns(&transitions, &[1.0, 7.0, 2.0, 4.0, 16.0], 0.5);
        assert_eq!(step, [1.0, 7.0, 2.0, 4.0, 16.0]);
        assert_eq!(episode, [7.0, 7.0, 7.0, 7.0, 16.0]);
        assert_eq!(discounted, [3.0, 7.0, 4.0, 4.0, 16.0]);
    }

    #[test]
    fn a_tree_follows_each_candidates_own_path() {
        // Three node visits of one agent with two candidates each; the path is 1, 0, 1.
        let transitions: Vec<Transition> =
            (0..6).map(|i| turn(0, 0, i / 2, i % 2, [1, 2, 5].contains(&i))).collect();
        let rewards = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
        let [_, episode, discounted] = all_returns(&transitions, &rewards, 0.5);
        // The path gives 2 + 4 + 32; a sibling that was not chosen has the path so far and its own step.
        assert_eq!(episode, [1.0, 38.0, 38.0, 10.0, 22.0, 38.0]);
        assert_eq!(discounted, [1.0, 2.0 + 2.0 + 8.0, 4.0 + 16.0, 8.0, 16.0, 32.0]);
        let links: Vec<&Transition> = transitions.iter().collect();
        let trajectories = Trajectories::new(&links);
        assert_eq!((0..6).map(|i| trajectories.last(i)).collect::<Vec<_>>(), [0, 5, 5, 3, 4, 5]);
        assert_eq!((trajectories.previous(4), trajectories.next(4)), (Some(2), None));
    }

    #[test]
    fn the_order_of_transitions_does_not_matter() {
        let transitions: Vec<Transition> = (0..9).map(|i| turn(i % 2, i % 3, i / 2, i % 3, i != 4)).collect();
        let rewards: Vec<f64> = (0..9).map(|i| f64::from(i) * 0.1).collect();
        let forward = all_returns(&transitions, &rewards, 0.9);
        let reversed: Vec<Transition> = transitions.iter().rev().cloned().collect();
        let backward = all_returns(&reversed, &rewards.iter().rev().copied().collect::<Vec<_>>(), 0.9);
        for (a, mut b) in forward.into_iter().zip(backward) {
            b.reverse();
            assert_eq!(a, b);
        }
    }
}
