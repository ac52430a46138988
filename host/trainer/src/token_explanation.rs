//! The gradient of one token, explained: the formulas of its objective with the recorded numbers filled in.
//!
//! The formulas are those of [`crate::loss`], [`crate::correction`] and [`crate::kl`], of one token and in double
//! precision. A test holds the result against the derivative that an update uses.

use pl_dsl::workflow::objective::{
    Advantage, Aggregation, Baseline, KlEstimator, Objective, OldLogprobs, Ratio, Scale, TrustRegion,
};
use pl_types::{Credit, TrainedCompletion};
use serde::Serialize;

use crate::advantage::EPSILON;
use crate::kl::kl_of_token;
use crate::loss::{LARGEST_MASK_RATIO, MAX_LOG_RATIO};
use crate::objective::has_kl_in_loss;

/// Explanation of the gradient of a token.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TokenExplanation {
    /// Quantities in the order in which they follow from each other.
    pub terms: Vec<Term>,
    /// Derivative of the mini-batch's loss with respect to the token's log-probability.
    pub derivative: f64,
    /// Effect of the gradient in a sentence.
    pub summary: String,
}

/// A quantity of an explanation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Term {
    pub name: &'static str,
    pub formula: String,
    /// The formula with numbers. Empty if there are none to fill in.
    pub numbers: String,
    pub value: f64,
}

impl Term {
    fn new(name: &'static str, formula: impl Into<String>, numbers: impl Into<String>, value: f64) -> Term {
        Term { name, formula: formula.into(), numbers: numbers.into(), value }
    }
}

/// Explains the gradient of a token in a pass of an update. `sampled` are the log-probabilities with which the
/// completion was sampled. Returns `None` if there is no such token.
pub fn explain_token(
    objective: &Objective,
    record: &TrainedCompletion,
    sampled: &[f32],
    token: usize,
) -> Option<TokenExplanation> {
    let number = |list: &[f32]| list.get(token).map(|value| f64::from(*value));
    let advantage = number(&record.advantages)?;
    let mut terms = vec![advantage_term(objective, record.credit, advantage)];
    let Some(logprobs) = record.logprobs.as_deref().filter(|_| !record.masked) else {
        let summary = if record.masked {
            "The completion is left out: none of its tokens has a gradient."
        } else {
            "No token of the completion has an advantage, so it was not computed: there is no gradient."
        };
        return Some(TokenExplanation { terms, derivative: 0.0, summary: summary.to_owned() });
    };
    let old = record.old_logprobs.as_deref().unwrap_or(sampled);
    let (logp, old_logp) = (number(logprobs)?, number(old)?);
    let log_ratio = match objective.ratio {
        Ratio::Sequence => {
            let gaps = logprobs.iter().zip(old).map(|(new, old)| f64::from(*new) - f64::from(*old));
            gaps.sum::<f64>() / logprobs.len().max(1) as f64
        }
        Ratio::Token | Ratio::None => logp - old_logp,
    };
    let policy = PolicyTerm::new(objective, advantage, Logps { logp, old_logp, log_ratio }, &mut terms);
    let mut slope = policy.slope;
    if let Some(weight) = record.importance_weights.as_deref().and_then(number) {
        terms.push(Term::new(
            "importance weight",
            "w from the distance to the sampler, a constant",
            "",
            weight,
        ));
        slope *= weight;
    }
    let kl = record.reference_logprobs.as_deref().filter(|_| has_kl_in_loss(objective)).and_then(number);
    if let Some(reference) = kl {
        slope += kl_term(objective, record.kl_coefficient, (logp, reference), &mut terms);
    }
    let weight = f64::from(record.loss_weight);
    let share = match objective.aggregation {
        Aggregation::TokenMean => "1 / tokens of the mini-batch",
        Aggregation::SequenceMean => "1 / (completions of the mini-batch · tokens of this one)",
        Aggregation::Constant => "1 / (completions of the mini-batch · divisor)",
    };
    terms.push(Term::new("share", share, "", weight));
    let derivative = slope * weight;
    let numbers = format!("{} · {}", show(slope), show(weight));
    terms.push(Term::new("gradient", "∂L / ∂ log p · share", numbers, derivative));
    let summary = summary(objective, &policy, record.loss_weight, derivative);
    Some(TokenExplanation { terms, derivative, summary })
}

