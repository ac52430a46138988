//! Preparation of an update: from a policy's transitions and their outcomes to the targets of each token.
//!
//! Rewards are lowered for overlong completions and, if the objective says so, by the KL divergence from the
//! reference; returns are summed over an agent's turns; advantages follow from returns.

use std::collections::BTreeMap;

use pl_dsl::workflow::objective::{Advantage, KlPlace, Objective, Returns, Scale};
use pl_types::{Credit, Transition};
use serde::{Deserialize, Serialize};
use tch::{TchError, Tensor};

use crate::advantage::{
    credit_alone, ema_advantages, group_of, grouped_advantages, shuffled_positions, whiten,
};
use crate::correction::{CorrectionBounds, correction_weights};
use crate::critic::PredictedValues;
use crate::filter::{LeftOut, compared_by, has_filters, left_out};
use crate::kl::{kl_of_token, next_coefficient};
use crate::objective::{has_planned_correction, needs_reference};
use crate::overlong::{is_masked, reward_penalty};
use crate::plan::{TokenTargets, ValueTargets};
use crate::returns::{Trajectories, returns};

/// State of a policy's objective between steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObjectiveState {
    /// Moving averages of returns, by agent.
    pub averages: BTreeMap<String, f64>,
    /// Coefficient of the KL divergence from the reference.
    pub kl_coefficient: f64,
}

impl ObjectiveState {
    /// The state at the start of a run.
    pub fn new(objective: &Objective) -> Self {
        Self { averages: BTreeMap::new(), kl_coefficient: objective.kl }
    }
}

/// Result of a completion's turn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TurnOutcome {
    pub reward: f64,
    /// Success of the agent after the turn.
    pub success: bool,
}

impl From<&Transition> for TurnOutcome {
    fn from(transition: &Transition) -> Self {
        Self { reward: transition.reward, success: transition.success }
    }
}

/// A policy's transitions of a step. All lists have one element per transition.
pub(crate) struct PolicyBatch<'a> {
    pub transitions: Vec<&'a Transition>,
    pub outcomes: Vec<TurnOutcome>,
    /// Log-probabilities under the policy before the update, if the objective needs them.
    pub recomputed: Option<Vec<Vec<f32>>>,
    /// Log-probabilities under the reference policy, if the objective needs them.
    pub reference: Option<Vec<Vec<f32>>>,
    /// Values before the update, if the policy has a critic.
    pub values: Option<PredictedValues>,
    /// Seed of a permutation of returns within their groups, for control experiments.
    pub shuffle: Option<[u8; 32]>,
}

/// Targets of a policy's transitions, and what they were made from.
#[derive(Debug)]
pub(crate) struct Preparation {
    /// One per transition.
    pub targets: Vec<TokenTargets>,
    /// State after the step.
    pub state: ObjectiveState,
    /// Groups of completions that were compared, and those without a difference.
    pub groups: u64,
    pub flat_groups: u64,
    /// Completions that the filters left out.
    pub left_out: LeftOut,
    /// Mean of the KL divergence from the reference over tokens, and its coefficient in this step.
    pub reference_kl: Option<(f64, f64)>,
}

/// Advantages of a policy's tokens before whitening.
struct TokenAdvantages {
    /// Per transition and token.
    advantages: Vec<Vec<f64>>,
    /// Value targets, if the policy has a critic.
    returns: Option<Vec<Vec<f64>>>,
    /// Credits of the completions; without a critic, one per transition.
    credits: Vec<Credit>,
    /// Groups of completions that were compared, and those without a difference.
    groups: u64,
    flat_groups: u64,
}

