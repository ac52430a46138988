//! Per-token inputs and measurements of a packed batch, one row per completion token.

use tch::{Device, Kind, TchError, Tensor};

use crate::head::SampledSupport;
use crate::metrics::MetricSums;
use crate::plan::{PlannedSequence, Sample};

/// Columns of the loss's inputs, with one element per completion token.
#[derive(Default)]
pub(crate) struct TokenColumns {
    /// Index of the policy within the learner.
    pub(crate) policy_indices: Vec<usize>,
    /// Row of the packed batch whose hidden state predicts the token.
    rows: Vec<i64>,
    ids: Vec<i64>,
    /// Log-probabilities at the time of sampling.
    old_logps: Vec<f32>,
    advantages: Vec<f32>,
    /// Weights in the mean over the policy's tokens.
    loss_weights: Vec<f32>,
    temperatures: Vec<f32>,
    pub(crate) support: SampledSupport,
}

/// The columns on the model's device, each `[N]`.
pub(crate) struct TokenTensors {
    /// int64, as are the ids.
    pub(crate) rows: Tensor,
    pub(crate) ids: Tensor,
    pub(crate) old_logps: Tensor,
    pub(crate) advantages: Tensor,
    pub(crate) loss_weights: Tensor,
    /// `None` if all temperatures are 1.
    pub(crate) temperatures: Option<Tensor>,
}

impl TokenColumns {
    /// Appends the completion of a sequence. `rows` are the packed rows of all its tokens, and `divisor` is
    /// the number of completion tokens of its policy in the mini-batch.
    pub(crate) fn push(
        &mut self,
        sequence: &PlannedSequence,
        sample: &Sample<'_>,
        rows: &[usize],
        divisor: usize,
    ) {
        let PlannedSequence { policy_index, targets, prompt, .. } = *sequence;
        let Sample { transition, advantage } = *sample;
        self.policy_indices.extend(std::iter::repeat_n(policy_index, targets));
        self.rows.extend(rows[prompt - 1..].iter().map(|row| *row as i64));
        self.ids.extend(transition.completion.iter().map(|&id| i64::from(id)));
        self.old_logps.extend_from_slice(&transition.logprobs);
        self.advantages.extend(std::iter::repeat_n(advantage as f32, targets));
        self.loss_weights.extend(std::iter::repeat_n(1.0 / divisor as f32, targets));
        // Greedy completions have log-probabilities of the plain softmax.
        let temperature = if transition.temperature == 0.0 { 1.0 } else { transition.temperature as f32 };
        self.temperatures.extend(std::iter::repeat_n(temperature, targets));
        match &transition.support {
            Some(lists) => lists.iter().for_each(|ids| self.support.push(ids)),
            None => (0..targets).for_each(|_| self.support.push(&[])),
        }
    }

    /// Copies the columns to a device.
    pub(crate) fn to_tensors(&self, device: Device) -> Result<TokenTensors, TchError> {
        let floats = |values: &[f32]| Tensor::f_from_slice(values)?.f_to_device(device);
        let integers = |values: &[i64]| Tensor::f_from_slice(values)?.f_to_device(device);
        let plain = self.temperatures.iter().all(|&temperature| temperature == 1.0);
        Ok(TokenTensors {
            rows: integers(&self.rows)?,
            ids: integers(&self.ids)?,
            old_logps: floats(&self.old_logps)?,
            advantages: floats(&self.advantages)?,
            loss_weights: floats(&self.loss_weights)?,
            temperatures: if plain { None } else { Some(floats(&self.temperatures)?) },
        })
    }
}

/// Per-token measurements of a pass, in chunks.
#[derive(Default)]
pub(crate) struct TokenMeasurements {
    pub(crate) loss: Vec<Tensor>,
    pub(crate) clipped: Vec<Tensor>,
    pub(crate) dual_clipped: Vec<Tensor>,
    pub(crate) kl: Vec<Tensor>,
    pub(crate) gap: Vec<Tensor>,
    pub(crate) entropy: Option<Tensor>,
}

impl TokenMeasurements {
    /// Adds each token to the sums of its policy, in order, in double precision.
    pub(crate) fn add_to(&self, policy_indices: &[usize], sums: &mut [MetricSums]) -> Result<(), TchError> {
        let values = |tensor: Tensor| Vec::<f64>::try_from(tensor.f_to_kind(Kind::Double)?);
        let concatenated = |chunks: &[Tensor]| values(Tensor::f_cat(chunks, 0)?);
        let loss = concatenated(&self.loss)?;
        let kl = concatenated(&self.kl)?;
        let gap = concatenated(&self.gap)?;
        let clipped = concatenated(&self.clipped)?;
        let dual_clipped = concatenated(&self.dual_clipped)?;
        let entropy = self.entropy.as_ref().map(|entropy| values(entropy.shallow_clone())).transpose()?;
        for (row, &policy_index) in policy_indices.iter().enumerate() {
            let sums = &mut sums[policy_index];
            sums.passed_tokens += 1;
            sums.loss += loss[row];
            sums.kl += kl[row];
            sums.clipped += clipped[row] as u64;
            sums.dual_clipped += dual_clipped[row] as u64;
            if let Some(entropy) = &entropy {
                sums.entropy.add(entropy[row]);
            }
            // Before the first optimiser step, training and sampling should see the same distribution.
            if sums.optimizer_steps + sums.skipped_steps == 0 {
                sums.gap.add(gap[row]);
            }
        }
        Ok(())
    }
}
