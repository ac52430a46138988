//! Per-token inputs and measurements of a packed batch, one row per completion token.

use std::ops::Range;

use pl_types::Transition;
use tch::{Device, Kind, TchError, Tensor};

use crate::head::SampledSupport;
use crate::metrics::PassSums;
use crate::plan::{PlannedSequence, Sample, TokenTargets};

/// Columns of the loss's inputs, with one element per completion token.
#[derive(Default)]
pub(crate) struct TokenColumns {
    /// Index of the policy within the learner. A policy's tokens are adjacent.
    pub(crate) policy_indices: Vec<usize>,
    /// Index of each completion's sequence in the update.
    pub(crate) sequences: Vec<usize>,
    /// Tokens of each completion, which are adjacent.
    pub(crate) completions: Vec<Range<usize>>,
    /// Row of the packed batch whose hidden state predicts the token.
    rows: Vec<i64>,
    ids: Vec<i64>,
    /// Log-probabilities at the time of sampling.
    sampler_logps: Vec<f32>,
    /// Log-probabilities that ratios are relative to.
    old_logps: Vec<f32>,
    pub(crate) advantages: Vec<f32>,
    /// Weights in the mean over the policy's tokens.
    pub(crate) loss_weights: Vec<f32>,
    /// Log-probabilities under the reference; 0 for policies without one.
    reference_logps: Vec<f32>,
    /// Importance weights; 1 for policies without them.
    corrections: Vec<f32>,
    /// Values before the update; 0 for policies without a critic, as are the returns.
    values: Vec<f32>,
    /// Targets of the values.
    returns: Vec<f32>,
    temperatures: Vec<f32>,
    pub(crate) support: SampledSupport,
}

/// The columns on the model's device, each `[N]`.
pub(crate) struct TokenTensors {
    /// int64, as are the ids.
    pub(crate) rows: Tensor,
    pub(crate) ids: Tensor,
    pub(crate) sampler_logps: Tensor,
    pub(crate) old_logps: Tensor,
    pub(crate) advantages: Tensor,
    pub(crate) loss_weights: Tensor,
    pub(crate) reference_logps: Tensor,
    pub(crate) corrections: Tensor,
    pub(crate) values: Tensor,
    pub(crate) returns: Tensor,
    /// `None` if all temperatures are 1.
    pub(crate) temperatures: Option<Tensor>,
}

/// Columns of the value loss, floats of one element per row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ValueRows<'a> {
    /// `[N, H]`, hidden states after the final norm.
    pub hidden: &'a Tensor,
    /// Values before the update.
    pub old_values: &'a Tensor,
    pub returns: &'a Tensor,
    /// Weights in the mean over tokens.
    pub loss_weights: &'a Tensor,
}

/// Columns of the value loss of some tokens.
pub(crate) struct ValueColumns {
    hidden: Tensor,
    old_values: Tensor,
    returns: Tensor,
    loss_weights: Tensor,
}

impl ValueColumns {
    pub(crate) fn rows(&self) -> ValueRows<'_> {
        let ValueColumns { hidden, old_values, returns, loss_weights } = self;
        ValueRows { hidden, old_values, returns, loss_weights }
    }
}

impl TokenTensors {
    /// Columns of the value loss of a run of tokens, whose hidden states are those of `hidden`.
    pub(crate) fn value_rows(&self, run: &Range<i64>, hidden: &Tensor) -> Result<ValueColumns, TchError> {
        let part = |tensor: &Tensor| tensor.f_narrow(0, run.start, run.end - run.start);
        Ok(ValueColumns {
            hidden: part(hidden)?,
            old_values: part(&self.values)?,
            returns: part(&self.returns)?,
            loss_weights: part(&self.loss_weights)?,
        })
    }
}

