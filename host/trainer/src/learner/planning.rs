//! Planning of an update: targets of all tokens, then mini-batches and packed batches. Nothing changes before
//! the whole plan exists.

use std::ops::Range;

use pl_model::{Adapter, Weights};
use pl_types::Transition;

use super::Learner;
use super::policy::Reference;
use crate::error::{Error, UpdateError};
use crate::objective::{needs_recomputed_logprobs, trains_without_advantage};
use crate::plan::{MiniBatch, PlannedSequence, Sample, ValuePass, plan_update};
use crate::preparation::{PolicyBatch, Preparation, TurnOutcome};
use crate::scoring::{ScoringModel, fed_tokens};
use crate::validate::{check_transition, refuse};

/// A validated and planned update that has not run yet.
#[derive(Debug)]
pub struct PlannedUpdate<'a> {
    pub(super) step: u64,
    pub(super) samples: Vec<Sample<'a>>,
    pub(super) sequences: Vec<PlannedSequence>,
    pub(super) mini_batches: Vec<MiniBatch>,
    /// Per policy of the learner, the preparation of its targets. Empty if the samples came with targets.
    pub(super) prepared: Vec<Option<Preparation>>,
}

impl PlannedUpdate<'_> {
    /// Number of packed batches to run.
    pub fn batches(&self) -> u64 {
        self.mini_batches.iter().map(|mini_batch| mini_batch.fed_tokens().count() as u64).sum()
    }

    /// Number of packed batches of some ranks.
    pub(crate) fn batches_of(&self, ranks: Range<usize>) -> u64 {
        let shares = self.mini_batches.iter().flat_map(|mini_batch| &mini_batch.shares[ranks.clone()]);
        shares.map(|share| (share.batches.len() + share.critic_batches.len()) as u64).sum()
    }

    /// Numbers of groups of completions that were compared, and of those without a difference.
    pub fn groups(&self) -> (u64, u64) {
        let prepared = self.prepared.iter().flatten();
        prepared.fold((0, 0), |(all, flat), own| (all + own.groups, flat + own.flat_groups))
    }

    /// Number of tokens fed to the model over all passes. Prefixes shared within a batch count once.
    pub fn fed_tokens(&self) -> u64 {
        self.mini_batches.iter().flat_map(MiniBatch::fed_tokens).map(|tokens| tokens as u64).sum()
    }
}

impl Learner {
    /// Validates transitions of this learner's policies, computes the targets of their tokens, which may take
    /// forward passes, and plans an update over them; changes nothing. The transitions must be sorted by key.
    /// Those of policies that the step does not update are left out. With a `shuffle` seed, returns are permuted
    /// within their groups: a control experiment.
    ///
    /// # Errors
    /// [`Error::Transition`] for the first invalid transition; errors of libtorch.
    pub fn prepare<'a>(
        &self,
        step: u64,
        transitions: &[(&'a Transition, TurnOutcome)],
        shuffle: Option<[u8; 32]>,
    ) -> Result<PlannedUpdate<'a>, Error> {
        let mut by_policy: Vec<Vec<usize>> = vec![Vec::new(); self.policies.len()];
        for (index, (transition, _)) in transitions.iter().enumerate() {
            check_transition(&self.config, step, transition)?;
            by_policy[self.policy_index(step, transition)?].push(index);
        }
        let doing = |source| self.update_error(step, source);
        for (policy, indices) in self.policies.iter().zip(&mut by_policy) {
            if !policy.is_due(step) {
                indices.clear();
            }
        }
        let own_transitions: Vec<Vec<&Transition>> = by_policy
            .iter()
            .map(|indices| indices.iter().map(|&index| transitions[index].0).collect())
            .collect();
        let values = self.predict_values(&own_transitions).map_err(doing)?;
        let mut targets = Vec::new();
        let mut prepared = Vec::new();
        let policies = by_policy.into_iter().zip(own_transitions).zip(values);
        for (policy_index, ((indices, own), values)) in policies.enumerate() {
            let policy = &self.policies[policy_index];
            if indices.is_empty() {
                prepared.push(None);
                continue;
            }
            let batch = PolicyBatch {
                outcomes: indices.iter().map(|&index| transitions[index].1).collect(),
                values,
                shuffle,
                ..self.score(policy_index, own).map_err(doing)?
            };
            let mut own = batch
                .prepare(&policy.training.objective, &policy.state)
                .map_err(|source| doing(source.into()))?;
            targets.extend(indices.into_iter().zip(std::mem::take(&mut own.targets)));
            prepared.push(Some(own));
        }
        targets.sort_by_key(|(index, _)| *index);
        let samples = targets
            .into_iter()
            .map(|(index, targets)| Sample { transition: transitions[index].0, targets })
            .collect();
        Ok(PlannedUpdate { prepared, ..self.plan_valid(step, samples)? })
    }

