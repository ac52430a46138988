//! Finite differences: the gradients that learners compute, of policies and critics, against differences of losses
//! written out without automatic differentiation.

use super::losses::{TokenConstants, mean_weight, token_loss, value_loss};
use super::*;
use crate::fixtures::{plain_distributions, plain_hidden, plain_logprobs};
use crate::objective::has_kl_in_loss;

/// Half of the distance between the two points of a difference.
const STEP: f64 = 1e-5;

/// A learner with one policy, and the constants of its update.
struct Case<'a> {
    learner: &'a Learner,
    planned: &'a PlannedUpdate<'a>,
    /// Per sample, log-probabilities before the update.
    start: Vec<Vec<f64>>,
}

/// Sums of the losses of all tokens at the learner's current weights: of the policy, and of its critic.
fn losses(case: &Case<'_>) -> [f64; 2] {
    let policy = &case.learner.policies()[0];
    let objective = &policy.training.objective;
    let kept = || case.planned.samples.iter().zip(&case.start).filter(|(sample, _)| !sample.targets.masked);
    let completions = kept().count();
    let all = kept().map(|(sample, _)| sample.transition.completion.len()).sum();
    let mut sums = [0.0; 2];
    for (sample, start) in kept() {
        let (t, targets) = (sample.transition, &sample.targets);
        let logprobs = logprobs(case.learner, t);
        let weight = mean_weight(objective.aggregation, policy.divisor, logprobs.len(), (completions, all));
        let old = targets.old_logprobs.as_ref().unwrap_or(&t.logprobs);
        let gaps: Vec<f64> = start.iter().zip(old).map(|(start, old)| start - f64::from(*old)).collect();
        let mean_log_ratio = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let reference = targets.reference_logprobs.as_ref().filter(|_| has_kl_in_loss(objective));
        for (i, logp) in logprobs.iter().enumerate() {
            let token = TokenConstants {
                advantage: targets.advantages[i].into(),
                start: start[i],
                old: old[i].into(),
                mean_log_ratio,
                reference: reference.map(|own| own[i].into()),
                correction: targets.correction.as_ref().map(|own| own[i].into()),
            };
            sums[0] += weight * token_loss(objective, *logp, &token);
        }
        if objective.entropy != 0.0 {
            sums[0] -= weight * objective.entropy * entropy(case.learner, t);
        }
        if let (Some(critic), Some(targets)) = (&policy.critic, &targets.critic) {
            let columns = targets.values.iter().zip(&targets.returns);
            for (value, (old, target)) in values(case.learner, t).into_iter().zip(columns) {
                let clip = critic.settings().clip;
                sums[1] += weight * value_loss(value, f64::from(*old), f64::from(*target), clip);
            }
        }
    }
    sums
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    Vec::try_from(tensor.to_kind(Kind::Double)).unwrap()
}

fn logprobs(learner: &Learner, t: &Transition) -> Vec<f64> {
    let adapter = learner.policies()[0].adapter.as_ref();
    numbers(&plain_logprobs(&learner.config, learner.base.working(), adapter, t))
}

fn entropy(learner: &Learner, t: &Transition) -> f64 {
    let adapter = learner.policies()[0].adapter.as_ref();
    let log = plain_distributions(&learner.config, learner.base.working(), adapter, t);
    -(log.exp() * log).sum(Kind::Double).double_value(&[])
}

/// Values of a completion's tokens.
fn values(learner: &Learner, t: &Transition) -> Vec<f64> {
    let policy = &learner.policies()[0];
    let critic = policy.critic.as_ref().unwrap();
    let (config, weights) = (&learner.config, learner.base.working());
    let hidden = match (critic.own_model(), critic.learner_adapter()) {
        (Some(model), _) => plain_hidden(model.config(), model.weights(), None, t),
        (None, Some(adapter)) => plain_hidden(config, weights, Some(adapter), t),
        (None, None) => plain_hidden(config, weights, policy.adapter.as_ref(), t),
    };
    let [(_, weight), (_, bias)] = critic.head_parameters().try_into().unwrap();
    numbers(&(hidden.matmul(&weight.tr()) + bias).squeeze_dim(1))
}

