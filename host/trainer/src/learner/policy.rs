//! A policy that a learner trains.

use pl_dsl::workflow::PolicyTraining;
use pl_model::{Adapter, Weights};

use crate::critic::{Critic, CriticModel};
use crate::optimizer::AdamW;
use crate::preparation::ObjectiveState;

/// A policy to train.
#[derive(Debug)]
pub struct NewPolicy {
    /// Index into the workflow's policies.
    pub policy: usize,
    /// Its name in the workflow.
    pub name: String,
    pub training: PolicyTraining,
    /// Largest number of completion tokens of its agents: the default divisor of the aggregation `constant`.
    pub max_tokens: u32,
    /// True if the weights it starts with are not those of the base alone. They are its reference policy then.
    pub has_start: bool,
    /// Network of its critic, if that has a model of its own.
    pub critic_model: Option<CriticModel>,
}

/// Policy that a KL divergence is measured from.
#[derive(Debug)]
pub(super) enum Reference {
    /// The base weights without an adapter.
    Base,
    /// The base weights with an adapter that does not change.
    Adapter(Adapter),
    /// Weights that do not change.
    Weights(Weights),
}

/// A policy that a learner trains.
#[derive(Debug)]
pub struct TrainedPolicy {
    /// Index into the workflow's policies.
    pub policy: usize,
    /// Its name in the workflow.
    pub name: String,
    /// The trained adapter. `None` if the policy trains the learner's base weights.
    pub adapter: Option<Adapter>,
    /// Number of updates that changed the policy.
    pub version: u64,
    /// State of its optimiser.
    pub optimizer: AdamW,
    /// Its settings.
    pub training: PolicyTraining,
    /// State of its objective.
    pub state: ObjectiveState,
    /// Divisor of the aggregation `constant`.
    pub(super) divisor: u32,
    /// `None` if the objective needs none.
    pub(super) reference: Option<Reference>,
    /// `None` if its advantages need none.
    pub critic: Option<Critic>,
}

impl TrainedPolicy {
    pub(super) fn new(
        new: NewPolicy,
        adapter: Option<Adapter>,
        optimizer: AdamW,
        reference: Option<Reference>,
        critic: Option<Critic>,
    ) -> Self {
        let NewPolicy { policy, name, training, max_tokens, .. } = new;
        let state = ObjectiveState::new(&training.objective);
        let divisor = training.objective.divisor.unwrap_or(max_tokens).max(1);
        Self { policy, name, adapter, version: 0, optimizer, training, state, divisor, reference, critic }
    }

    /// Returns true if an update of `step` (counted from 1) changes the policy.
    pub(crate) fn is_due(&self, step: u64) -> bool {
        self.training.update_steps().is_due(step)
    }

    /// Returns true if an update of `step` changes the critic and leaves the policy as it is. The warm-up is
    /// counted from the first step that the policy is not frozen in.
    pub(super) fn warms_up_critic(&self, step: u64) -> bool {
        let warmup = self.critic.as_ref().map_or(0, |critic| critic.settings().warmup);
        warmup > 0 && step <= u64::from(self.training.freeze) + u64::from(warmup)
    }
}
