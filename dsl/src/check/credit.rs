//! Checks that rewards reach the turns that they are for.

use super::resolver::{ResolvedAgent, ResolvedPolicy, Resolver};
use crate::diagnostic::DiagnosticCode;
use crate::syntax::block_kind::BlockKind;
use crate::syntax::tree::{Block, File};
use crate::workflow::objective::{Advantage, Objective, Returns};
use crate::workflow::{Policy, PolicyTraining, Rollout, Scenario, Train};

impl Resolver<'_, '_, '_> {
    /// Reports policies whose turns are credited with nothing in a scenario whose reward is 0 before the end.
    pub(super) fn end_reward(
        &mut self,
        block: &Block,
        train: &Train,
        scenario: &Scenario,
        policies: &[ResolvedPolicy],
    ) {
        let reward = &scenario.reward;
        if !reward.scores_end {
            return;
        }
        match train.rollout {
            Rollout::Flat => {
                let uses_turns = |&(_, objective): &(&Policy, &Objective)| objective.returns == Returns::Step;
                let Some((policy, _)) = trained(policies).find(uses_turns) else { return };
                let message = format!(
                    "policy `{}` is trained on the reward of each turn, but reward `{}` scores only the end of an \
                     episode",
                    policy.name, reward.name
                );
                self.reports.error(DiagnosticCode::EndReward, block.location(), message, "").help(
                    "set `returns = episode` or `returns = discounted`, which credit the turns before with the \
                     end",
                );
            }
            // A tree ends with the candidates of one turn, and only these are compared by the end.
            Rollout::Tree if scenario.turns.nodes.iter().any(|node| node.next_nodes().next().is_some()) => {
                let message = format!(
                    "reward `{}` scores only the end of an episode, which a tree credits to the agents of its last \
                     turn alone",
                    reward.name
                );
                self.reports
                    .error(DiagnosticCode::EndReward, block.location(), message, "")
                    .help("set `rollout = flat`, with `returns = episode` or `returns = discounted`");
            }
            Rollout::Tree => {}
        }
    }

    /// Warns of a reward without weights, if policies are trained on it.
    pub(super) fn no_reward(&mut self, file: &File, scenario: &Scenario, policies: &[ResolvedPolicy]) {
        let reward = &scenario.reward;
        let trainings = policies.iter().filter_map(|one| one.policy.as_ref()?.training.as_ref());
        let uses_rewards = |training: &PolicyTraining| training.objective.advantage != Advantage::Success;
        if reward.team != 0.0 || reward.local != 0.0 || !trainings.into_iter().any(uses_rewards) {
            return;
        }
        let is_it = |block: &&Block| {
            block.kind == BlockKind::Reward
                && block.name.as_ref().is_some_and(|name| name.text == reward.name)
        };
        let Some(block) = file.blocks.iter().find(is_it) else { return };
        let message = format!("reward `{}` is always 0, because `team` and `local` are", reward.name);
        self.reports
            .warning(DiagnosticCode::NoReward, block.location(), message, "")
            .help("give `team` or `local` a weight other than 0");
    }

    /// Warns of a tree whose candidates are compared by the rewards of later turns, which only the one that was
    /// chosen has. A file with errors may change.
    pub(super) fn returns_in_trees<'s>(
        &mut self,
        block: &Block,
        train: &Train,
        scenarios: impl Iterator<Item = &'s Scenario>,
        agents: &[ResolvedAgent],
        policies: &[ResolvedPolicy],
    ) {
        if train.rollout != Rollout::Tree || train.samples == 1 || self.reports.failed() {
            return;
        }
        let mut repeating: Vec<&str> = Vec::new();
        for scenario in scenarios {
            let agents = agents.iter().enumerate().filter(|(index, _)| scenario.turns.may_repeat(*index));
            let policies =
                agents.filter_map(|(_, one)| policies.get(one.agent.as_ref()?.policy)?.policy.as_ref());
            repeating.extend(policies.map(|policy| policy.name.as_str()));
        }
        let adds_up = |&(policy, objective): &(&Policy, &Objective)| {
            objective.returns != Returns::Step && repeating.contains(&policy.name.as_str())
        };
        let Some((policy, objective)) = trained(policies).find(adds_up) else { return };
        let message = format!(
            "`returns = {}` of policy `{}` adds the rewards of an agent's later turns, but in a tree only the \
             candidate that was chosen has later turns",
            objective.value_of("returns").unwrap_or_default(),
            policy.name
        );
        self.reports
            .warning(DiagnosticCode::TreeReturns, block.location(), message, "")
            .help("set `rollout = flat`, where all samples play to the end, or `returns = step`");
    }
}

/// Trained policies whose advantages are made of returns.
fn trained(policies: &[ResolvedPolicy]) -> impl Iterator<Item = (&Policy, &Objective)> {
    let policies = policies.iter().filter_map(|one| one.policy.as_ref());
    let trained = policies.filter_map(|policy| Some((policy, &policy.training.as_ref()?.objective)));
    trained.filter(|(_, objective)| !matches!(objective.advantage, Advantage::Gae | Advantage::Success))
}
