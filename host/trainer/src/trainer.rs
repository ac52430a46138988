//! The policies of a workflow, ready to be served and trained.
//!
//! The policies determine the learners: all trained adapters on one model share a learner and its frozen
//! weights; a trained policy without `lora` has a learner and weights of its own; a policy with
//! `train = false` has no learner. A model whose only user is one fully trained policy is not copied.

mod learner_training;
mod side_by_side;

use std::sync::Arc;

use pl_dsl::workflow::{PolicyTraining, Workflow};
use pl_model::{Adapter, Model, TensorSet, Weights};
use pl_types::{SourcePath, Transition, ValueHeadWeights};
use tch::Device;

use crate::data_parallel::Collective;
use crate::error::Error;
use crate::learner::{Learner, LearnerSettings, NewPolicy};
use crate::metrics::StepMetrics;
use crate::policy_setup::{InitialWeights, PolicySetup, set_up_policies};

pub use self::learner_training::LearnerTraining;
use self::learner_training::served_policy;
use self::side_by_side::run_all;

/// A policy's current weights, as inference needs them.
#[derive(Debug)]
pub struct ServedPolicy {
    /// Index into the workflow's policies.
    pub policy: usize,
    /// Index into [`Trainer::bases`].
    pub base: usize,
    /// The adapter, which shares memory with the trained one. `None` if the policy is the base alone.
    pub adapter: Option<Adapter>,
    /// Trained weights of a whole model, which share memory with the learner's. `None` for others.
    pub weights: Option<Weights>,
    /// The value head on the policy's hidden states, if it has one.
    pub value_head: Option<ValueHeadWeights>,
    /// Number of updates that changed the policy.
    pub version: u64,
    /// False if the policy is used as it is and never changes.
    pub trained: bool,
}

impl ServedPolicy {
    /// Returns the policy with its tensors in memory of their own, so that updates don't change them.
    pub fn copy(&self) -> ServedPolicy {
        self.map(Adapter::copy, Weights::copy)
    }

    /// Returns the policy with the same tensors.
    pub fn shallow(&self) -> ServedPolicy {
        self.map(Adapter::shallow, Weights::shallow)
    }

    fn map(&self, adapter: fn(&Adapter) -> Adapter, weights: fn(&Weights) -> Weights) -> ServedPolicy {
        ServedPolicy {
            adapter: self.adapter.as_ref().map(adapter),
            weights: self.weights.as_ref().map(weights),
            value_head: self.value_head.clone(),
            ..*self
        }
    }
}

/// Progress of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpdateProgress {
    /// Packed batches run.
    pub done: u64,
    /// Packed batches of the whole update.
    pub total: u64,
}

/// Location of a policy's weights.
#[derive(Debug)]
enum PolicyLocation {
    /// Used as it is.
    Frozen { base: usize, adapter: Option<Adapter> },
    /// Trained by a learner, with an index among the learner's policies.
    Trained { base: usize, learner: usize, index: usize },
}

/// All policies of a workflow and the learners of those that are trained.
#[derive(Debug)]
pub struct Trainer {
    bases: Vec<Model>,
    locations: Vec<PolicyLocation>,
    learners: Vec<Learner>,
    names: Vec<String>,
}

