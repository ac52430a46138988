//! One learner of a trainer, to be run on a thread of its own: none changes a tensor that another one reads.

use std::time::Instant;

use pl_model::TensorSet;
use pl_types::Transition;

use crate::critic::Critic;
use crate::error::Error;
use crate::learner::{Learner, PlannedUpdate, TrainedPolicy};
use crate::metrics::LearnerUpdate;
use crate::preparation::TurnOutcome;
use crate::validate::refuse;

use super::{ServedPolicy, UpdateProgress};

/// A learner with the policies that it trains.
#[derive(Debug)]
pub struct LearnerTraining<'t> {
    pub(super) learner: &'t mut Learner,
    /// Index into [`super::Trainer::bases`].
    pub(super) base: usize,
    /// Number of policies of the workflow.
    pub(super) policies: usize,
}

impl LearnerTraining<'_> {
    /// Names of the policies.
    pub fn names(&self) -> Vec<String> {
        self.learner.policies().iter().map(|policy| policy.name.clone()).collect()
    }

    /// Indices of the policies in the workflow.
    pub fn policies(&self) -> impl Iterator<Item = usize> + '_ {
        self.learner.policies().iter().map(|policy| policy.policy)
    }

    /// Returns the current weights of the policies. With `copies`, later updates don't change them.
    pub fn served(&self, copies: bool) -> Vec<ServedPolicy> {
        let served = |trained| {
            let served = served_policy(self.learner, trained, self.base);
            if copies { served.copy() } else { served }
        };
        self.learner.policies().iter().map(served).collect()
    }

    /// Returns true if an update after a step changes a policy.
    pub fn is_due(&self, step: u64) -> bool {
        self.learner.policies().iter().any(|policy| policy.is_due(step))
    }

    /// Returns true if the update after `step` trains on a policy's transitions of the step `played`.
    pub fn trains_on(&self, policy: u32, played: u64, step: u64) -> bool {
        let own = self.learner.policies().iter().find(|own| own.policy == policy as usize);
        own.is_some_and(|own| own.training.update_steps().trained(step).contains(&played))
    }

    /// Trains on those transitions that are of this learner's policies, in any order: those of the step, and of the steps
    /// before if the policies' updates train on several ([`LearnerTraining::trains_on`]).
    ///
    /// # Errors
    /// Nothing was changed when a transition does not fit its policy; after an error of libtorch the state is undefined,
    /// and the run goes on from its last checkpoint.
    pub fn update<'a>(
        &mut self,
        step: u64,
        transitions: impl IntoIterator<Item = &'a Transition>,
        shuffle: Option<[u8; 32]>,
        progress: &mut dyn FnMut(UpdateProgress),
    ) -> Result<LearnerUpdate, Error> {
        let started = Instant::now();
        let own = self.own_transitions(step, transitions)?;
        let planned = self.learner.prepare(step, &own, shuffle)?;
        let mut current = UpdateProgress { done: 0, total: self.learner.batches_here(&planned) };
        progress(current);
        let mut count = || {
            current.done += 1;
            progress(current);
        };
        let update = self.run(&planned, &mut count)?;
        Ok(LearnerUpdate { seconds: started.elapsed().as_secs_f64(), ..update })
    }

    /// Returns the transitions of this learner's policies, sorted by key.
    ///
    /// # Errors
    /// If the workflow does not have the policy of a transition.
    pub(super) fn own_transitions<'a>(
        &self,
        step: u64,
        transitions: impl IntoIterator<Item = &'a Transition>,
    ) -> Result<Vec<(&'a Transition, TurnOutcome)>, Error> {
        let mut own = Vec::new();
        for transition in transitions {
            let policy = transition.policy as usize;
            if policy >= self.policies {
                return Err(refuse(step, transition, format!("the workflow has no policy {policy}")));
            }
            if self.policies().any(|other| other == policy) {
                own.push((transition, TurnOutcome::from(transition)));
            }
        }
        own.sort_by(|(a, _), (b, _)| a.key.cmp(&b.key));
        Ok(own)
    }

    /// Runs a planned update. Calls `progress` after each packed batch.
    pub(super) fn run(
        &mut self,
        planned: &PlannedUpdate<'_>,
        progress: &mut dyn FnMut(),
    ) -> Result<LearnerUpdate, Error> {
        let started = Instant::now();
        let (groups, flat_groups) = planned.groups();
        let policies = self.learner.update(planned, progress)?;
        Ok(LearnerUpdate {
            policies,
            groups,
            flat_groups,
            batches: planned.batches(),
            fed_tokens: planned.fed_tokens(),
            completions: self.learner.take_trained_completions(),
            seconds: started.elapsed().as_secs_f64(),
        })
    }
}

/// Returns the current weights of a learner's policy.
pub(super) fn served_policy(learner: &Learner, trained: &TrainedPolicy, base: usize) -> ServedPolicy {
    ServedPolicy {
        policy: trained.policy,
        base,
        adapter: trained.adapter.as_ref().map(|adapter| adapter.shallow()),
        weights: trained.adapter.is_none().then(|| learner.base().working().shallow()),
        value_head: trained.critic.as_ref().and_then(Critic::policy_head),
        version: trained.version,
        trained: true,
    }
}
