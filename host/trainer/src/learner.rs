//! A learner: one set of base weights and the policies that are trained on it.
//!
//! Either the base is frozen and each policy has an adapter (all of them share packed passes, and each gets
//! the gradient that training it alone would give), or one policy trains the weights themselves.
//!
//! The loss of a mini-batch is, per policy, the mean over the completion tokens of its transitions in that
//! mini-batch. Common prefixes of a policy's sequences go through the model once ([`crate::packing`]). To
//! save memory, gradients exist for trained tensors only, and the head runs in chunks ([`crate::head`]);
//! [`crate::memory`] estimates the total.

use pl_dsl::workflow::Train;
use pl_model::{
    Adapter, Checkpointing, Config, Gradients, Packed, Pass, Sequence as TokenSequence, TensorSet, Weights,
};
use pl_types::Dtype;
use tch::{Kind, Tensor};

use crate::base_weights::BaseWeights;
use crate::error::Error;
use crate::head::{self, HeadInput};
use crate::loss::{Clip, clipped_policy_loss, k3};
use crate::metrics::{MetricSums, UpdateMetrics};
use crate::optimizer::AdamW;
use crate::packing::PackedBatch;
use crate::plan::{BatchPlan, MiniBatch, PlannedSequence, Sample, plan_update};
use crate::token_columns::{TokenColumns, TokenMeasurements};
use crate::validate::planned_sequence;

/// The settings of a `train` block that an update needs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LearnerSettings {
    /// Clipping bounds of the loss.
    pub clip: Clip,
    /// Epochs, mini-batches and token budget.
    pub batch_plan: BatchPlan,
    /// AdamW's weight decay.
    pub weight_decay: f64,
    /// Bound on a policy's gradient norm; 0 disables clipping.
    pub max_grad_norm: f64,
    /// Gradient checkpointing of forward passes.
    pub checkpointing: Checkpointing,
    /// The run's seed.
    pub seed: u64,
}

impl LearnerSettings {
    /// The settings of a `train` block.
    pub fn new(train: &Train, seed: u64) -> Self {
        Self {
            clip: Clip::from(train),
            batch_plan: BatchPlan {
                epochs: train.epochs,
                mini_batches: train.mini_batches,
                token_budget: train.token_budget as usize,
            },
            weight_decay: train.weight_decay,
            max_grad_norm: train.max_grad_norm,
            checkpointing: if train.gradient_checkpointing { Checkpointing::On } else { Checkpointing::Off },
            seed,
        }
    }
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
}

/// An adapter to train: index into the workflow's policies, name, adapter.
pub type AdapterPolicy = (usize, String, Adapter);

/// One set of base weights and the policies trained on it.
#[derive(Debug)]
pub struct Learner {
    config: Config,
    base: BaseWeights,
    policies: Vec<TrainedPolicy>,
    /// Gradients of the current mini-batch, of the base weights or of the adapters; zero between
    /// mini-batches.
    gradients: Gradients,
    settings: LearnerSettings,
}

/// A validated and planned update that has not run yet.
#[derive(Debug)]
pub struct PlannedUpdate<'a> {
    step: u64,
    samples: Vec<Sample<'a>>,
    sequences: Vec<PlannedSequence>,
    mini_batches: Vec<MiniBatch>,
}

impl PlannedUpdate<'_> {
    /// Number of packed batches to run.
    pub fn batches(&self) -> u64 {
        self.mini_batches.iter().map(|mini_batch| mini_batch.batches.len() as u64).sum()
    }

    /// Number of tokens fed to the model over all passes. Prefixes shared within a batch count once.
    pub fn fed_tokens(&self) -> u64 {
        let batches = self.mini_batches.iter().flat_map(|mini_batch| &mini_batch.batches);
        batches.map(|batch| batch.fed_tokens as u64).sum()
    }
}