impl Trainer {
    /// Sets up the policies of `workflow`. `models` are its loaded models, in its order; `starts` returns what a policy's `from`
    /// names; `seed` is the run's.
    ///
    /// Without a `train` block every policy is used as it is.
    ///
    /// # Errors
    /// If a `from` cannot be read or does not fit its policy, or an adapter's settings do not fit the model.
    pub fn new(
        workflow: &Workflow,
        starts: impl Fn(&str) -> SourcePath,
        models: Vec<Model>,
        seed: u64,
        device: Device,
    ) -> Result<Self, Error> {
        let names: Vec<String> = workflow.policies.iter().map(|policy| policy.name.clone()).collect();
        if models.len() != workflow.models.len() {
            let (got, expected) = (models.len(), workflow.models.len());
            let problem = format!("{got} models were loaded for the {expected} of the workflow");
            return Err(Error::policy(&names.join("`, `"), problem));
        }
        let InitialWeights { bases, setups, critics } =
            set_up_policies(workflow, starts, models, seed, device)?;
        let mut adapter_bases: Vec<usize> = Vec::new();
        for setup in &setups {
            if let PolicySetup::TrainedAdapter { base, .. } = setup
                && !adapter_bases.contains(base)
            {
                adapter_bases.push(*base);
            }
        }
        // The learners of adapters, one per base, come before those of full weights.
        let mut adapters: Vec<Vec<(NewPolicy, Adapter)>> = adapter_bases.iter().map(|_| Vec::new()).collect();
        let mut full = Vec::new();
        let mut locations = Vec::new();
        for (policy, (setup, critic)) in setups.into_iter().zip(critics).enumerate() {
            let new = |training| NewPolicy { critic_model: critic, ..new_policy(workflow, policy, training) };
            locations.push(match setup {
                PolicySetup::Frozen { base, adapter } => PolicyLocation::Frozen { base, adapter },
                PolicySetup::TrainedAdapter { base, adapter, training } => {
                    let learner = adapter_bases.iter().position(|other| *other == base).unwrap_or_default();
                    adapters[learner].push((new(training), adapter));
                    PolicyLocation::Trained { base, learner, index: adapters[learner].len() - 1 }
                }
                PolicySetup::TrainedWeights { base, dtype, training } => {
                    full.push((new(training), base, dtype));
                    PolicyLocation::Trained { base, learner: adapter_bases.len() + full.len() - 1, index: 0 }
                }
            });
        }
        let mut learners = Vec::new();
        if let Some(train) = &workflow.train {
            let settings_for = |policy: usize, base: usize| {
                let Model { config, weights, .. } = &bases[base];
                LearnerSettings::new(train, config, weights.device(), workflow.staleness(policy), seed)
            };
            for (base, policies) in adapter_bases.into_iter().zip(adapters) {
                let settings = settings_for(policies.first().map_or(0, |(new, _)| new.policy), base);
                let Model { config, weights, .. } = &bases[base];
                learners.push(Learner::adapters(config.clone(), weights.shallow(), policies, settings)?);
            }
            for (policy, base, dtype) in full {
                let Model { config, weights, .. } = &bases[base];
                let (config, weights) = (config.clone(), weights.shallow());
                let settings = settings_for(policy.policy, base);
                learners.push(Learner::full(config, weights, dtype, policy, settings)?);
            }
        }
        Ok(Self { bases, locations, learners, names })
    }

    /// The base models of the policies. Trained ones change in place: their tensors are shared with the
    /// learners.
    pub fn bases(&self) -> &[Model] {
        &self.bases
    }

    /// Current weights of all policies, in the workflow's order.
    pub fn policies(&self) -> Vec<ServedPolicy> {
        (0..self.locations.len()).filter_map(|policy| self.served(policy)).collect()
    }

    /// Current weights of one policy, or `None` if the workflow has no such policy.
    pub fn served(&self, policy: usize) -> Option<ServedPolicy> {
        Some(match self.locations.get(policy)? {
            PolicyLocation::Frozen { base, adapter } => {
                let adapter = adapter.as_ref().map(Adapter::shallow);
                let (weights, value_head) = (None, None);
                ServedPolicy { policy, base: *base, adapter, weights, value_head, version: 0, trained: false }
            }
            PolicyLocation::Trained { base, learner, index } => {
                let learner = &self.learners[*learner];
                served_policy(learner, &learner.policies()[*index], *base)
            }
        })
    }

    /// Versions of all policies, in the workflow's order.
    pub fn versions(&self) -> Vec<u64> {
        let version = |location: &PolicyLocation| match location {
            PolicyLocation::Frozen { .. } => 0,
            PolicyLocation::Trained { learner, index, .. } => {
                self.learners[*learner].policies()[*index].version
            }
        };
        self.locations.iter().map(version).collect()
    }

    /// All learners.
    pub fn learners(&self) -> &[Learner] {
        &self.learners
    }

