//! A learner: one set of base weights and the policies that are trained on it.
//!
//! Either the base is frozen and each policy has an adapter (all of them share packed passes, and each gets
//! the gradient that training it alone would give), or one policy trains the weights themselves. The adapter of a
//! critic is one more adapter on a frozen base; a critic with a model of its own has passes of its own.
//!
//! The loss of a mini-batch is, per policy, a mean over the completion tokens of its transitions in that
//! mini-batch ([`crate::aggregation`]) of its objective's loss ([`crate::objective`]). Policies with different
//! objectives share passes. Common prefixes of a policy's sequences go through the model once ([`crate::packing`]). To
//! save memory, gradients exist for trained tensors only, and the head runs in chunks ([`crate::head`]);
//! [`crate::memory`] estimates the total.

mod batch;
mod measured;
mod planning;
mod policy;
mod values;

use std::sync::Arc;

use pl_dsl::workflow::Train;
use pl_dsl::workflow::objective::UpdateSteps;
use pl_model::{Adapter, Checkpointing, Config, Gradients, TensorSet, Weights};
use pl_types::{Dtype, TrainedCompletion};
use tch::{Device, TchError, Tensor, no_grad};

use crate::base_weights::BaseWeights;
use crate::critic::{Critic, LearnerBase};
use crate::data_parallel::{Collective, DataParallel, RankSums};
use crate::error::{Error, UpdateError};
use crate::lr::learning_rate;
use crate::metrics::{MetricSums, UpdateMetrics};
use crate::objective::needs_reference;
use crate::optimizer::{AdamW, Decay};
use crate::plan::{BatchPlan, MiniBatch, token_budget};
use crate::preparation::Preparation;

pub use self::planning::PlannedUpdate;
pub use self::policy::{NewPolicy, TrainedPolicy};

use self::measured::Measured;
use self::policy::Reference;

/// Settings of an update that all policies share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearnerSettings {
    /// Epochs, mini-batches and token budget.
    pub batch_plan: BatchPlan,
    /// Gradient checkpointing of forward passes.
    pub checkpointing: Checkpointing,
    /// Number of steps of the run.
    pub steps: u32,
    /// The run's seed.
    pub seed: u64,
    /// True if values that were recorded when tokens were sampled are those before the update: the weights are the
    /// same.
    pub uses_sampled_values: bool,
    /// Keeps what an update computed of each token ([`Learner::take_trained_completions`]).
    pub record_tokens: bool,
}

impl LearnerSettings {
    /// The settings of a `train` block for a model on a device, and policies of a staleness.
    pub fn new(train: &Train, config: &Config, device: Device, staleness: u32, seed: u64) -> Self {
        Self {
            batch_plan: BatchPlan {
                epochs: train.epochs,
                mini_batches: train.mini_batches,
                token_budget: token_budget(train, config, device),
                ranks: train.data_parallel as usize,
            },
            checkpointing: if train.gradient_checkpointing { Checkpointing::On } else { Checkpointing::Off },
            steps: train.steps,
            seed,
            uses_sampled_values: staleness == 0,
            record_tokens: train.record_tokens,
        }
    }
}

/// One set of base weights and the policies trained on it.
#[derive(Debug)]
pub struct Learner {
    config: Config,
    base: BaseWeights,
    policies: Vec<TrainedPolicy>,
    /// Gradients of the current mini-batch, of the base weights or of the adapters (of the policies, then of their
    /// critics); zero between mini-batches.
    gradients: Gradients,
    settings: LearnerSettings,
    data_parallel: DataParallel,
    /// Records of the last update.
    trained: Vec<TrainedCompletion>,
}