impl TokenColumns {
    /// Appends the completion of a sequence. `rows` are the packed rows of all its tokens, and `weight` is the
    /// weight of each token in the loss.
    pub(crate) fn push(
        &mut self,
        sequence: &PlannedSequence,
        sample: &Sample<'_>,
        rows: &[usize],
        weight: f32,
    ) {
        let PlannedSequence { policy_index, targets, prompt, .. } = *sequence;
        let Sample { transition, targets: token_targets } = sample;
        let TokenTargets { advantages, old_logprobs, reference_logprobs, correction, critic, .. } =
            token_targets;
        let start = self.policy_indices.len();
        self.completions.push(start..start + targets);
        self.policy_indices.extend(std::iter::repeat_n(policy_index, targets));
        self.rows.extend(rows[prompt - 1..].iter().map(|row| *row as i64));
        self.sampler_logps.extend_from_slice(&transition.logprobs);
        self.old_logps.extend_from_slice(old_logprobs.as_ref().unwrap_or(&transition.logprobs));
        self.advantages.extend_from_slice(advantages);
        self.loss_weights.extend(std::iter::repeat_n(weight, targets));
        let push_or = |column: &mut Vec<f32>, values: &Option<Vec<f32>>, default: f32| match values {
            Some(values) => column.extend_from_slice(values),
            None => column.extend(std::iter::repeat_n(default, targets)),
        };
        push_or(&mut self.reference_logps, reference_logprobs, 0.0);
        push_or(&mut self.corrections, correction, 1.0);
        let (values, returns) = critic.clone().map(|own| (own.values, own.returns)).unzip();
        push_or(&mut self.values, &values, 0.0);
        push_or(&mut self.returns, &returns, 0.0);
        self.push_tokens(transition);
    }

    /// Appends a completion's tokens and the distributions that they were sampled from.
    pub(crate) fn push_tokens(&mut self, transition: &Transition) {
        let targets = transition.completion.len();
        self.ids.extend(transition.completion.iter().map(|&id| i64::from(id)));
        // Greedy completions have log-probabilities of the plain softmax.
        let temperature = if transition.temperature == 0.0 { 1.0 } else { transition.temperature as f32 };
        self.temperatures.extend(std::iter::repeat_n(temperature, targets));
        match &transition.support {
            Some(lists) => lists.iter().for_each(|ids| self.support.push(ids)),
            None => (0..targets).for_each(|_| self.support.push(&[])),
        }
    }

    /// Copies the tokens and their temperatures to a device. The temperatures are `None` if all are 1.
    pub(crate) fn token_tensors(&self, device: Device) -> Result<(Tensor, Option<Tensor>), TchError> {
        let ids = Tensor::f_from_slice(&self.ids)?.f_to_device(device)?;
        let plain = self.temperatures.iter().all(|&temperature| temperature == 1.0);
        let temperatures = || Tensor::f_from_slice(&self.temperatures)?.f_to_device(device);
        Ok((ids, if plain { None } else { Some(temperatures()?) }))
    }

    /// Copies the columns to a device.
    pub(crate) fn to_tensors(&self, device: Device) -> Result<TokenTensors, TchError> {
        let floats = |values: &[f32]| Tensor::f_from_slice(values)?.f_to_device(device);
        let (ids, temperatures) = self.token_tensors(device)?;
        Ok(TokenTensors {
            rows: Tensor::f_from_slice(&self.rows)?.f_to_device(device)?,
            ids,
            sampler_logps: floats(&self.sampler_logps)?,
            old_logps: floats(&self.old_logps)?,
            advantages: floats(&self.advantages)?,
            loss_weights: floats(&self.loss_weights)?,
            reference_logps: floats(&self.reference_logps)?,
            corrections: floats(&self.corrections)?,
            values: floats(&self.values)?,
            returns: floats(&self.returns)?,
            temperatures,
        })
    }

    /// Divides a range of tokens into runs whose policies have one class. Returns each run with its class.
    pub(crate) fn runs(&self, range: Range<i64>, classes: &[usize]) -> Vec<(usize, Range<i64>)> {
        let mut runs: Vec<(usize, Range<i64>)> = Vec::new();
        for row in range {
            let class = classes[self.policy_indices[row as usize]];
            match runs.last_mut().filter(|(last, _)| *last == class) {
                Some((_, run)) => run.end = row + 1,
                None => runs.push((class, row..row + 1)),
            }
        }
        runs
    }

    /// Means over each completion of `logp - old_logp`, `[N]`. `logps` are the log-probabilities of the rows
    /// from `first` on; other rows are 0.
    pub(crate) fn sequence_log_ratios(
        &self,
        first: usize,
        logps: &Tensor,
        device: Device,
    ) -> Result<Tensor, TchError> {
        let kind = logps.kind();
        let logps = Vec::<f64>::try_from(logps.f_to_kind(Kind::Double)?)?;
        let mut means = vec![0.0; self.ids.len()];
        for rows in &self.completions {
            if rows.start < first || rows.end > first + logps.len() {
                continue;
            }
            let gap = |row: usize| logps[row - first] - f64::from(self.old_logps[row]);
            let mean = rows.clone().map(gap).sum::<f64>() / rows.len() as f64;
            means[rows.clone()].fill(mean);
        }
        Tensor::f_from_slice(&means)?.f_to_kind(kind)?.f_to_device(device)
    }
}

