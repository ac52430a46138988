//! Forward pass, loss and backward pass of a packed batch.

use std::ops::Range;

use pl_dsl::workflow::PolicyTraining;
use pl_model::{Packed, Pass, Sequence as TokenSequence};
use tch::{Kind, TchError, Tensor, no_grad};

use super::Learner;
use super::measured::Measured;
use super::planning::PlannedUpdate;
use super::policy::TrainedPolicy;
use crate::aggregation::token_weight;
use crate::critic::{Critic, CriticNetwork};
use crate::head::{self, HeadInput, HeadOptions};
use crate::loss::{TokenInputs, k3};
use crate::metrics::PassSums;
use crate::objective::{
    ObjectiveInputs, has_kl_in_loss, has_planned_correction, needs_sequence_ratio, objective_loss,
    trains_without_advantage,
};
use crate::packing::PackedBatch;
use crate::plan::{MiniBatch, PlannedBatch, PlannedSequence};
use crate::token_columns::{TokenColumns, TokenMeasurements, TokenTensors};

impl Learner {
    /// Runs forward pass, loss and backward pass of a packed batch. Adds to the learner's gradients.
    pub(super) fn run_batch(
        &self,
        planned: &PlannedUpdate<'_>,
        mini_batch: &MiniBatch,
        batch: &PlannedBatch,
        measured: &mut Measured,
    ) -> Result<(), pl_model::Error> {
        let weights = self.base.working();
        let adapters = self.trained_adapters();
        let policies = batch.sequences.iter().map(|&index| {
            let PlannedSequence { tokens, policy_index, .. } = &planned.sequences[index];
            let adapter = self.policies[*policy_index].adapter.is_some().then_some(*policy_index);
            TokenSequence { tokens, adapter }
        });
        let critics = batch.value_sequences.iter().map(|&index| {
            let PlannedSequence { tokens, policy_index, .. } = &planned.sequences[index];
            TokenSequence { tokens, adapter: self.critic_slot(*policy_index) }
        });
        let sequences: Vec<TokenSequence<'_>> = policies.chain(critics).collect();
        let (packed, rows) = Packed::forest(&sequences);
        let (policy_rows, value_rows) = rows.split_at(batch.sequences.len());
        let pass = Pass::forward(&self.config, weights, &adapters, &packed, self.settings.checkpointing)?;
        let mut gradients = Vec::new();
        if !batch.sequences.is_empty() {
            let columns = self.columns(planned, mini_batch, &batch.sequences, policy_rows);
            gradients.extend(self.run_policies(planned, mini_batch, &columns, &pass, measured)?);
        }
        if !batch.value_sequences.is_empty() {
            let columns = self.columns(planned, mini_batch, &batch.value_sequences, value_rows);
            gradients.push(self.run_values(&columns, pass.hidden(), &mut measured.sums)?);
        }
        if !gradients.is_empty() {
            let mut gradient = pass.hidden().f_zeros_like()?;
            for (rows, slopes) in gradients {
                // Completions with a common prefix share rows, so their gradients are added.
                let _ = gradient.f_index_add_(0, &rows, &slopes)?;
            }
            pass.backward(&gradient, &self.gradients)?;
        }
        Ok(())
    }

    /// Runs forward pass, value loss and backward pass of a packed batch of a critic with a model of its own.
    pub(super) fn run_critic_batch(
        &self,
        planned: &PlannedUpdate<'_>,
        mini_batch: &MiniBatch,
        policy_index: usize,
        batch: &PackedBatch,
        sums: &mut [PassSums],
    ) -> Result<(), pl_model::Error> {
        let Some(model) = self.policies[policy_index].critic.as_ref().and_then(Critic::own_model) else {
            return Ok(());
        };
        let sequences = batch.sequences.iter().map(|&index| planned.sequences[index].tokens.as_slice());
        let sequences: Vec<&[u32]> = sequences.collect();
        model.forward_backward(&sequences, self.settings.checkpointing, |hidden, rows| {
            self.run_values(&self.columns(planned, mini_batch, &batch.sequences, rows), hidden, sums)
        })
    }

    /// Columns of the completion tokens of some sequences. `rows` are the packed rows of each one's tokens.
    fn columns(
        &self,
        planned: &PlannedUpdate<'_>,
        mini_batch: &MiniBatch,
        sequences: &[usize],
        rows: &[Vec<usize>],
    ) -> TokenColumns {
        let mut columns = TokenColumns::default();
        for (&index, rows) in sequences.iter().zip(rows) {
            let sequence = &planned.sequences[index];
            let policy = &self.policies[sequence.policy_index];
            let aggregation = policy.training.objective.aggregation;
            let counts = mini_batch.counts[sequence.policy_index];
            let weight = token_weight(aggregation, policy.divisor, sequence.targets, counts);
            columns.sequences.push(index);
            columns.push(sequence, &planned.samples[index], rows, weight);
        }
        columns
    }

