//! Critics in the updates of a learner.

use pl_dsl::workflow::Train;
use pl_model::{Config, Weights};

use super::*;
use crate::fixtures::{close, plain_logprobs, policy_to_train, same_bits, sampled_from, train};
use crate::learner::{Learner, LearnerSettings, NewPolicy};
use crate::metrics::UpdateMetrics;
use crate::plan::{Sample, TokenTargets, ValueTargets};

/// A policy without norm clipping, so that a first gradient can be read from the state of its optimiser.
fn new_policy(policy: usize, mut training: PolicyTraining) -> NewPolicy {
    training.optimizer.max_grad_norm = 0.0;
    policy_to_train(policy, training)
}

fn learner(
    config: &Config,
    weights: &Weights,
    training: PolicyTraining,
    adapter: &Adapter,
    token_budget: u32,
) -> Learner {
    let settings = LearnerSettings::new(
        &Train { token_budget: Some(token_budget), ..train() },
        config,
        tch::Device::Cpu,
        0,
        1,
    );
    let policies = vec![(new_policy(0, training), adapter.copy())];
    let learner = Learner::adapters(config.clone(), weights.shallow(), policies, settings).unwrap();
    if let Some(critic) = &learner.policies()[0].critic {
        set_head(&critic.head);
    }
    learner
}

/// Transitions with advantages and value targets that differ from token to token.
fn samples(config: &Config, weights: &Weights, adapter: &Adapter) -> Vec<(Transition, TokenTargets)> {
    [(5, 7), (2, 12), (9, 3), (4, 9)]
        .iter()
        .enumerate()
        .map(|(i, &(prompt, completion))| {
            let t = transition(0, i as u32, prompt, completion);
            let t = sampled_from(config, weights, Some(adapter), t, 0.1);
            let wave =
                |phase: f32| (0..completion).map(|k| (k as f32 * 1.9 + phase + i as f32).sin()).collect();
            let critic = Some(ValueTargets { values: wave(0.3), returns: wave(2.0) });
            (t, TokenTargets { advantages: wave(1.1), critic, ..TokenTargets::default() })
        })
        .collect()
}

fn run(learner: &mut Learner, step: u64, samples: &[(Transition, TokenTargets)]) -> UpdateMetrics {
    let samples = samples.iter().map(|(t, targets)| Sample { transition: t, targets: targets.clone() });
    let planned = learner.plan(step, samples.collect()).unwrap();
    learner.update(&planned, &mut || ()).unwrap().remove(0)
}

/// First gradients: AdamW's first moment after one step is a tenth of them.
fn gradients(optimizer: &AdamW) -> Vec<(String, Tensor)> {
    assert_eq!(optimizer.steps(), 1);
    let state = optimizer.state().into_iter();
    state.filter_map(|(name, t)| Some((name.strip_prefix("mean.")?.to_owned(), t * 10.0))).collect()
}

/// The value loss by autograd, over all completion tokens.
fn plain_value_loss(
    config: &Config,
    weights: &Weights,
    adapter: &Adapter,
    [weight, bias]: [&Tensor; 2],
    samples: &[(Transition, TokenTargets)],
) -> Tensor {
    let mut total = Tensor::zeros([], (Kind::Float, Device::Cpu));
    let mut tokens = 0;
    for (t, targets) in samples {
        let targets = targets.critic.as_ref().unwrap();
        let values = plain_hidden(config, weights, Some(adapter), t).mv(&weight.squeeze()) + bias;
        let (old, returns) = (Tensor::from_slice(&targets.values), Tensor::from_slice(&targets.returns));
        let bounded = &old + (&values - &old).clamp(-0.5, 0.5);
        let loss = (values - &returns).square().maximum(&(bounded - &returns).square());
        total += loss.sum(Kind::Float) * 0.5;
        tokens += t.completion.len();
    }
    total / tokens as f64
}

/// PPO's policy loss by autograd, over all completion tokens.
fn plain_policy_loss(
    config: &Config,
    weights: &Weights,
    adapter: &Adapter,
    samples: &[(Transition, TokenTargets)],
) -> Tensor {
    let mut total = Tensor::zeros([], (Kind::Float, Device::Cpu));
    let mut tokens = 0;
    for (t, targets) in samples {
        let advantages = Tensor::from_slice(&targets.advantages);
        let logp = plain_logprobs(config, weights, Some(adapter), t);
        let ratio = (logp - Tensor::from_slice(&t.logprobs)).exp();
        let loss = (-&advantages * &ratio).maximum(&(-&advantages * ratio.clamp(0.8, 1.2)));
        total += loss.sum(Kind::Float);
        tokens += t.completion.len();
    }
    total / tokens as f64
}

