//! Versions that checkpoints keep besides the current ones.

use std::collections::BTreeMap;

use pl_trainer::checkpoint::EarlierVersion;
use pl_trainer::{ServedPolicy, Trainer};

use crate::schedule::StepSchedule;

/// Weights that a later checkpoint may need besides its own, by learner and update.
#[derive(Default)]
pub(super) struct KeptVersions(BTreeMap<(usize, u64), Vec<ServedPolicy>>);

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
                kept.0.entry((learner, update)).or_default().push(policy);
            }
        }
        kept
    }

    /// Adds a learner's weights after an update.
    pub fn add(&mut self, learner: usize, update: u64, policies: &[ServedPolicy]) {
        self.0.insert((learner, update), policies.iter().map(ServedPolicy::shallow).collect());
    }

    /// Drops the versions that no checkpoint from `update` on needs.
    pub fn drop_unused(&mut self, schedule: &StepSchedule, update: u64) {
        self.0.retain(|(learner, own), _| *own >= schedule.earlier_updates(*learner, update).start);
    }

    /// Returns the older versions that a checkpoint after `update` needs for steps that are not played yet.
    pub fn earlier(&self, schedule: &StepSchedule, update: u64) -> Vec<EarlierVersion> {
        let mut earlier = Vec::new();
        for ((learner, own), policies) in &self.0 {
            if schedule.earlier_updates(*learner, update).contains(own) {
                let version =
                    |policy: &ServedPolicy| EarlierVersion { update: *own, policy: policy.shallow() };
                earlier.extend(policies.iter().map(version));
            }
        }
        earlier
    }

    /// Returns the oldest update of each learner whose weights are kept, or `update` if there are no such weights.
    pub fn first_updates(&self, learners: usize, update: u64) -> Vec<u64> {
        let own = |learner: usize| self.0.keys().filter(move |key| key.0 == learner).map(|key| key.1);
        (0..learners).map(|learner| own(learner).min().unwrap_or(update)).collect()
    }

    /// Returns all versions with their learner and update.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64, &[ServedPolicy])> {
        self.0.iter().map(|((learner, update), policies)| (*learner, *update, policies.as_slice()))
    }
}