impl PolicyBatch<'_> {
    /// Computes the targets of all tokens. `state` is that before the step.
    ///
    /// # Errors
    /// If libtorch fails.
    pub(crate) fn prepare(
        mut self,
        objective: &Objective,
        state: &ObjectiveState,
    ) -> Result<Preparation, TchError> {
        let mut state = state.clone();
        let coefficient = state.kl_coefficient;
        let divergences = self.divergences(objective);
        let reference_kl = divergences.as_ref().map(|divergences| {
            let tokens = divergences.iter().map(Vec::len).sum::<usize>().max(1);
            divergences.iter().flatten().sum::<f64>() / tokens as f64
        });
        if let Some(kl) = reference_kl {
            state.kl_coefficient = next_coefficient(objective, coefficient, kl, self.transitions.len());
        }
        let in_reward = divergences.filter(|_| objective.kl_in == KlPlace::Reward);
        let penalties = self.penalties(objective, in_reward, coefficient);
        let trajectories = Trajectories::new(&self.transitions);
        let left_out = self.left_out(objective, &trajectories);
        let is_left_out = self.transitions.iter().zip(&left_out.completions);
        let is_masked: Vec<bool> = is_left_out.map(|(t, out)| *out || is_masked(objective, t)).collect();
        let TokenAdvantages { mut advantages, returns, credits, groups, flat_groups } =
            self.advantages(objective, &trajectories, penalties, &left_out, &mut state);
        for (advantages, _) in advantages.iter_mut().zip(&is_masked).filter(|(_, masked)| **masked) {
            advantages.clear();
        }
        if objective.scale == Scale::Batch {
            whiten(&mut advantages);
        }
        let mut targets = self.targets(objective, advantages, returns, &is_masked)?;
        for (targets, credit) in targets.iter_mut().zip(credits) {
            targets.credit = Some(credit);
        }
        let reference_kl = reference_kl.map(|kl| (kl, coefficient));
        Ok(Preparation { targets, state, groups, flat_groups, left_out, reference_kl })
    }

    /// Applies the filters of the objective to the returns of the rewards as they were scored.
    fn left_out(&self, objective: &Objective, trajectories: &Trajectories) -> LeftOut {
        if !has_filters(objective) {
            return LeftOut { completions: vec![false; self.transitions.len()], ..LeftOut::default() };
        }
        let mut rewards: Vec<f64> = self.outcomes.iter().map(|outcome| outcome.reward).collect();
        // As for the advantages, so that a control experiment leaves out what an experiment would.
        let shuffles_rewards = self.values.is_some();
        if shuffles_rewards {
            self.shuffle(objective, trajectories, &mut rewards);
        }
        let mut returns = returns(trajectories, &rewards, objective.returns, objective.gamma_turn);
        if !shuffles_rewards {
            self.shuffle(objective, trajectories, &mut returns);
        }
        let turns = (0..returns.len()).filter(|index| trajectories.is_turn(*index));
        let value = |index| trajectories.turn_return(index, &returns);
        let compared = turns.clone().map(|index| (self.transitions[index].group.clone(), value(index)));
        let mut out = left_out(objective, compared);
        let mut completions = vec![false; returns.len()];
        turns.zip(&out.completions).for_each(|(index, is_out)| completions[index] = *is_out);
        trajectories.spread(&mut completions);
        out.completions = completions;
        out
    }

    /// Combines the columns of all tokens. Lists of advantages may be shorter than their completions; missing ones
    /// are 0.
    fn targets(
        &mut self,
        objective: &Objective,
        advantages: Vec<Vec<f64>>,
        returns: Option<Vec<Vec<f64>>>,
        is_masked: &[bool],
    ) -> Result<Vec<TokenTargets>, TchError> {
        let mut corrections = self.corrections(objective)?.into_iter().flatten();
        let mut recomputed = self.recomputed.take().into_iter().flatten();
        let mut reference = self.reference.take().into_iter().flatten();
        let values = self.values.take().map(|values| values.tokens).into_iter().flatten();
        let mut critic = values.zip(returns.into_iter().flatten()).map(|(values, returns)| {
            let returns = returns.into_iter().map(|value| value as f32).collect();
            ValueTargets { values, returns }
        });
        let completions = advantages.into_iter().zip(is_masked).zip(&self.transitions);
        Ok(completions
            .map(|((advantages, &masked), transition)| {
                let mut advantages: Vec<f32> = advantages.into_iter().map(|value| value as f32).collect();
                advantages.resize(transition.completion.len(), 0.0);
                TokenTargets {
                    advantages,
                    old_logprobs: recomputed.next(),
                    reference_logprobs: reference.next(),
                    correction: corrections.next(),
                    critic: critic.next(),
                    credit: None,
                    masked,
                }
            })
            .collect())
    }

    /// Log-probabilities that ratios are relative to.
    fn old_logprobs(&self, index: usize) -> &[f32] {
        match &self.recomputed {
            Some(recomputed) => &recomputed[index],
            None => &self.transitions[index].logprobs,
        }
    }

    /// Amounts by which the reward of each token is lowered: the token penalty and, if it is in the reward, the KL
    /// divergence. `None` if there are none.
    fn penalties(
        &self,
        objective: &Objective,
        divergences: Option<Vec<Vec<f64>>>,
        coefficient: f64,
    ) -> Option<Vec<Vec<f64>>> {
        let penalty = objective.token_penalty;
        if divergences.is_none() && penalty == 0.0 {
            return None;
        }
        let mut all = divergences.unwrap_or_else(|| {
            self.transitions.iter().map(|transition| vec![0.0; transition.completion.len()]).collect()
        });
        all.iter_mut().flatten().for_each(|divergence| *divergence = *divergence * coefficient + penalty);
        Some(all)
    }

    /// Estimates of the KL divergence of each token from the reference. `None` without a reference.
    fn divergences(&self, objective: &Objective) -> Option<Vec<Vec<f64>>> {
        let reference = self.reference.as_ref().filter(|_| needs_reference(objective))?;
        let divergence = |(&logp, &reference): (&f32, &f32)| {
            kl_of_token(objective.kl_estimator, f64::from(logp), f64::from(reference))
        };
        let completions = reference.iter().enumerate();
        Some(
            completions
                .map(|(index, own)| self.old_logprobs(index).iter().zip(own).map(divergence).collect())
                .collect(),
        )
    }

    /// Advantages of each token before whitening. `penalties` are subtracted from the rewards of tokens.
    fn advantages(
        &self,
        objective: &Objective,
        trajectories: &Trajectories,
        penalties: Option<Vec<Vec<f64>>>,
        left_out: &LeftOut,
        state: &mut ObjectiveState,
    ) -> TokenAdvantages {
        let mut rewards: Vec<f64> = self.outcomes.iter().map(|outcome| outcome.reward).collect();
        for (index, transition) in self.transitions.iter().enumerate() {
            rewards[trajectories.turn_of(index)] -= reward_penalty(objective, transition);
        }
        if let Some(values) = &self.values {
            self.shuffle(objective, trajectories, &mut rewards);
            let estimates = values.estimate(objective, trajectories, &rewards, penalties.as_deref());
            let (advantages, returns) =
                estimates.into_iter().map(|own| (own.advantages, own.returns)).unzip();
            let (returns, credits) = (Some(returns), Vec::new());
            return TokenAdvantages { advantages, returns, credits, groups: 0, flat_groups: 0 };
        }
        for (index, penalties) in penalties.iter().flatten().enumerate() {
            rewards[trajectories.turn_of(index)] -= penalties.iter().sum::<f64>();
        }
        let mut returns = returns(trajectories, &rewards, objective.returns, objective.gamma_turn);
        self.shuffle(objective, trajectories, &mut returns);
        // Turns that have a part in a comparison: what is left out has none in the means of its group.
        let is_compared = |index: usize| trajectories.is_turn(index) && !left_out.completions[index];
        let compared: Vec<usize> = (0..returns.len()).filter(|index| is_compared(*index)).collect();
        let scatter = |values: Vec<f64>| {
            let mut all = vec![0.0; self.transitions.len()];
            compared.iter().zip(values).for_each(|(&index, value)| all[index] = value);
            trajectories.spread(&mut all);
            all
        };
        let (mut groups, mut flat_groups) = (0, 0);
        let mut credits: Vec<Credit> = returns.iter().copied().map(credit_alone).collect();
        let values = match objective.advantage {
            Advantage::Group => {
                let group = |index: usize| group_of(&self.transitions[index].group, objective.group_by);
                let turn = |index| trajectories.turn_return(index, &returns);
                let kept = compared.iter().map(|&index| (group(index), turn(index)));
                let grouped = grouped_advantages(kept, objective.baseline, objective.scale);
                for (&index, &credit) in compared.iter().zip(&grouped.credits) {
                    credits[index] = credit;
                }
                trajectories.spread(&mut credits);
                (groups, flat_groups) = (grouped.groups as u64, grouped.flat_groups as u64);
                scatter(grouped.values)
            }
            Advantage::Ema => {
                let turn = |&index: &usize| (self.transitions[index].agent.as_str(), returns[index]);
                scatter(ema_advantages(compared.iter().map(turn), &mut state.averages))
            }
            Advantage::Success => {
                let is_successful =
                    |index| self.outcomes[trajectories.last(trajectories.turn_of(index))].success;
                let mut successes: Vec<f64> =
                    (0..rewards.len()).map(|index| f64::from(u8::from(is_successful(index)))).collect();
                self.shuffle(objective, trajectories, &mut successes);
                credits = successes.iter().copied().map(credit_alone).collect();
                successes
            }
            // Without a critic, all values are 0.
            Advantage::Return | Advantage::Gae => returns,
        };
        let mut advantages: Vec<Vec<f64>> = values
            .into_iter()
            .zip(&self.transitions)
            .map(|(value, transition)| vec![value; transition.completion.len()])
            .collect();
        // A token does not change the penalties of the tokens before it.
        if let (Advantage::Return, Returns::Discounted, Some(penalties)) =
            (objective.advantage, objective.returns, &penalties)
        {
            for (advantages, penalties) in advantages.iter_mut().zip(penalties) {
                let mut earlier = 0.0;
                for (advantage, penalty) in advantages.iter_mut().zip(penalties) {
                    *advantage += earlier;
                    earlier += penalty;
                }
            }
        }
        TokenAdvantages { advantages, returns: None, credits, groups, flat_groups }
    }

    /// Permutes values, one per transition, among the turns of groups if the run is a control experiment. The groups are
    /// those that returns are compared in; without a comparison, those of the same agent and turn.
    fn shuffle(&self, objective: &Objective, trajectories: &Trajectories, values: &mut [f64]) {
        let Some(seed) = self.shuffle else { return };
        let turns: Vec<usize> = (0..values.len()).filter(|index| trajectories.is_turn(*index)).collect();
        let group = |&index: &usize| group_of(&self.transitions[index].group, compared_by(objective));
        let before = values.to_vec();
        for (&turn, source) in turns.iter().zip(shuffled_positions(turns.iter().map(group), seed)) {
            values[turn] = before[turns[source]];
        }
        trajectories.spread(values);
    }

    /// Importance weights of the recomputed log-probabilities over those of sampling. `None` if the objective
    /// has no correction, or computes it from the policy in training.
    fn corrections(&self, objective: &Objective) -> Result<Option<Vec<Vec<f32>>>, TchError> {
        let recomputed = self.recomputed.as_ref().filter(|_| has_planned_correction(objective));
        let Some(recomputed) = recomputed else { return Ok(None) };
        let bounds = CorrectionBounds::from(objective);
        let completions = recomputed.iter().zip(&self.transitions).map(|(recomputed, transition)| {
            let gap = |(a, b): (&f32, &f32)| f64::from(*a) - f64::from(*b);
            let log_ratios: Vec<f64> = recomputed.iter().zip(&transition.logprobs).map(gap).collect();
            let mean = log_ratios.iter().sum::<f64>() / log_ratios.len() as f64;
            let log_ratios = Tensor::f_from_slice(&log_ratios)?;
            let means = log_ratios.f_full_like(mean)?;
            let weights = correction_weights(objective.correction, bounds, &log_ratios, &means)?;
            weights.map(Vec::<f64>::try_from).transpose()
        });
        let weights = completions.collect::<Result<Option<Vec<Vec<f64>>>, TchError>>()?;
        let narrow = |weights: Vec<f64>| weights.into_iter().map(|weight| weight as f32).collect();
        Ok(weights.map(|all| all.into_iter().map(narrow).collect()))
    }
}

#[cfg(test)]
mod tests;