#[test]
fn gradients_of_an_update_equal_plain_autograd() {
    let config = config(true);
    let weights = weights(&config, 23);
    let adapter = adapter(&config, 5);
    let samples = samples(&config, &weights, &adapter);
    for on in [CriticBase::Policy, CriticBase::Shared] {
        // Several packed batches, and one.
        for token_budget in [1, 24, 1000] {
            let mut learner = learner(&config, &weights, ppo(critic(on)), &adapter, token_budget);
            let double = double_head(on);
            let weight = double.weight.to_kind(Kind::Float).set_requires_grad(true);
            let bias = double.bias.to_kind(Kind::Float).set_requires_grad(true);
            let reference = adapter.copy();
            reference.set_trainable(true);
            let value_loss = plain_value_loss(&config, &weights, &reference, [&weight, &bias], &samples);
            let policy_loss = plain_policy_loss(&config, &weights, &reference, &samples);
            let share = if on == CriticBase::Shared { 0.3 } else { 0.0 };
            (policy_loss + &value_loss * share).backward();
            let from_policy: Vec<Tensor> =
                reference.parameters().iter().map(|(_, parameter)| parameter.grad().copy()).collect();
            let value_loss = plain_value_loss(&config, &weights, &adapter, [&weight, &bias], &samples);
            let _ = (weight.grad().zero_(), bias.grad().zero_());
            value_loss.backward();

            let metrics = run(&mut learner, 1, &samples);
            let policy = &learner.policies()[0];
            for ((name, got), expected) in gradients(&policy.optimizer).iter().zip(&from_policy) {
                assert!(expected.abs().max().double_value(&[]) > 1e-5, "{name} has no gradient");
                close(got, expected, 3e-6);
            }
            let head = gradients(&policy.critic.as_ref().unwrap().optimizer);
            close(&head[0].1, &weight.grad(), 1e-5);
            close(&head[1].1, &bias.grad(), 1e-5);
            let critic = metrics.critic.unwrap();
            assert!((critic.value_loss - value_loss.double_value(&[])).abs() < 1e-5, "{critic:?}");
            assert!(critic.value_clip_fraction > 0.0 && critic.value_clip_fraction < 1.0);
            assert_eq!(critic.lr, 1e-2);
        }
    }
}

/// The loss of the policy does not depend on a critic that only reads its hidden states.
#[test]
fn a_critic_on_the_policy_leaves_its_gradient_as_it_is() {
    let config = config(true);
    let weights = weights(&config, 24);
    let adapter = adapter(&config, 6);
    let samples = samples(&config, &weights, &adapter);
    let training = ppo(critic(CriticBase::Policy));
    let mut with = learner(&config, &weights, training.clone(), &adapter, 1000);
    let mut without = training;
    (without.critic, without.objective.advantage) = (None, crate::fixtures::objective().advantage);
    let mut without = learner(&config, &weights, without, &adapter, 1000);
    let bare: Vec<(Transition, TokenTargets)> = samples
        .iter()
        .map(|(t, targets)| (t.clone(), TokenTargets { critic: None, ..targets.clone() }))
        .collect();
    assert!(run(&mut with, 1, &samples).critic.is_some());
    assert!(run(&mut without, 1, &bare).critic.is_none());
    let parameters = |learner: &Learner| learner.policies()[0].adapter.as_ref().unwrap().parameters();
    assert!(same_bits(&parameters(&with), &parameters(&without)));
}

#[test]
fn a_warm_up_trains_the_critic_alone() {
    let config = config(true);
    let weights = weights(&config, 25);
    let adapter = adapter(&config, 7);
    let samples = samples(&config, &weights, &adapter);
    for on in [CriticBase::Policy, CriticBase::Shared] {
        let mut training = ppo(CriticSettings { warmup: 2, ..critic(on) });
        training.freeze = 1;
        let mut learner = learner(&config, &weights, training, &adapter, 30);
        for step in [2, 3] {
            let before = learner.policies()[0].critic.as_ref().unwrap().head.weight.copy();
            let metrics = run(&mut learner, step, &samples);
            let policy = &learner.policies()[0];
            assert_eq!((policy.version, policy.optimizer.steps(), metrics.optimizer_steps), (0, 0, 0));
            assert!(same_bits(&policy.adapter.as_ref().unwrap().parameters(), &adapter.parameters()));
            let critic = policy.critic.as_ref().unwrap();
            assert!(critic.optimizer.steps() == step - 1 && !critic.head.weight.equal(&before));
        }
        run(&mut learner, 4, &samples);
        let policy = &learner.policies()[0];
        assert_eq!((policy.version, policy.optimizer.steps()), (1, 1));
        if on == CriticBase::Policy {
            // Nothing of the warm-up was left in the policy's gradient.
            let mut fresh = self::learner(&config, &weights, ppo(critic(on)), &adapter, 30);
            run(&mut fresh, 4, &samples);
            let expected = gradients(&fresh.policies()[0].optimizer);
            assert!(same_bits(&gradients(&policy.optimizer), &expected));
        }
    }
}

/// A fully trained policy shares its weights with the critic.
#[test]
fn a_critic_shares_the_hidden_states_of_full_weights() {
    let config = config(false);
    let start = weights(&config, 26);
    let adapter = adapter(&config, 8);
    let samples = samples(&config, &start, &adapter);
    let run_with = |training: PolicyTraining| {
        let settings = LearnerSettings::new(&train(), &config, tch::Device::Cpu, 0, 1);
        let new = new_policy(0, training);
        let mut learner =
            Learner::full(config.clone(), start.copy(), pl_types::Dtype::F32, new, settings).unwrap();
        let critic = learner.policies()[0].critic.as_ref().unwrap();
        let _ = no_grad(|| critic.head.weight.shallow_clone().fill_(0.1));
        run(&mut learner, 1, &samples);
        learner
    };
    let read = run_with(ppo(critic(CriticBase::Policy)));
    let shared = run_with(ppo(critic(CriticBase::Shared)));
    let (a, b) = (gradients(&read.policies()[0].optimizer), gradients(&shared.policies()[0].optimizer));
    let differ = a.iter().zip(&b).filter(|((_, a), (_, b))| !a.equal(b)).count();
    // The output matrix is the only one behind the hidden states.
    assert_eq!(differ, a.len() - 1);
    let warm = run_with(ppo(CriticSettings { warmup: 1, ..critic(CriticBase::Shared) }));
    assert!(same_bits(&warm.base().working().parameters(), &start.parameters()));
}