    /// Runs the forward passes for the log-probabilities that a policy's objective needs before an update.
    fn score<'a>(
        &self,
        policy_index: usize,
        transitions: Vec<&'a Transition>,
    ) -> Result<PolicyBatch<'a>, UpdateError> {
        let policy = &self.policies[policy_index];
        let mut adapters: Vec<&Adapter> = self.trained_adapters();
        let own = policy.adapter.is_some().then_some(policy_index);
        let reference_adapter = match &policy.reference {
            Some(Reference::Adapter(adapter)) => {
                adapters.push(adapter);
                Some(adapters.len() - 1)
            }
            _ => None,
        };
        let logprobs = |weights: &Weights, adapter: Option<usize>| {
            let token_budget = self.settings.batch_plan.token_budget;
            let (config, adapters, data_parallel) = (&self.config, adapters.as_slice(), &self.data_parallel);
            let model = ScoringModel { config, weights, adapters, token_budget, data_parallel };
            model.logprobs(&transitions.iter().map(|&t| (t, adapter)).collect::<Vec<_>>())
        };
        let recomputed = needs_recomputed_logprobs(&policy.training.objective)
            .then(|| logprobs(self.base.working(), own))
            .transpose()?;
        let reference = policy
            .reference
            .as_ref()
            .map(|reference| match reference {
                Reference::Base | Reference::Adapter(_) => logprobs(self.base.working(), reference_adapter),
                Reference::Weights(weights) => logprobs(weights, None),
            })
            .transpose()?;
        Ok(PolicyBatch {
            transitions,
            outcomes: Vec::new(),
            recomputed,
            reference,
            values: None,
            shuffle: None,
        })
    }

    /// Validates samples of this learner's policies and plans an update over them; changes nothing. The
    /// transitions must be sorted by key.
    ///
    /// # Errors
    /// [`Error::Transition`] for the first invalid sample.
    pub fn plan<'a>(&self, step: u64, samples: Vec<Sample<'a>>) -> Result<PlannedUpdate<'a>, Error> {
        for sample in &samples {
            check_transition(&self.config, step, sample.transition)?;
        }
        self.plan_valid(step, samples)
    }

    /// [`Learner::plan`] for transitions that were checked.
    fn plan_valid<'a>(&self, step: u64, samples: Vec<Sample<'a>>) -> Result<PlannedUpdate<'a>, Error> {
        let sequences = samples
            .iter()
            .map(|sample| {
                let policy_index = self.policy_index(step, sample.transition)?;
                self.planned_sequence(step, policy_index, sample)
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let names: Vec<&str> = self.policies.iter().map(|policy| policy.name.as_str()).collect();
        let mini_batches =
            plan_update(self.settings.seed, step, &names, &sequences, self.settings.batch_plan);
        Ok(PlannedUpdate { step, samples, sequences, mini_batches, prepared: Vec::new() })
    }

    /// Index of a transition's policy among those of the learner.
    fn policy_index(&self, step: u64, transition: &Transition) -> Result<usize, Error> {
        let policy = transition.policy as usize;
        self.policies.iter().position(|trained| trained.policy == policy).ok_or_else(|| {
            refuse(step, transition, format!("policy {policy} is not trained by this learner"))
        })
    }

    fn planned_sequence(
        &self,
        step: u64,
        policy_index: usize,
        sample: &Sample<'_>,
    ) -> Result<PlannedSequence, Error> {
        let Sample { transition, targets } = sample;
        let numbers = [&targets.old_logprobs, &targets.reference_logprobs, &targets.correction];
        let critic = targets.critic.iter().flat_map(|own| [&own.values, &own.returns]);
        let mut numbers = numbers.into_iter().flatten().chain([&targets.advantages]).chain(critic);
        let count = transition.completion.len();
        if !numbers.all(|own| own.len() == count && own.iter().all(|number| number.is_finite())) {
            let problem = "an advantage, or a number that the loss needs, is not finite; lower the learning rate, or \
                           look for rewards that are not numbers";
            return Err(refuse(step, transition, problem.to_owned()));
        }
        let objective = &self.policies[policy_index].training.objective;
        let has_advantage = targets.advantages.iter().any(|&advantage| advantage != 0.0);
        Ok(PlannedSequence {
            tokens: fed_tokens(transition),
            prompt: transition.prompt.len(),
            policy_index,
            targets: count,
            has_gradient: !targets.masked
                && (has_advantage || targets.critic.is_some() || trains_without_advantage(objective)),
            masked: targets.masked,
            value_pass: self.value_pass(policy_index),
        })
    }

    /// The pass that computes the hidden states of a policy's critic.
    fn value_pass(&self, policy_index: usize) -> ValuePass {
        let critic = self.policies[policy_index].critic.as_ref();
        match self.critic_slot(policy_index) {
            Some(slot) => ValuePass::Adapter(slot),
            None if critic.is_some_and(|critic| critic.own_model().is_some()) => ValuePass::Model,
            None => ValuePass::Policy,
        }
    }
}
