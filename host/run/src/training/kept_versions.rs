//! Versions that checkpoints keep besides the current ones.

use std::collections::BTreeMap;

use pl_trainer::checkpoint::EarlierVersion;
use pl_trainer::{ServedPolicy, Trainer};

use crate::schedule::{StepSchedule, UpdateKey};

/// Weights that a later checkpoint may need besides its own.
#[derive(Default)]
pub(super) struct KeptVersions(BTreeMap<UpdateKey, Vec<ServedPolicy>>);

impl KeptVersions {
    /// The earlier versions of a checkpoint.
    pub fn restored(versions: Vec<EarlierVersion>, trainer: &Trainer) -> KeptVersions {
        let learner_of = |policy: usize| {
            let has_policy =
                |own: &pl_trainer::Learner| own.policies().iter().any(|own| own.policy == policy);
            trainer.learners().iter().position(has_policy)
        };
        let mut kept = KeptVersions::default();
        for EarlierVersion { update, policy } in versions {
            if let Some(learner) = learner_of(policy.policy) {
                kept.0.entry(UpdateKey { learner, step: update }).or_default().push(policy);
            }
        }
        kept
    }

    /// Adds a learner's weights after an update.
    pub fn add(&mut self, update: UpdateKey, policies: &[ServedPolicy]) {
        self.0.insert(update, policies.iter().map(ServedPolicy::shallow).collect());
    }

    /// Drops the versions that no checkpoint from `update` on needs.
    pub fn drop_unused(&mut self, schedule: &StepSchedule, update: u64) {
        self.0.retain(|own, _| own.step >= schedule.earlier_updates(own.learner, update).start);
    }

    /// Returns the older versions that a checkpoint after `update` needs for steps that are not played yet.
    pub fn earlier(&self, schedule: &StepSchedule, update: u64) -> Vec<EarlierVersion> {
        let mut earlier = Vec::new();
        for (own, policies) in &self.0 {
            if schedule.earlier_updates(own.learner, update).contains(&own.step) {
                let version =
                    |policy: &ServedPolicy| EarlierVersion { update: own.step, policy: policy.shallow() };
                earlier.extend(policies.iter().map(version));
            }
        }
        earlier
    }

    /// Returns the oldest update of each learner whose weights are kept, or `update` if there are no such weights.
    pub fn first_updates(&self, learners: usize, update: u64) -> Vec<u64> {
        let own =
            |learner: usize| self.0.keys().filter(move |own| own.learner == learner).map(|own| own.step);
        (0..learners).map(|learner| own(learner).min().unwrap_or(update)).collect()
    }

    /// Returns all versions with their update.
    pub fn iter(&self) -> impl Iterator<Item = (UpdateKey, &[ServedPolicy])> {
        self.0.iter().map(|(update, policies)| (*update, policies.as_slice()))
    }
}