impl Learner {
    /// A learner of adapters on a frozen base. `weights` may be shared; they are never changed.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn adapters(
        config: Config,
        weights: Weights,
        policies: Vec<AdapterPolicy>,
        settings: LearnerSettings,
    ) -> Result<Self, Error> {
        let policies = policies
            .into_iter()
            .map(|(policy, name, adapter)| {
                let optimizer = AdamW::new(adapter.parameters(), settings.weight_decay)
                    .map_err(Error::torch(format!("optimiser of policy `{name}`")))?;
                Ok(TrainedPolicy { policy, name, adapter: Some(adapter), version: 0, optimizer })
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let adapters: Vec<&Adapter> = policies.iter().filter_map(|policy| policy.adapter.as_ref()).collect();
        let gradients =
            Gradients::zeros(None, &adapters).map_err(Error::torch("gradients of the adapters"))?;
        Ok(Self { config, base: BaseWeights::frozen(weights), policies, gradients, settings })
    }

    /// A learner of one policy's full weights, which are changed in place. `dtype` is their number format.
    ///
    /// # Errors
    /// If memory runs out.
    pub fn full(
        config: Config,
        weights: Weights,
        dtype: Dtype,
        policy: usize,
        name: String,
        settings: LearnerSettings,
    ) -> Result<Self, Error> {
        let base = BaseWeights::trained(weights, dtype).map_err(Error::model(&name))?;
        let trained = base.masters().unwrap_or(base.working());
        let optimizer = AdamW::new(trained.parameters(), settings.weight_decay)
            .map_err(Error::torch(format!("optimiser of policy `{name}`")))?;
        let gradients = Gradients::zeros(Some(trained), &[])
            .map_err(Error::torch(format!("gradients of policy `{name}`")))?;
        let policies = vec![TrainedPolicy { policy, name, adapter: None, version: 0, optimizer }];
        Ok(Self { config, base, policies, gradients, settings })
    }

    /// The trained policies, in the given order.
    pub fn policies(&self) -> &[TrainedPolicy] {
        &self.policies
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

    /// Validates transitions of this learner's policies and plans an update over them; changes nothing. The
    /// transitions must be sorted by key.
    ///
    /// # Errors
    /// [`Error::Transition`] for the first invalid transition.
    pub fn plan<'a>(&self, step: u64, samples: Vec<Sample<'a>>) -> Result<PlannedUpdate<'a>, Error> {
        let sequences = samples
            .iter()
            .map(|sample| {
                let policy = sample.transition.policy as usize;
                let policy_index = self.policies.iter().position(|trained| trained.policy == policy);
                planned_sequence(&self.config, policy_index, step, sample)
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let names: Vec<&str> = self.policies.iter().map(|policy| policy.name.as_str()).collect();
        let mini_batches =
            plan_update(self.settings.seed, step, &names, &sequences, self.settings.batch_plan);
        Ok(PlannedUpdate { step, samples, sequences, mini_batches })
    }

    /// Runs a planned update at learning rate `rate`. Calls `progress` after each packed batch. Returns
    /// metrics of every policy that had transitions.
    ///
    /// # Errors
    /// Errors of libtorch. The learner's state is undefined then; a run continues from its last checkpoint.
    pub fn update(
        &mut self,
        planned: &PlannedUpdate<'_>,
        rate: f64,
        progress: &mut dyn FnMut(),
    ) -> Result<Vec<UpdateMetrics>, Error> {
        let mut sums = vec![MetricSums::default(); self.policies.len()];
        for sequence in &planned.sequences {
            let sums = &mut sums[sequence.policy_index];
            sums.tokens += sequence.targets as u64;
            sums.trained_tokens += if sequence.advantaged { sequence.targets as u64 } else { 0 };
        }
        for mini_batch in &planned.mini_batches {
            self.run_mini_batch(planned, mini_batch, rate, &mut sums, progress).map_err(|source| {
                let names = self.names();
                match source {
                    pl_model::Error::Torch(source) => Error::Torch {
                        doing: format!("update of `{names}` in step {}", planned.step),
                        source,
                    },
                    source => Error::Model { policy: names, source },
                }
            })?;
        }
        let policies = self.policies.iter_mut().zip(sums).filter(|(_, sums)| sums.tokens > 0);
        Ok(policies
            .map(|(policy, sums)| {
                policy.version += u64::from(sums.optimizer_steps > 0);
                sums.into_metrics(&policy.name, policy.version, rate)
            })
            .collect())
    }

    fn run_mini_batch(
        &mut self,
        planned: &PlannedUpdate<'_>,
        mini_batch: &MiniBatch,
        rate: f64,
        sums: &mut [MetricSums],
        progress: &mut dyn FnMut(),
    ) -> Result<(), pl_model::Error> {
        for batch in &mini_batch.batches {
            self.run_batch(planned, mini_batch, batch, sums)?;
            progress();
        }
        for (index, policy) in self.policies.iter_mut().enumerate() {
            if !mini_batch.has_gradient[index] {
                continue;
            }
            let gradients = match &self.gradients.weights {
                Some(weights) => weights.parameters(),
                None => self.gradients.adapters[index].parameters(),
            };
            let gradients = gradients.into_iter().map(|(_, gradient)| gradient).collect();
            let step = policy.optimizer.step(gradients, rate, self.settings.max_grad_norm)?;
            let sums = &mut sums[index];
            sums.mini_batches += 1;
            if step.applied {
                sums.optimizer_steps += 1;
                sums.grad_norms += step.grad_norm;
            } else {
                sums.skipped_steps += 1;
                tracing::warn!(
                    policy = policy.name,
                    step = planned.step,
                    "the gradient is not finite; this optimiser step was skipped"
                );
            }
        }
        self.base.publish()
    }

    /// Runs forward pass, loss and backward pass of a packed batch. Adds to the learner's gradients.
    fn run_batch(
        &self,
        planned: &PlannedUpdate<'_>,
        mini_batch: &MiniBatch,
        batch: &PackedBatch,
        sums: &mut [MetricSums],
    ) -> Result<(), pl_model::Error> {
        let weights = self.base.working();
        // Adapters have the indices of their policies.
        let adapters: Vec<&Adapter> =
            self.policies.iter().filter_map(|policy| policy.adapter.as_ref()).collect();
        let sequences: Vec<TokenSequence<'_>> = batch
            .sequences
            .iter()
            .map(|&index| {
                let PlannedSequence { tokens, policy_index, .. } = &planned.sequences[index];
                let adapter = self.policies[*policy_index].adapter.is_some().then_some(*policy_index);
                TokenSequence { tokens, adapter }
            })
            .collect();
        let (packed, sequence_rows) = Packed::forest(&sequences);
        let mut columns = TokenColumns::default();
        for (&index, rows) in batch.sequences.iter().zip(&sequence_rows) {
            let sequence = &planned.sequences[index];
            columns.push(sequence, &planned.samples[index], rows, mini_batch.targets[sequence.policy_index]);
        }
        let tokens = columns.to_tensors(weights.device())?;

        let pass = Pass::forward(&self.config, weights, &adapters, &packed, self.settings.checkpointing)?;
        let hidden = pass.hidden().f_index_select(0, &tokens.rows)?;
        let input = HeadInput {
            hidden: &hidden,
            tokens: &tokens.ids,
            temperatures: tokens.temperatures.as_ref(),
            support: columns.support.is_truncated().then_some(&columns.support),
        };
        let mut measurements = TokenMeasurements::default();
        let output = head::forward_backward(
            &input,
            weights.unembed(),
            mini_batch.epoch == 0,
            head::CHUNK,
            self.gradients.weights.as_ref().map(Weights::unembed),
            |range, logp| {
                let part = |column: &Tensor| column.f_narrow(0, range.start, range.end - range.start);
                let old_logp = part(&tokens.old_logps)?;
                let leaf = logp.f_detach()?.f_set_requires_grad(true)?;
                let result =
                    clipped_policy_loss(&leaf, &old_logp, &part(&tokens.advantages)?, &self.settings.clip)?;
                let loss = result.loss.f_mul(&part(&tokens.loss_weights)?)?;
                loss.f_sum(Kind::Float)?.f_backward()?;
                measurements.loss.push(loss.f_detach()?);
                measurements.clipped.push(result.clipped);
                measurements.dual_clipped.push(result.dual_clipped);
                measurements.kl.push(k3(logp, &old_logp)?);
                measurements.gap.push(logp.f_sub(&old_logp)?.f_abs()?);
                leaf.f_grad()
            },
        )?;
        let mut gradient = pass.hidden().f_zeros_like()?;
        // Completions with a common prefix share rows, so their gradients are added.
        let _ = gradient.f_index_add_(0, &tokens.rows, &output.hidden_gradient)?;
        pass.backward(&gradient, &self.gradients)?;
        measurements.entropy = output.entropy;
        Ok(measurements.add_to(&columns.policy_indices, sums)?)
    }
}

#[cfg(test)]
mod tests;