fn summary(objective: &Objective, policy: &PolicyTerm, loss_weight: f32, derivative: f64) -> String {
    let mut summary = match (policy.bound.as_deref(), derivative) {
        _ if loss_weight == 0.0 => {
            "Only the critic is trained in this step: there is no gradient.".to_owned()
        }
        (Some(bound), 0.0) => format!("The token has no gradient: {bound}."),
        (_, 0.0) => "The advantage is 0: there is no gradient.".to_owned(),
        (_, slope) if slope < 0.0 => {
            "The update raises the log-probability of this token in this context.".to_owned()
        }
        _ => "The update lowers the log-probability of this token in this context.".to_owned(),
    };
    if objective.entropy != 0.0 {
        let bonus = show(objective.entropy);
        summary.push_str(&format!(
            " The entropy bonus ({bonus}) adds a gradient to all logits, which is not part of this number."
        ));
    }
    summary
}

/// Log-probabilities of a token, and its log-ratio or that of its completion.
#[derive(Clone, Copy)]
struct Logps {
    logp: f64,
    old_logp: f64,
    log_ratio: f64,
}

/// Part of the loss that has the advantage.
struct PolicyTerm {
    /// Derivative with respect to the log-probability.
    slope: f64,
    /// Reason for which the trust region has removed the gradient.
    bound: Option<String>,
}

impl PolicyTerm {
    fn new(objective: &Objective, advantage: f64, logps: Logps, terms: &mut Vec<Term>) -> PolicyTerm {
        let Logps { logp, old_logp, log_ratio } = logps;
        if objective.ratio == Ratio::None {
            let numbers = format!("{} · {}", show(-advantage), show(logp));
            terms.push(Term::new("L", "−A log p", numbers, -advantage * logp));
            return PolicyTerm { slope: -advantage, bound: None };
        }
        let ratio = log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp();
        let name =
            if objective.old_logprobs == OldLogprobs::Recompute { "log p_old" } else { "log p_sampled" };
        terms.push(match objective.ratio {
            Ratio::Sequence => Term::new(
                "ratio",
                format!("s = exp(mean over the completion of log p − {name})"),
                format!("exp({})", show(log_ratio)),
                ratio,
            ),
            _ => Term::new(
                "ratio",
                format!("r = exp(log p − {name})"),
                format!("exp({} − ({}))", show(logp), show(old_logp)),
                ratio,
            ),
        });
        // The bound on log-ratios has no gradient.
        let moving = if log_ratio.abs() > MAX_LOG_RATIO { 0.0 } else { 1.0 };
        let (low, high) = (1.0 - objective.clip_low, 1.0 + objective.clip_high);
        match objective.trust_region {
            TrustRegion::Clip => clip(objective, advantage, ratio, moving, terms),
            TrustRegion::Cispo => {
                let weight = ratio.clamp(low, high);
                let numbers = format!("−{} · {} · {}", show(weight), show(advantage), show(logp));
                let formula = format!("−clip(r, {}, {}) A log p", show(low), show(high));
                terms.push(Term::new("L", formula, numbers, -weight * advantage * logp));
                PolicyTerm { slope: -weight * advantage, bound: None }
            }
            TrustRegion::Mask => {
                let moved = logp.exp() - old_logp.exp();
                let dropped =
                    if advantage > 0.0 { moved > objective.clip_high } else { moved < -objective.clip_low };
                let weight = if dropped { 0.0 } else { ratio.min(LARGEST_MASK_RATIO) };
                let numbers = format!("−{} · {} · {}", show(weight), show(advantage), show(logp));
                let formula = "−min(r, 20) A log p, or 0 where p has moved too far";
                terms.push(Term::new("p − p_old", "exp(log p) − exp(log p_old)", "", moved));
                terms.push(Term::new("L", formula, numbers, -weight * advantage * logp));
                let bound = dropped.then(|| format!("its probability has moved by {}", show(moved)));
                PolicyTerm { slope: -weight * advantage, bound }
            }
            TrustRegion::None => {
                let numbers = format!("{} · {}", show(-advantage), show(ratio));
                terms.push(Term::new("L", "−A r", numbers, -advantage * ratio));
                PolicyTerm { slope: -advantage * ratio * moving, bound: None }
            }
        }
    }
}