    /// Runs the losses of the policies, and those of the critics that read their hidden states. Returns the packed
    /// rows of the tokens and the gradient with respect to their hidden states, or `None` if no policy is trained.
    fn run_policies(
        &self,
        planned: &PlannedUpdate<'_>,
        mini_batch: &MiniBatch,
        columns: &TokenColumns,
        pass: &Pass<'_>,
        measured: &mut Measured,
    ) -> Result<Option<(Tensor, Tensor)>, pl_model::Error> {
        let weights = self.base.working();
        let tokens = columns.to_tensors(weights.device())?;
        let hidden = pass.hidden().f_index_select(0, &tokens.rows)?;
        let input = HeadInput {
            hidden: &hidden,
            tokens: &tokens.ids,
            temperatures: tokens.temperatures.as_ref(),
            support: columns.support.is_truncated().then_some(&columns.support),
        };
        let sequence_log_ratios = self.sequence_log_ratios(columns, &input)?;
        let entropy_slopes = self.entropy_slopes(columns, &tokens)?;
        let options = HeadOptions {
            entropy: mini_batch.epoch == 0 || entropy_slopes.is_some(),
            entropy_slopes: entropy_slopes.as_ref(),
            chunk: head::CHUNK,
            unembed_gradient: self.gradients.weights.as_ref().and_then(|own| own.unembed().tensor()),
        };
        let classes = self.objective_classes();
        let mut measurements = TokenMeasurements::default();
        let output = head::forward_backward(&input, weights.unembed(), &options, |range, logp| {
            let sampler_logp = tokens.sampler_logps.f_narrow(0, range.start, range.end - range.start)?;
            measurements.logp.push(logp.shallow_clone());
            measurements.kl.push(k3(logp, &sampler_logp)?);
            measurements.log_ratio.push(logp.f_sub(&sampler_logp)?);
            let mut slopes = Vec::new();
            for (policy_index, run) in columns.runs(range.clone(), &classes) {
                let logp = logp.f_narrow(0, run.start - range.start, run.end - run.start)?;
                let sequence_log_ratios = sequence_log_ratios.as_ref();
                slopes.push(self.run_derivative(
                    policy_index,
                    &run,
                    &logp,
                    &tokens,
                    sequence_log_ratios,
                    &mut measurements,
                )?);
            }
            Tensor::f_cat(&slopes, 0)
        })?;
        self.run_critics(
            planned.step,
            columns,
            &tokens,
            &hidden,
            &output.hidden_gradient,
            &mut measurements,
        )?;
        if let (Some(slopes), Some(entropy)) = (&entropy_slopes, &output.entropy) {
            measurements.add_to_loss(&slopes.f_mul(entropy)?)?;
        }
        measurements.entropy = output.entropy.filter(|_| mini_batch.epoch == 0);
        let has_gradient = |policy: usize| !self.policies[policy].warms_up_critic(planned.step);
        let trains_dropped = |policy: usize| {
            let policy = &self.policies[policy];
            policy.critic.is_some() || trains_without_advantage(&policy.training.objective)
        };
        measured.add(mini_batch.epoch, columns, &measurements, has_gradient, trains_dropped)?;
        let is_trained = columns.policy_indices.iter().any(|&policy| has_gradient(policy));
        Ok(is_trained.then_some((tokens.rows, output.hidden_gradient)))
    }

    /// Runs the value losses of critics with hidden states of their own. Returns the packed rows of the tokens and
    /// the gradient with respect to their hidden states.
    fn run_values(
        &self,
        columns: &TokenColumns,
        hidden: &Tensor,
        sums: &mut [PassSums],
    ) -> Result<(Tensor, Tensor), pl_model::Error> {
        let tokens = columns.to_tensors(hidden.device())?;
        let hidden = hidden.f_index_select(0, &tokens.rows)?;
        let all: Vec<usize> = (0..self.policies.len()).collect();
        let mut measurements = TokenMeasurements::default();
        let mut slopes = Vec::new();
        for (policy_index, run) in columns.runs(0..columns.policy_indices.len() as i64, &all) {
            let Some(critic) = &self.policies[policy_index].critic else { continue };
            let result = critic.head.forward_backward(&tokens.value_rows(&run, &hidden)?.rows(), true)?;
            slopes.extend(
                result.hidden_gradient.map(|gradient| gradient.f_to_kind(hidden.kind())).transpose()?,
            );
            measurements.values.push((run.start, result.loss, result.clipped));
        }
        measurements.add_values_to(&columns.policy_indices, sums)?;
        Ok((tokens.rows, Tensor::f_cat(&slopes, 0)?))
    }