/// A direction in which parameters are moved, of the same shapes; no entry is 0.
fn direction(parameters: &[(String, Tensor)], phase: f64) -> Vec<Tensor> {
    let wave = |(index, (_, parameter)): (usize, &(String, Tensor))| {
        let count = parameter.numel() as i64;
        let places = Tensor::arange(count, (Kind::Double, tch::Device::Cpu)) * 2.3 + phase + index as f64;
        places.sin().view_as(parameter)
    };
    parameters.iter().enumerate().map(wave).collect()
}

/// Derivatives of both losses in a direction, from the losses at two points.
fn difference(case: &Case<'_>, parameters: &[(String, Tensor)], direction: &[Tensor]) -> [f64; 2] {
    let before: Vec<Tensor> = parameters.iter().map(|(_, parameter)| parameter.copy()).collect();
    let at = |distance: f64| {
        for (((_, parameter), before), direction) in parameters.iter().zip(&before).zip(direction) {
            parameter.shallow_clone().copy_(&(before + direction * distance));
        }
        losses(case)
    };
    let (high, low) = (at(STEP), at(-STEP));
    at(0.0);
    [0, 1].map(|loss| (high[loss] - low[loss]) / (2.0 * STEP))
}

fn along(gradients: &[(String, Tensor)], direction: &[Tensor]) -> f64 {
    let own = gradients.iter().zip(direction);
    own.map(|((_, gradient), direction)| (gradient * direction).sum(Kind::Double).double_value(&[])).sum()
}

#[test]
fn gradients_of_all_objectives_and_critics_are_differences_of_losses() {
    for (name, own) in cases() {
        let no_grad = tch::no_grad_guard();
        tch::set_num_threads(1);
        let (mut learner, transitions) = learner(std::slice::from_ref(&name), WHOLE, Format(Kind::Double));
        let mut sorted: Vec<&Transition> = transitions.iter().collect();
        sorted.sort_by(|a, b| a.key.cmp(&b.key));
        let outcomes: Vec<_> = sorted.into_iter().map(|t| (t, TurnOutcome::from(t))).collect();
        let planned = learner.prepare(1, &outcomes, None).unwrap();
        let start = planned.samples.iter().map(|sample| logprobs(&learner, sample.transition)).collect();
        let case = Case { learner: &learner, planned: &planned, start };
        let policy = &learner.policies()[0];
        let policy_parameters = policy.adapter.as_ref().unwrap().parameters();
        let critic_parameters = policy.critic.as_ref().map(|critic| {
            let network = critic.network_parameters();
            network.into_iter().chain(critic.head_parameters()).collect::<Vec<_>>()
        });
        // Share of the value loss in the gradient of the policy.
        let share = match (own.critic, &policy.critic) {
            (Some(CriticBase::Shared), Some(critic)) => critic.settings().weight,
            _ => 0.0,
        };
        let mut expected = Vec::new();
        for phase in [0.4, 1.7] {
            let towards = direction(&policy_parameters, phase);
            let [policy, value] = difference(&case, &policy_parameters, &towards);
            expected.push((towards, policy + share * value, false));
            if let Some(parameters) = &critic_parameters {
                let towards = direction(parameters, phase);
                let [_, value] = difference(&case, parameters, &towards);
                expected.push((towards, value, true));
            }
        }
        drop(no_grad);
        learner.update(&planned, &mut || {}).unwrap();
        let gradients = gradients(&learner.policies()[0]);
        let (policy, critic) = gradients.split_at(policy_parameters.len());
        for (towards, expected, is_critic) in expected {
            let own = if is_critic { critic } else { policy };
            let got = along(own, &towards);
            let size = along(own, &own.iter().map(|(_, gradient)| gradient.sign()).collect::<Vec<_>>());
            assert!(size > 0.0 && expected.abs() > 1e-4 * size, "{name}: {expected} of {size}");
            assert!(
                (got - expected).abs() < 1e-6 * size,
                "{name}, critic {is_critic}: {got} {expected} of {size}"
            );
        }
    }
}
