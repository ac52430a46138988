//! Losses written out for single numbers in f64, without tensors and without automatic differentiation.
//!
//! Quantities that a loss holds constant (`start`, ratios in weights, masks) are those of the weights before the update, so
//! that a difference of two losses sees the same derivative as the trainer.

use pl_dsl::workflow::objective::{
    Aggregation, Correction, KlEstimator, Objective, OldLogprobs, Ratio, TrustRegion,
};

/// Constants of a completion's token.
pub struct TokenConstants {
    pub advantage: f64,
    /// Log-probability under the weights before the update.
    pub start: f64,
    /// Log-probability that ratios are relative to.
    pub old: f64,
    /// Mean of `start - old` over the completion.
    pub mean_log_ratio: f64,
    pub reference: Option<f64>,
    pub correction: Option<f64>,
}

/// Loss of a token whose log-probability is `logp`, without the entropy bonus.
pub fn token_loss(objective: &Objective, logp: f64, token: &TokenConstants) -> f64 {
    let loss = policy_loss(objective, logp, token) * weight(objective, token);
    match token.reference {
        Some(reference) => loss + objective.kl * divergence(objective.kl_estimator, logp, reference, token),
        None => loss,
    }
}

fn policy_loss(objective: &Objective, logp: f64, token: &TokenConstants) -> f64 {
    let TokenConstants { advantage, start, old, mean_log_ratio, .. } = *token;
    let (low, high) = (1.0 - objective.clip_low, 1.0 + objective.clip_high);
    let log_ratio = |logp: f64| match objective.ratio {
        Ratio::Sequence => logp - start + mean_log_ratio,
        Ratio::Token | Ratio::None => logp - old,
    };
    if objective.ratio == Ratio::None {
        return -advantage * logp;
    }
    let (ratio, constant) = (log_ratio(logp).exp(), log_ratio(start).exp());
    match objective.trust_region {
        TrustRegion::None => -advantage * ratio,
        TrustRegion::Clip => {
            let loss = (-advantage * ratio).max(-advantage * ratio.clamp(low, high));
            let bounds = advantage < 0.0 && objective.dual_clip > 0.0;
            if bounds { loss.min(-advantage * objective.dual_clip) } else { loss }
        }
        TrustRegion::Cispo => -constant.clamp(low, high) * advantage * logp,
        TrustRegion::Mask => {
            let moved = start.exp() - old.exp();
            let is_dropped =
                if advantage > 0.0 { moved > objective.clip_high } else { moved < -objective.clip_low };
            if is_dropped { 0.0 } else { -constant.min(20.0) * advantage * logp }
        }
    }
}

/// Importance weight of a token.
fn weight(objective: &Objective, token: &TokenConstants) -> f64 {
    let Objective { correction_low: low, correction_high: high, .. } = *objective;
    if objective.ratio != Ratio::None || objective.old_logprobs != OldLogprobs::Sampler {
        return token.correction.unwrap_or(1.0);
    }
    let ratio = (token.start - token.old).exp();
    let is_kept = |ratio: f64| f64::from((low..=high).contains(&ratio));
    match objective.correction {
        Correction::None => 1.0,
        Correction::Tis => ratio.min(high),
        Correction::Icepop => ratio * is_kept(ratio),
        Correction::SequenceMask => is_kept(token.mean_log_ratio.exp()),
    }
}

fn divergence(estimator: KlEstimator, logp: f64, reference: f64, token: &TokenConstants) -> f64 {
    let d = logp - reference;
    let k3 = |d: f64| (-d).exp() - 1.0 + d;
    match estimator {
        KlEstimator::K1 => d,
        KlEstimator::K2 => d * d / 2.0,
        KlEstimator::K3 => k3(d),
        KlEstimator::StraightThrough => {
            let constant = token.start - reference;
            k3(constant) + (d * d - constant * constant) / 2.0
        }
    }
}

/// Value loss of a token.
pub fn value_loss(value: f64, old: f64, target: f64, clip: f64) -> f64 {
    let square = |value: f64| (value - target).powi(2) / 2.0;
    if clip == 0.0 { square(value) } else { square(value).max(square(value.clamp(old - clip, old + clip))) }
}

/// Weight of a token of a completion of `tokens` tokens in the mean over `completions` with `all` tokens. `divisor` is
/// that of `constant`.
pub fn mean_weight(
    aggregation: Aggregation,
    divisor: u32,
    tokens: usize,
    (completions, all): (usize, usize),
) -> f64 {
    let (tokens, completions, all) = (tokens as f64, completions as f64, all as f64);
    match aggregation {
        Aggregation::TokenMean => 1.0 / all,
        Aggregation::SequenceMean => 1.0 / (completions * tokens),
        Aggregation::Constant => 1.0 / (completions * f64::from(divisor)),
    }
}