    /// Names of all policies, in the workflow's order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the learners, to be trained side by side.
    ///
    /// # Errors
    /// If the workflow trains no policy.
    pub fn learners_to_train(&mut self) -> Result<Vec<LearnerTraining<'_>>, Error> {
        if self.learners.is_empty() {
            return Err(Error::policy(&self.names.join("`, `"), "the workflow trains no policy"));
        }
        let policies = self.locations.len();
        let bases: Vec<usize> = self.learners.iter().map(|learner| self.base_of(learner)).collect();
        let learners = self.learners.iter_mut().zip(bases);
        Ok(learners.map(|(learner, base)| LearnerTraining { learner, base, policies }).collect())
    }

    /// Index of the base of a learner's policies.
    fn base_of(&self, learner: &Learner) -> usize {
        let policy = learner.policies().first().map(|policy| policy.policy);
        match policy.and_then(|policy| self.locations.get(policy)) {
            Some(PolicyLocation::Trained { base, .. } | PolicyLocation::Frozen { base, .. }) => *base,
            None => 0,
        }
    }

    /// Lets this process do the share of one rank in the updates of a learner, with the ranks of other processes. `None` for
    /// the shares of all ranks in turn.
    pub fn set_collective(&mut self, learner: usize, collective: Option<Arc<dyn Collective>>) {
        if let Some(learner) = self.learners.get_mut(learner) {
            learner.set_collective(collective);
        }
    }

    pub(crate) fn learners_mut(&mut self) -> &mut [Learner] {
        &mut self.learners
    }

    /// The model of a policy, for its tokenizer and template.
    pub(crate) fn model_for(&self, policy: usize) -> &Model {
        match &self.locations[policy] {
            PolicyLocation::Frozen { base, .. } | PolicyLocation::Trained { base, .. } => &self.bases[*base],
        }
    }

    /// Trains on a step's transitions, each policy by its objective. Ignores transitions of policies that are not
    /// trained, or not in this step. The order of the transitions does not matter: they are sorted by key first.
    /// Learners run side by side, with the same results as one after the other.
    ///
    /// With a `shuffle` seed, returns are permuted within their groups
    /// ([`shuffled_positions`](crate::advantage::shuffled_positions)).
    ///
    /// # Errors
    /// Nothing was changed when a transition does not fit its policy or the workflow has no `train` block;
    /// after an error of libtorch the state is undefined, and the run goes on from its last checkpoint.
    pub fn update(
        &mut self,
        step: u64,
        transitions: &[Transition],
        shuffle: Option<[u8; 32]>,
        progress: &mut dyn FnMut(UpdateProgress),
    ) -> Result<StepMetrics, Error> {
        let mut learners = self.learners_to_train()?;
        let inputs = learners
            .iter()
            .map(|learner| learner.own_transitions(step, transitions))
            .collect::<Result<Vec<_>, Error>>()?;
        let planned = run_all(&mut learners, inputs, &mut || {}, |training, transitions, _| {
            training.learner.prepare(step, &transitions, shuffle)
        })?;
        let (mut done, total) = (0, planned.iter().map(|planned| planned.batches()).sum());
        progress(UpdateProgress { done, total });
        let mut count = || {
            done += 1;
            progress(UpdateProgress { done, total });
        };
        let updates = run_all(&mut learners, planned, &mut count, |training, planned, progress| {
            training.run(&planned, progress)
        })?;
        Ok(StepMetrics::new(updates.iter(), &self.names))
    }
}

/// A policy of `workflow` to train.
fn new_policy(workflow: &Workflow, policy: usize, training: PolicyTraining) -> NewPolicy {
    let name = &workflow.policies[policy].name;
    let agents = workflow.agents.iter().filter(|agent| agent.policy == policy).map(|agent| agent.max_tokens);
    let designers = workflow.designers.iter().filter(|designer| designer.policy == policy);
    let designers = designers.map(|designer| designer.max_tokens);
    // Agents of designs have limits of their own, up to the bound of an episode.
    let palettes = workflow.designers.iter().map(|designer| &designer.palette);
    let palettes = palettes.filter(|palette| palette.policies.contains(name));
    let palettes = palettes.map(|palette| u32::try_from(palette.max_tokens).unwrap_or(u32::MAX));
    NewPolicy {
        policy,
        name: name.clone(),
        training,
        max_tokens: agents.chain(designers).max().or(palettes.max()).unwrap_or(1),
        has_start: workflow.policies[policy].from.is_some(),
        critic_model: None,
    }
}

#[cfg(test)]
mod tests;