/// Per-token measurements of a pass, in chunks.
#[derive(Default)]
pub(crate) struct TokenMeasurements {
    pub(crate) loss: Vec<Tensor>,
    pub(crate) clipped: Vec<Tensor>,
    pub(crate) dual_clipped: Vec<Tensor>,
    /// Log-probabilities under the policy in training.
    pub(crate) logp: Vec<Tensor>,
    /// Estimates of the divergence from the sampler.
    pub(crate) kl: Vec<Tensor>,
    /// Log-ratios to the sampler.
    pub(crate) log_ratio: Vec<Tensor>,
    /// Importance weights with their rows.
    pub(crate) weights: Vec<(i64, Tensor)>,
    /// Entropies. `None` after the first pass.
    pub(crate) entropy: Option<Tensor>,
    /// Value losses and flags of clipped values, with their first rows.
    pub(crate) values: Vec<(i64, Tensor, Tensor)>,
}

impl TokenMeasurements {
    /// Adds a term `[N]` to the loss of all tokens.
    pub(crate) fn add_to_loss(&mut self, term: &Tensor) -> Result<(), TchError> {
        self.loss = vec![Tensor::f_cat(&self.loss, 0)?.f_add(term)?];
        Ok(())
    }

    /// Adds the value losses of the tokens to the sums of their policies.
    pub(crate) fn add_values_to(
        &self,
        policy_indices: &[usize],
        sums: &mut [PassSums],
    ) -> Result<(), TchError> {
        let values = |tensor: &Tensor| Vec::<f64>::try_from(tensor.f_to_kind(Kind::Double)?);
        for (first, losses, clipped) in &self.values {
            for (offset, (loss, clipped)) in values(losses)?.into_iter().zip(values(clipped)?).enumerate() {
                sums[policy_indices[*first as usize + offset]].critic.add(loss, clipped != 0.0);
            }
        }
        Ok(())
    }

    /// Adds each token, with its importance weight, to the sums of its policy, in order, in double precision.
    /// `optimizer_steps` is the number of steps that each policy has taken.
    pub(crate) fn add_to(
        &self,
        policy_indices: &[usize],
        weights: &[Option<f64>],
        optimizer_steps: &[u32],
        sums: &mut [PassSums],
    ) -> Result<(), TchError> {
        let values = |tensor: Tensor| Vec::<f64>::try_from(tensor.f_to_kind(Kind::Double)?);
        let concatenated = |chunks: &[Tensor]| values(Tensor::f_cat(chunks, 0)?);
        let loss = concatenated(&self.loss)?;
        let kl = concatenated(&self.kl)?;
        let log_ratio = concatenated(&self.log_ratio)?;
        let clipped = concatenated(&self.clipped)?;
        let dual_clipped = concatenated(&self.dual_clipped)?;
        let entropy = self.entropy.as_ref().map(|entropy| values(entropy.shallow_clone())).transpose()?;
        for (row, &policy_index) in policy_indices.iter().enumerate() {
            let sums = &mut sums[policy_index];
            sums.tokens += 1;
            sums.loss += loss[row];
            sums.kl += kl[row];
            sums.clipped += clipped[row] as u64;
            sums.dual_clipped += dual_clipped[row] as u64;
            sums.log_ratios.push(log_ratio[row] as f32);
            if let Some(entropy) = &entropy {
                sums.entropy.add(entropy[row]);
            }
            // Before the first optimiser step, training and sampling should see the same distribution.
            if optimizer_steps[policy_index] == 0 {
                sums.gap.add(log_ratio[row].abs());
            }
        }
        self.add_values_to(policy_indices, sums)?;
        for (weight, &policy_index) in weights.iter().zip(policy_indices) {
            weight.iter().for_each(|weight| sums[policy_index].weights.add(*weight));
        }
        Ok(())
    }

    /// Returns the importance weight of each of some rows. `None` for those of policies without a correction.
    pub(crate) fn importance_weights(&self, rows: usize) -> Result<Vec<Option<f64>>, TchError> {
        let mut all = vec![None; rows];
        for (first, weights) in &self.weights {
            let own = Vec::<f64>::try_from(weights.f_to_kind(Kind::Double)?)?;
            let rows = all.iter_mut().skip(*first as usize);
            rows.zip(own).for_each(|(weight, own)| *weight = Some(own));
        }
        Ok(all)
    }
}