    /// Returns the derivative of the loss with respect to the log-probabilities `logp` of a run of tokens, all
    /// of one objective.
    fn run_derivative(
        &self,
        policy_index: usize,
        run: &Range<i64>,
        logp: &Tensor,
        tokens: &TokenTensors,
        sequence_log_ratios: Option<&Tensor>,
        measurements: &mut TokenMeasurements,
    ) -> Result<Tensor, TchError> {
        let TrainedPolicy { training: PolicyTraining { objective, .. }, state, .. } =
            &self.policies[policy_index];
        let part = |column: &Tensor| column.f_narrow(0, run.start, run.end - run.start);
        let leaf = logp.f_detach()?.f_set_requires_grad(true)?;
        let (old_logp, advantage) = (part(&tokens.old_logps)?, part(&tokens.advantages)?);
        let sequence_log_ratio = sequence_log_ratios.map(part).transpose()?;
        let reference = has_kl_in_loss(objective).then(|| part(&tokens.reference_logps)).transpose()?;
        let correction = has_planned_correction(objective).then(|| part(&tokens.corrections)).transpose()?;
        let result = objective_loss(
            objective,
            &ObjectiveInputs {
                tokens: TokenInputs {
                    logp: &leaf,
                    old_logp: &old_logp,
                    advantage: &advantage,
                    sequence_log_ratio: sequence_log_ratio.as_ref(),
                },
                reference: reference.as_ref(),
                correction: correction.as_ref(),
                kl_coefficient: state.kl_coefficient,
            },
        )?;
        let loss = result.loss.f_mul(&part(&tokens.loss_weights)?)?;
        loss.f_sum(Kind::Float)?.f_backward()?;
        measurements.loss.push(loss.f_detach()?);
        measurements.clipped.push(result.clipped);
        measurements.dual_clipped.push(result.dual_clipped);
        measurements.weights.extend(result.weights.map(|weights| (run.start, weights)));
        leaf.f_grad()
    }

    /// Runs the value losses of the critics that read the policies' hidden states, which are `hidden`. Adds to the
    /// gradients of the critics and, where they share the policy's hidden states, to `hidden_gradient`. The gradient
    /// of a policy whose critic warms up becomes 0.
    fn run_critics(
        &self,
        step: u64,
        columns: &TokenColumns,
        tokens: &TokenTensors,
        hidden: &Tensor,
        hidden_gradient: &Tensor,
        measurements: &mut TokenMeasurements,
    ) -> Result<(), TchError> {
        let all: Vec<usize> = (0..self.policies.len()).collect();
        for (policy_index, run) in columns.runs(0..columns.policy_indices.len() as i64, &all) {
            let policy = &self.policies[policy_index];
            let Some(critic) = &policy.critic else { continue };
            let warms_up = policy.warms_up_critic(step);
            let mut gradient = hidden_gradient.f_narrow(0, run.start, run.end - run.start)?;
            if warms_up {
                no_grad(|| gradient.f_zero_().map(drop))?;
            }
            if !matches!(critic.network, CriticNetwork::Policy) {
                continue;
            }
            let result = critic.head.forward_backward(&tokens.value_rows(&run, hidden)?.rows(), !warms_up)?;
            if let Some(own) = &result.hidden_gradient {
                no_grad(|| gradient.f_add_(&own.f_to_kind(gradient.kind())?).map(drop))?;
            }
            measurements.values.push((run.start, result.loss, result.clipped));
        }
        Ok(())
    }

    /// Classes of policies with the same loss, whose tokens go through it together. A class is the index of its
    /// first policy.
    fn objective_classes(&self) -> Vec<usize> {
        let policies = || self.policies.iter();
        let same = |a: &TrainedPolicy, b: &TrainedPolicy| {
            a.training.objective == b.training.objective && a.state.kl_coefficient == b.state.kl_coefficient
        };
        policies()
            .map(|policy| policies().position(|other| same(other, policy)).unwrap_or_default())
            .collect()
    }

    /// Means of each completion's log-ratios to the old policy, `[N]`, for policies whose loss needs them.
    /// `None` if there are none.
    fn sequence_log_ratios(
        &self,
        columns: &TokenColumns,
        input: &HeadInput<'_>,
    ) -> Result<Option<Tensor>, TchError> {
        let is_needed = |&policy: &usize| needs_sequence_ratio(&self.policies[policy].training.objective);
        let policies = &columns.policy_indices;
        let (Some(first), Some(last)) =
            (policies.iter().position(is_needed), policies.iter().rposition(is_needed))
        else {
            return Ok(None);
        };
        let rows = first as i64..last as i64 + 1;
        let logps = head::logprobs(input, rows, self.base.working().unembed(), head::CHUNK)?;
        columns.sequence_log_ratios(first, &logps, input.hidden.device()).map(Some)
    }

    /// Derivatives of the loss with respect to the entropy of each token's distribution, `[N]`. `None` if no
    /// policy has an entropy bonus.
    fn entropy_slopes(
        &self,
        columns: &TokenColumns,
        tokens: &TokenTensors,
    ) -> Result<Option<Tensor>, TchError> {
        let coefficient = |&policy: &usize| -self.policies[policy].training.objective.entropy as f32;
        let coefficients: Vec<f32> = columns.policy_indices.iter().map(coefficient).collect();
        if coefficients.iter().all(|&coefficient| coefficient == 0.0) {
            return Ok(None);
        }
        let coefficients = Tensor::f_from_slice(&coefficients)?.f_to_device(tokens.loss_weights.device())?;
        coefficients.f_mul(&tokens.loss_weights).map(Some)
    }
}
