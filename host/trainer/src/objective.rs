//! Loss of a policy's tokens under its objective: the policy loss, corrected for the distance to the sampler,
//! plus the KL penalty.
//!
//! ```text
//! L = w · policy loss + coefficient · KL(policy, reference)
//! ```
//!
//! The entropy bonus needs all logits and is part of [`crate::head`]. Its weights are those of the loss, as in
//! verl; TRL takes its mean over tokens in every case.

use pl_dsl::workflow::objective::{Correction, KlPlace, Objective, OldLogprobs, Ratio};
use tch::{TchError, Tensor};

use crate::correction::{CorrectionBounds, correction_weights};
use crate::kl::kl_divergence;
use crate::loss::{Clip, TokenInputs, TokenLoss, policy_loss};

/// Inputs of the loss of one policy's tokens: floats of one shape, one element per token.
#[derive(Debug, Clone, Copy)]
pub struct ObjectiveInputs<'a> {
    pub tokens: TokenInputs<'a>,
    /// Log-probabilities under the reference policy, if the loss has a KL term.
    pub reference: Option<&'a Tensor>,
    /// Importance weights that were computed before the update.
    pub correction: Option<&'a Tensor>,
    /// Coefficient of the KL term.
    pub kl_coefficient: f64,
}

/// Per-token results.
#[derive(Debug)]
pub struct ObjectiveLoss {
    /// Sum of all terms; differentiable with respect to `logp`.
    pub loss: Tensor,
    pub clipped: Tensor,
    pub dual_clipped: Tensor,
    /// Importance weights, if there is a correction.
    pub weights: Option<Tensor>,
}

/// Computes the loss of each token.
///
/// # Errors
/// If libtorch fails.
pub fn objective_loss(
    objective: &Objective,
    inputs: &ObjectiveInputs<'_>,
) -> Result<ObjectiveLoss, TchError> {
    let TokenInputs { logp, old_logp, sequence_log_ratio, .. } = inputs.tokens;
    let TokenLoss { mut loss, clipped, dual_clipped } =
        policy_loss(&inputs.tokens, objective.ratio, objective.trust_region, &Clip::from(objective))?;
    let weights = if corrects_current_policy(objective) {
        let log_ratio = logp.f_detach()?.f_sub(old_logp)?;
        let sequence = sequence_log_ratio.unwrap_or(&log_ratio);
        correction_weights(objective.correction, CorrectionBounds::from(objective), &log_ratio, sequence)?
    } else {
        inputs.correction.map(Tensor::shallow_clone)
    };
    if let Some(weights) = &weights {
        loss = loss.f_mul(weights)?;
    }
    if let Some(reference) = inputs.reference {
        let kl = kl_divergence(objective.kl_estimator, logp, reference)?;
        loss = loss.f_add(&kl.f_mul_scalar(inputs.kl_coefficient)?)?;
    }
    Ok(ObjectiveLoss { loss, clipped, dual_clipped, weights })
}

/// Returns true if the importance weights are those of the policy in training: without a ratio, nothing else
/// accounts for its distance from the sampler.
fn corrects_current_policy(objective: &Objective) -> bool {
    objective.ratio == Ratio::None && objective.old_logprobs == OldLogprobs::Sampler
}

/// Returns true if the loss of a token depends on the log-ratios of its whole completion.
pub(crate) fn needs_sequence_ratio(objective: &Objective) -> bool {
    let corrects_sequences =
        corrects_current_policy(objective) && objective.correction == Correction::SequenceMask;
    objective.ratio == Ratio::Sequence || corrects_sequences
}

/// Returns true if log-probabilities under the reference policy are needed.
pub(crate) fn needs_reference(objective: &Objective) -> bool {
    objective.kl != 0.0
}

/// Returns true if the KL term is part of the loss.
pub(crate) fn has_kl_in_loss(objective: &Objective) -> bool {
    needs_reference(objective) && objective.kl_in == KlPlace::Loss
}

/// Returns true if importance weights are computed before the update.
pub(crate) fn has_planned_correction(objective: &Objective) -> bool {
    objective.correction != Correction::None && needs_recomputed_logprobs(objective)
}

/// Returns true if log-probabilities under the policy before the update are needed.
pub(crate) fn needs_recomputed_logprobs(objective: &Objective) -> bool {
    objective.old_logprobs == OldLogprobs::Recompute
}

/// Returns true if completions without an advantage have a gradient too.
pub(crate) fn trains_without_advantage(objective: &Objective) -> bool {
    has_kl_in_loss(objective) || objective.entropy != 0.0
}

#[cfg(test)]
mod tests;