impl Learner {
    /// A learner of adapters on a frozen base. `weights` may be shared; they are never changed.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn adapters(
        config: Config,
        weights: Weights,
        policies: Vec<(NewPolicy, Adapter)>,
        settings: LearnerSettings,
    ) -> Result<Self, Error> {
        let base = LearnerBase { config: &config, weights: &weights, is_trained: false, seed: settings.seed };
        let policies = policies
            .into_iter()
            .map(|(mut new, adapter)| {
                let optimizer = AdamW::new(adapter.parameters(), Decay::from(&new.training.optimizer))
                    .map_err(Error::torch(format!("optimiser of policy `{}`", new.name)))?;
                let reference = needs_reference(&new.training.objective).then(|| match new.has_start {
                    true => Reference::Adapter(adapter.copy()),
                    false => Reference::Base,
                });
                let critic = Critic::for_policy(&new.name, &new.training, new.critic_model.take(), base)?;
                Ok(TrainedPolicy::new(new, Some(adapter), optimizer, reference, critic))
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let gradients = Gradients::zeros(None, &all_adapters(&policies))
            .map_err(Error::torch("gradients of the adapters"))?;
        let (base, trained) = (BaseWeights::frozen(weights), Vec::new());
        let data_parallel = DataParallel::alone(settings.batch_plan.ranks);
        Ok(Self { config, base, policies, gradients, settings, data_parallel, trained })
    }

    /// A learner of one policy's full weights, which are changed in place. `dtype` is their number format.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn full(
        config: Config,
        weights: Weights,
        dtype: Dtype,
        mut new: NewPolicy,
        settings: LearnerSettings,
    ) -> Result<Self, Error> {
        let reference = needs_reference(&new.training.objective).then(|| Reference::Weights(weights.copy()));
        let base = BaseWeights::trained(weights, dtype).map_err(Error::model(&new.name))?;
        let trained = base.masters().unwrap_or(base.working());
        let optimizer = AdamW::new(trained.parameters(), Decay::from(&new.training.optimizer))
            .map_err(Error::torch(format!("optimiser of policy `{}`", new.name)))?;
        let gradients = Gradients::zeros(Some(trained), &[])
            .map_err(Error::torch(format!("gradients of policy `{}`", new.name)))?;
        let weights = base.working();
        let own = LearnerBase { config: &config, weights, is_trained: true, seed: settings.seed };
        let critic = Critic::for_policy(&new.name, &new.training, new.critic_model.take(), own)?;
        let policies = vec![TrainedPolicy::new(new, None, optimizer, reference, critic)];
        let data_parallel = DataParallel::alone(settings.batch_plan.ranks);
        Ok(Self { config, base, policies, gradients, settings, data_parallel, trained: Vec::new() })
    }

    /// Lets this process do the share of one rank alone. `None` for all ranks in turn.
    pub(crate) fn set_collective(&mut self, collective: Option<Arc<dyn Collective>>) {
        let alone = || DataParallel::alone(self.settings.batch_plan.ranks);
        self.data_parallel = collective.map_or_else(alone, DataParallel::joined);
    }

    /// Number of packed batches of an update that this process runs.
    pub(crate) fn batches_here(&self, planned: &PlannedUpdate<'_>) -> u64 {
        planned.batches_of(self.data_parallel.own())
    }

    /// The trained policies, in the given order.
    pub fn policies(&self) -> &[TrainedPolicy] {
        &self.policies
    }

    /// Returns the steps after which each policy is updated.
    pub fn update_steps(&self) -> Vec<UpdateSteps> {
        self.policies.iter().map(|policy| policy.training.update_steps()).collect()
    }

    /// Names of the policies, for messages.
    pub(crate) fn names(&self) -> String {
        let names: Vec<&str> = self.policies.iter().map(|policy| policy.name.as_str()).collect();
        names.join("`, `")
    }

    /// The trained policies, to be restored from a checkpoint.
    pub(crate) fn policies_mut(&mut self) -> &mut [TrainedPolicy] {
        &mut self.policies
    }

    /// The base weights, frozen or trained.
    pub fn base(&self) -> &BaseWeights {
        &self.base
    }

    /// Dimensions of the model.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Runs a planned update. Calls `progress` after each packed batch. Returns metrics of every policy that had
    /// transitions.
    ///
    /// # Errors
    /// Errors of libtorch. The learner's state is undefined then; a run continues from its last checkpoint.
    pub fn update(
        &mut self,
        planned: &PlannedUpdate<'_>,
        progress: &mut dyn FnMut(),
    ) -> Result<Vec<UpdateMetrics>, Error> {
        let mut sums = self.planned_sums(planned);
        let (policies, record_tokens) = (self.policies.len(), self.settings.record_tokens);
        let own_ranks = self.data_parallel.own();
        let mut measured: Vec<Measured> = own_ranks.map(|_| Measured::new(policies, record_tokens)).collect();
        for mini_batch in &planned.mini_batches {
            self.run_mini_batch(planned, mini_batch, &mut sums, &mut measured, progress)
                .map_err(|source| self.update_error(planned.step, source))?;
        }
        let measured = self.data_parallel.gather(measured);
        let measured = measured.map_err(|source| self.update_error(planned.step, source.into()))?;
        let mut of_all_ranks = Measured::new(policies, record_tokens);
        measured.into_iter().for_each(|of_rank| of_all_ranks.merge(of_rank));
        let coefficient = |policy: usize| self.policies[policy].state.kl_coefficient;
        for sequence in of_all_ranks.trained.iter().map(|&index| &planned.sequences[index]) {
            sums[sequence.policy_index].trained_tokens += sequence.targets as u64;
        }
        let (passes, trained) = of_all_ranks.finish(planned, coefficient);
        sums.iter_mut().zip(passes).for_each(|(sums, passes)| sums.passes = passes);
        self.trained = trained;
        for (policy, prepared) in self.policies.iter_mut().zip(&planned.prepared) {
            if let Some(prepared) = prepared {
                policy.state.clone_from(&prepared.state);
            }
        }
        let rates: Vec<f64> = self.policies.iter().map(|policy| self.rate(policy, planned.step)).collect();
        let policies = self.policies.iter_mut().zip(sums).zip(rates);
        Ok(policies
            .filter(|((_, sums), _)| sums.tokens > 0)
            .map(|((policy, sums), rate)| {
                policy.version += u64::from(sums.optimizer_steps > 0);
                let critic_rate = policy.critic.as_ref().map(|critic| critic.settings().learning_rate);
                sums.into_metrics(&policy.name, policy.version, rate, critic_rate)
            })
            .collect())
    }

    /// Takes the records of the last update's completions, by key and epoch. Empty if the settings keep none.
    pub fn take_trained_completions(&mut self) -> Vec<TrainedCompletion> {
        std::mem::take(&mut self.trained)
    }

    /// Sums over completions and their targets, per policy. They are known before an update runs.
    fn planned_sums(&self, planned: &PlannedUpdate<'_>) -> Vec<MetricSums> {
        let mut sums = vec![MetricSums::default(); self.policies.len()];
        for (sequence, sample) in planned.sequences.iter().zip(&planned.samples) {
            let sums = &mut sums[sequence.policy_index];
            sums.completions += 1;
            sums.cut_off += u64::from(sample.transition.cut_off);
            sums.tokens += sequence.targets as u64;
            let spans = sample.transition.version_spans();
            sums.mixed_tokens += if spans.len() > 1 { sequence.targets as u64 } else { 0 };
            for (version, tokens) in spans {
                let age = self.policies[sequence.policy_index].version.saturating_sub(version);
                *sums.staleness.entry(age).or_default() += tokens as u64;
            }
            if !sequence.masked {
                let advantages = sample.targets.advantages.iter();
                advantages.for_each(|&advantage| sums.advantages.add(f64::from(advantage)));
                let targets = sample.targets.critic.iter();
                let pairs = targets.flat_map(|own| own.values.iter().zip(&own.returns));
                pairs.for_each(|(&value, &target)| {
                    sums.critic.add_target(f64::from(value), f64::from(target))
                });
            }
        }
        for (sums, prepared) in sums.iter_mut().zip(&planned.prepared) {
            let divergence = prepared.as_ref().and_then(|prepared| prepared.reference_kl);
            (sums.reference_kl, sums.kl_coefficient) = divergence.unzip();
            if let Some(Preparation { left_out, .. }) = prepared {
                sums.dropped_flat_groups = left_out.flat_groups;
                sums.dropped_groups = left_out.dropped_groups;
                sums.outliers = left_out.outliers;
            }
        }
        sums
    }

    /// Learning rate of a policy. The schedule counts from 0.
    fn rate(&self, policy: &TrainedPolicy, step: u64) -> f64 {
        learning_rate(&policy.training.optimizer, self.settings.steps, step.saturating_sub(1))
    }

    fn update_error(&self, step: u64, source: UpdateError) -> Error {
        let names = self.names();
        match source {
            UpdateError::Model(pl_model::Error::Torch(source)) => {
                Error::Torch { doing: format!("update of `{names}` in step {step}"), source }
            }
            UpdateError::Model(source) => Error::Model { policy: names, source },
            UpdateError::Collective(source) => Error::Collective { policies: names, step, source },
        }
    }

    /// Adapters in training: those of the policies, which have the policies' indices, then those of their critics.
    fn trained_adapters(&self) -> Vec<&Adapter> {
        all_adapters(&self.policies)
    }

    /// Index of the adapter of a policy's critic among the adapters in training. `None` if it has none there.
    fn critic_slot(&self, policy_index: usize) -> Option<usize> {
        let has_slot = |policy: &TrainedPolicy| {
            policy.critic.as_ref().is_some_and(|critic| critic.learner_adapter().is_some())
        };
        let earlier = self.policies.iter().take(policy_index).filter(|policy| has_slot(policy)).count();
        self.policies.get(policy_index).filter(|policy| has_slot(policy))?;
        Some(self.policies.len() + earlier)
    }

    fn run_mini_batch(
        &mut self,
        planned: &PlannedUpdate<'_>,
        mini_batch: &MiniBatch,
        sums: &mut [MetricSums],
        measured: &mut [Measured],
        progress: &mut dyn FnMut(),
    ) -> Result<(), UpdateError> {
        let gradients = self.gradients_of(|policy| mini_batch.has_gradient[policy]);
        let ranks = self.data_parallel.own();
        let mut rank_sums = (ranks.len() > 1).then(RankSums::new);
        for (rank, measured) in ranks.zip(measured.iter_mut()) {
            let share = &mini_batch.shares[rank];
            for batch in &share.batches {
                self.run_batch(planned, mini_batch, batch, measured)?;
                progress();
            }
            for (policy_index, batch) in &share.critic_batches {
                self.run_critic_batch(planned, mini_batch, *policy_index, batch, &mut measured.sums)?;
                progress();
            }
            rank_sums.iter_mut().try_for_each(|sums| sums.add(&gradients))?;
        }
        rank_sums.into_iter().try_for_each(|sums| sums.write(&gradients))?;
        self.data_parallel.sum(&gradients)?;
        self.take_optimizer_steps(planned.step, mini_batch, sums, measured)?;
        Ok(())
    }

    /// Forgets the gradients that an update which failed has left.
    pub(crate) fn clear_gradients(&self) -> Result<(), TchError> {
        let all = self.gradients_of(|_| true);
        no_grad(|| all.into_iter().try_for_each(|mut gradient| gradient.f_zero_().map(drop)))
    }

    /// Gradients of some policies, each followed by those of its critic, as shallow clones.
    fn gradients_of(&self, is_wanted: impl Fn(usize) -> bool) -> Vec<Tensor> {
        let mut gradients = Vec::new();
        for index in (0..self.policies.len()).filter(|index| is_wanted(*index)) {
            gradients.extend(self.policy_gradients(index));
            if let Some(critic) = &self.policies[index].critic {
                let slot = self.critic_slot(index).map(|slot| &self.gradients.adapters[slot]);
                gradients.extend(critic.gradients(slot));
            }
        }
        gradients
    }

    /// Gradients of a policy's weights, as shallow clones.
    fn policy_gradients(&self, index: usize) -> Vec<Tensor> {
        let gradients = match &self.gradients.weights {
            Some(weights) => weights.parameters(),
            None => self.gradients.adapters[index].parameters(),
        };
        gradients.into_iter().map(|(_, gradient)| gradient).collect()
    }

    /// Takes an optimiser step for each policy of a mini-batch, and for its critic. The gradients are zero afterwards.
    fn take_optimizer_steps(
        &mut self,
        step_number: u64,
        mini_batch: &MiniBatch,
        sums: &mut [MetricSums],
        measured: &mut [Measured],
    ) -> Result<(), pl_model::Error> {
        let rates: Vec<f64> = self.policies.iter().map(|policy| self.rate(policy, step_number)).collect();
        let slots: Vec<Option<usize>> =
            (0..self.policies.len()).map(|index| self.critic_slot(index)).collect();
        let own: Vec<Vec<Tensor>> =
            (0..self.policies.len()).map(|index| self.policy_gradients(index)).collect();
        for (index, (policy, gradients)) in self.policies.iter_mut().zip(own).enumerate() {
            if !mini_batch.has_gradient[index] {
                continue;
            }
            let sums = &mut sums[index];
            if let Some(critic) = &mut policy.critic {
                let step = critic.step(slots[index].map(|slot| &self.gradients.adapters[slot]))?;
                sums.critic.add_step(step.applied.then_some(step.grad_norm));
            }
            if policy.warms_up_critic(step_number) {
                gradients.into_iter().try_for_each(|mut gradient| gradient.f_zero_().map(drop))?;
                continue;
            }
            let step =
                policy.optimizer.step(gradients, rates[index], policy.training.optimizer.max_grad_norm)?;
            sums.mini_batches += 1;
            if step.grad_norm == 0.0 {
                // A correction or a trust region has removed the gradient of every token.
                continue;
            }
            measured.iter_mut().for_each(|of_rank| of_rank.optimizer_steps[index] += 1);
            if step.applied {
                sums.optimizer_steps += 1;
                sums.grad_norms += step.grad_norm;
            } else {
                sums.skipped_steps += 1;
                tracing::warn!(
                    policy = policy.name,
                    step = step_number,
                    "the gradient is not finite; this optimiser step was skipped"
                );
            }
        }
        self.base.publish()
    }
}

/// Adapters of the policies, then those of their critics.
fn all_adapters(policies: &[TrainedPolicy]) -> Vec<&Adapter> {
    let critics = policies.iter().filter_map(|policy| policy.critic.as_ref());
    let own = policies.iter().filter_map(|policy| policy.adapter.as_ref());
    own.chain(critics.filter_map(Critic::learner_adapter)).collect()
}

#[cfg(test)]
mod exactness_tests;
#[cfg(test)]
mod objective_tests;
#[cfg(test)]
mod packed_weights_tests;
#[cfg(test)]
mod tests;