/// PPO's clipped loss, with the dual clip if there is one.
fn clip(objective: &Objective, advantage: f64, ratio: f64, moving: f64, terms: &mut Vec<Term>) -> PolicyTerm {
    let (low, high) = (1.0 - objective.clip_low, 1.0 + objective.clip_high);
    let (plain, bounded) = (-advantage * ratio, -advantage * ratio.clamp(low, high));
    let mut loss = plain.max(bounded);
    let mut bound = (bounded > plain)
        .then(|| format!("its ratio {} is outside of {} to {}", show(ratio), show(low), show(high)));
    let mut formula = format!("max(−A r, −A clip(r, {}, {}))", show(low), show(high));
    let ceiling = -advantage * objective.dual_clip;
    if objective.dual_clip > 0.0 {
        formula.push_str(&format!(", at most −{} A where A < 0", show(objective.dual_clip)));
        if advantage < 0.0 && loss > ceiling {
            loss = ceiling;
            bound = Some(format!("its loss has reached the bound of {} for A < 0", show(ceiling)));
        }
    }
    terms.push(Term::new("L", formula, format!("max({}, {})", show(plain), show(bounded)), loss));
    let slope = if bound.is_some() { 0.0 } else { -advantage * ratio * moving };
    PolicyTerm { slope, bound }
}

/// Adds the KL term and returns its derivative.
fn kl_term(objective: &Objective, coefficient: f64, logps: (f64, f64), terms: &mut Vec<Term>) -> f64 {
    let (logp, reference) = logps;
    let gap = logp - reference;
    let d = gap.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO);
    let (formula, slope) = match objective.kl_estimator {
        KlEstimator::K1 => ("β d", 1.0),
        KlEstimator::K2 => ("β d² / 2", d),
        KlEstimator::K3 => ("β (exp(−d) − 1 + d)", -(-d).exp_m1()),
        KlEstimator::StraightThrough => ("β (exp(−d) − 1 + d), with the gradient of β d² / 2", d),
    };
    let value = coefficient * kl_of_token(objective.kl_estimator, logp, reference);
    let numbers = format!("β = {}, d = {} − ({})", show(coefficient), show(logp), show(reference));
    terms.push(Term::new("KL", format!("{formula}, d = log p − log p_reference"), numbers, value));
    if gap.abs() > MAX_LOG_RATIO { 0.0 } else { coefficient * slope }
}

fn advantage_term(objective: &Objective, credit: Option<Credit>, advantage: f64) -> Term {
    let whitened = if objective.scale == Scale::Batch { ", then whitened over the batch" } else { "" };
    let (formula, numbers) = match (objective.advantage, credit) {
        (Advantage::Group, Some(credit)) => {
            let Credit { value, group_size, group_mean, group_deviation } = credit;
            let others = (f64::from(group_size) * group_mean - value) / (f64::from(group_size) - 1.0);
            let (baseline, of) = match objective.baseline {
                Baseline::Mean => (Some(group_mean), "R − mean(G)"),
                Baseline::LeaveOneOut => (Some(others).filter(|_| group_size > 1), "R − mean(G without it)"),
                Baseline::None => (None, "R"),
            };
            let difference =
                baseline.map_or_else(|| show(value), |own| format!("{} − {}", show(value), show(own)));
            let size = format!("; G has {group_size} completions");
            match objective.scale {
                Scale::Group => (
                    format!("({of}) / (std(G) + 1e-6)"),
                    format!("({difference}) / {}{size}", show(group_deviation + EPSILON)),
                ),
                Scale::Batch | Scale::None => (of.to_owned(), format!("{difference}{size}")),
            }
        }
        (Advantage::Group, None) => ("R relative to its group".to_owned(), String::new()),
        (Advantage::Gae, _) => ("generalized advantage estimation with the critic".to_owned(), String::new()),
        (Advantage::Return, credit) => ("R".to_owned(), credit.map_or_else(String::new, |c| show(c.value))),
        (Advantage::Ema, credit) => {
            let numbers = credit
                .map_or_else(String::new, |c| format!("{} − {}", show(c.value), show(c.value - advantage)));
            (
                "R − moving average of the agent".to_owned(),
                if whitened.is_empty() { numbers } else { String::new() },
            )
        }
        (Advantage::Success, _) => ("1 if the agent succeeded, otherwise 0".to_owned(), String::new()),
    };
    Term::new("A", format!("{formula}{whitened}"), numbers, advantage)
}

/// Writes a number with four significant digits.
fn show(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor();
    if !(-4.0..6.0).contains(&magnitude) {
        return format!("{value:.3e}").replace('-', "−");
    }
    let text = format!("{value:.*}", (3.0 - magnitude).max(0.0) as usize);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    text.replace('-', "−")
}

#[cfg(test)]
mod tests;
