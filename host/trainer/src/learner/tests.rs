//! A learner's gradients compared with plain autograd, their independence of packing, and the effect of
//! training.

use pl_model::Projection;
use pl_types::Transition;

use pl_dsl::workflow::PolicyTraining;
use pl_dsl::workflow::objective::{CriticBase, Optimizer};
use tch::{Kind, Tensor};

use super::*;
use crate::fixtures::{
    VOCABULARY, adapter, close, config, critic, optimizer, plain_distributions, plain_logprobs,
    policy_to_train, ppo, same_bits, sampled_from, train, training, transition, weights,
};
use crate::plan::Sample;
use crate::preparation::TurnOutcome;

fn settings(token_budget: u32) -> LearnerSettings {
    LearnerSettings::new(
        &Train { token_budget: Some(token_budget), ..train() },
        &config(true),
        tch::Device::Cpu,
        0,
        1,
    )
}

/// A policy without norm clipping, so that the first step's gradient can be read from the optimiser's state.
fn new_policy(policy: usize) -> NewPolicy {
    let optimizer = Optimizer { learning_rate: 1e-3, max_grad_norm: 0.0, ..optimizer() };
    let training = PolicyTraining { optimizer, ..training() };
    policy_to_train(policy, training)
}

/// Gradient of a policy's first step: AdamW's first moment after one step is a tenth of it.
fn gradients(policy: &TrainedPolicy) -> Vec<(String, Tensor)> {
    assert_eq!(policy.optimizer.steps(), 1);
    let state = policy.optimizer.state().into_iter();
    state.filter_map(|(name, t)| Some((name.strip_prefix("mean.")?.to_owned(), t * 10.0))).collect()
}

fn run(learner: &mut Learner, samples: &[(Transition, f64)]) -> Vec<UpdateMetrics> {
    let samples = samples.iter().map(|(transition, advantage)| Sample::new(transition, *advantage)).collect();
    let planned = learner.plan(0, samples).unwrap();
    let mut batches = 0;
    let metrics = learner.update(&planned, &mut || batches += 1).unwrap();
    assert_eq!(batches, planned.batches());
    metrics
}

/// Transitions of one policy with log-probabilities near its own, advantages of both signs and zero, and
/// various temperatures.
fn samples(
    config: &Config,
    weights: &Weights,
    adapter: Option<&Adapter>,
    policy: u32,
) -> Vec<(Transition, f64)> {
    let shapes = [(5, 7, 1.3), (2, 12, -0.8), (9, 3, 0.0), (4, 9, -1.6), (1, 5, 0.6)];
    shapes
        .iter()
        .enumerate()
        .map(|(i, &(prompt, completion, advantage))| {
            let mut t = transition(policy, i as u32, prompt, completion);
            t.temperature = [1.0, 0.7, 1.0, 1.4, 1.0][i];
            (sampled_from(config, weights, adapter, t, 0.4), advantage)
        })
        .collect()
}

/// An independent implementation of the loss, over all completion tokens of all transitions.
fn plain_loss(
    config: &Config,
    weights: &Weights,
    adapter: Option<&Adapter>,
    samples: &[(Transition, f64)],
) -> Tensor {
    let mut tokens = 0;
    let mut total = Tensor::zeros([], (Kind::Float, tch::Device::Cpu));
    for (t, advantage) in samples {
        let ratio = (plain_logprobs(config, weights, adapter, t) - Tensor::from_slice(&t.logprobs)).exp();
        let plain = &ratio * -*advantage;
        let bounded = ratio.clamp(0.8, 1.28) * -*advantage;
        let mut loss = plain.maximum(&bounded);
        if *advantage < 0.0 {
            loss = loss.clamp_max(-*advantage * 3.0);
        }
        total += loss.sum(Kind::Float);
        tokens += t.completion.len();
    }
    total / tokens as f64
}

#[test]
fn full_gradients_equal_plain_autograd() {
    for tied in [true, false] {
        let config = config(tied);
        let weights = weights(&config, 5);
        let samples = samples(&config, &weights, None, 0);

        let reference = weights.copy();
        reference.set_trainable(true);
        let loss = plain_loss(&config, &reference, None, &samples);
        loss.backward();

        // 20 tokens: several packed batches, and one sequence near the budget.
        let mut learner =
            Learner::full(config.clone(), weights.copy(), Dtype::F32, new_policy(0), settings(20)).unwrap();
        let metrics = run(&mut learner, &samples);
        assert!((metrics[0].loss - loss.double_value(&[])).abs() < 1e-5);
        let got = gradients(&learner.policies()[0]);
        let expected = reference.parameters();
        assert_eq!(got.len(), expected.len());
        for ((name, gradient), (expected_name, parameter)) in got.iter().zip(&expected) {
            assert_eq!(name, expected_name);
            assert!(parameter.grad().abs().max().double_value(&[]) > 1e-4, "{name} has no gradient");
            close(gradient, &parameter.grad(), 3e-6);
        }
    }
}

#[test]
fn adapters_in_one_pass_get_the_gradients_of_separate_training() {
    let config = config(true);
    let weights = weights(&config, 6);
    let adapters = [adapter(&config, 1), adapter(&config, 2)];
    let samples: Vec<_> = adapters
        .iter()
        .enumerate()
        .map(|(i, adapter)| samples(&config, &weights, Some(adapter), i as u32))
        .collect();

    let policies = adapters.iter().enumerate();
    let policies = policies.map(|(i, adapter)| (new_policy(i), adapter.copy())).collect();
    let mut joint = Learner::adapters(config.clone(), weights.shallow(), policies, settings(48)).unwrap();
    // Sorted by key: the two policies' transitions alternate.
    let mut mixed: Vec<_> = samples.concat();
    mixed.sort_by(|a, b| a.0.key.cmp(&b.0.key));
    let joint_metrics = run(&mut joint, &mixed);

    for (i, adapter) in adapters.iter().enumerate() {
        let policy = vec![(new_policy(i), adapter.copy())];
        let mut alone = Learner::adapters(config.clone(), weights.shallow(), policy, settings(48)).unwrap();
        let metrics = run(&mut alone, &samples[i]);
        let (got, expected) = (gradients(&joint.policies()[i]), gradients(&alone.policies()[0]));
        for ((name, got), (_, expected)) in got.iter().zip(&expected) {
            assert!(expected.abs().max().double_value(&[]) > 1e-5, "{name} has no gradient");
            close(got, expected, 3e-6);
        }
        assert_eq!(joint_metrics[i].tokens, metrics[0].tokens);
        assert!((joint_metrics[i].loss - metrics[0].loss).abs() < 1e-6);
        assert!((joint_metrics[i].grad_norm - metrics[0].grad_norm).abs() < 1e-6);

        // Both equal plain autograd, too.
        let reference = adapter.copy();
        reference.set_trainable(true);
        plain_loss(&config, &weights, Some(&reference), &samples[i]).backward();
        for ((_, got), (_, parameter)) in got.iter().zip(reference.parameters()) {
            close(got, &parameter.grad(), 3e-6);
        }
    }
}

/// Two groups of four transitions with one prompt each. Completions of a group share prefixes, some of them
/// long enough to be packed once.
fn siblings(config: &Config, weights: &Weights, adapter: &Adapter, policy: u32) -> Vec<(Transition, f64)> {
    (0..8)
        .map(|i: u32| {
            let mut t = transition(policy, i, 1, 4 + i as usize);
            let group = transition(policy, 20 + i / 4, 30, 18);
            t.prompt = group.prompt;
            let agreed = if i.is_multiple_of(2) { 18 } else { 3 };
            t.completion.splice(0..0, group.completion[..agreed].iter().copied());
            let advantage = [1.2, -0.7, 0.4, -1.1][i as usize % 4];
            (sampled_from(config, weights, Some(adapter), t, 0.3), advantage)
        })
        .collect()
}

#[test]
fn shared_prompts_give_the_gradients_of_separate_prompts() {
    let config = config(true);
    let weights = weights(&config, 14);
    let adapters = [adapter(&config, 10), adapter(&config, 11)];
    let samples: Vec<_> = (0..2).map(|i| siblings(&config, &weights, &adapters[i], i as u32)).collect();
    let mixed: Vec<_> = samples.concat();
    let apart: usize = mixed.iter().map(|(t, _)| t.prompt.len() + t.completion.len() - 1).sum();
    // One batch, several batches with split families, and gradient checkpointing.
    for (budget, checkpointing, most) in [(1000, false, 0.52), (90, false, 0.75), (1000, true, 0.52)] {
        let checkpointing = if checkpointing { Checkpointing::On } else { Checkpointing::Off };
        let settings = LearnerSettings { checkpointing, ..settings(budget) };
        let policies = adapters.iter().enumerate();
        let policies = policies.map(|(i, adapter)| (new_policy(i), adapter.copy())).collect();
        let mut learner = Learner::adapters(config.clone(), weights.shallow(), policies, settings).unwrap();
        let all = mixed.iter().map(|(transition, advantage)| Sample::new(transition, *advantage));
        let fed = learner.plan(0, all.collect()).unwrap().fed_tokens();
        assert!((fed as f64) < apart as f64 * most, "{fed} of {apart}");
        let metrics = run(&mut learner, &mixed);
        for (i, adapter) in adapters.iter().enumerate() {
            let reference = adapter.copy();
            reference.set_trainable(true);
            let loss = plain_loss(&config, &weights, Some(&reference), &samples[i]);
            loss.backward();
            assert!((metrics[i].loss - loss.double_value(&[])).abs() < 1e-5);
            // The log-probabilities are those of separate prompts.
            assert!((metrics[i].max_logprob_gap.unwrap() - 0.3).abs() < 0.02);
            for ((name, got), (_, parameter)) in
                gradients(&learner.policies()[i]).iter().zip(reference.parameters())
            {
                assert!(parameter.grad().abs().max().double_value(&[]) > 1e-5, "{name} has no gradient");
                close(got, &parameter.grad(), 3e-6);
            }
        }
    }
}

#[test]
fn truncated_distributions_are_normalised_over_their_support() {
    let config = config(true);
    let weights = weights(&config, 15);
    let adapter = adapter(&config, 12);
    let mut samples = samples(&config, &weights, Some(&adapter), 0);
    for (i, (t, _)) in samples.iter_mut().enumerate() {
        // Some transitions and some tokens were sampled from the whole vocabulary.
        t.support = (i != 1).then(|| {
            let list = |(at, &id): (usize, &u32)| -> Vec<u32> {
                let count = if at % 3 == 2 { 0 } else { 1 + at as u32 * 4 };
                (0..count).map(|k| (id + k * 5) % VOCABULARY as u32).collect()
            };
            t.completion.iter().enumerate().map(list).collect()
        });
        *t = sampled_from(&config, &weights, Some(&adapter), t.clone(), 0.0);
    }
    let policies = vec![(new_policy(0), adapter.copy())];
    let mut learner = Learner::adapters(config.clone(), weights.shallow(), policies, settings(64)).unwrap();
    let metrics = run(&mut learner, &samples).remove(0);
    assert!(metrics.max_logprob_gap.unwrap() < 1e-5, "{metrics:?}");
    let reference = adapter.copy();
    reference.set_trainable(true);
    plain_loss(&config, &weights, Some(&reference), &samples).backward();
    for ((_, got), (_, parameter)) in gradients(&learner.policies()[0]).iter().zip(reference.parameters()) {
        close(got, &parameter.grad(), 1e-5);
    }
    let mut entropy = 0.0;
    for (t, _) in samples.iter().filter(|(_, advantage)| *advantage != 0.0) {
        let logp = plain_distributions(&config, &weights, Some(&adapter), t);
        entropy -= (logp.exp() * logp).sum(Kind::Double).double_value(&[]);
    }
    assert!((metrics.entropy.unwrap() - entropy / 33.0).abs() < 1e-4);
}

#[test]
fn the_frozen_base_does_not_change() {
    let config = config(true);
    let weights = weights(&config, 7);
    let before = weights.copy();
    let adapter = adapter(&config, 3);
    let samples = samples(&config, &weights, Some(&adapter), 0);
    let policies = vec![(new_policy(0), adapter.copy())];
    let mut learner = Learner::adapters(config, weights.shallow(), policies, settings(64)).unwrap();
    run(&mut learner, &samples);
    assert!(same_bits(&weights.parameters(), &before.parameters()));
    for (name, parameter) in weights.parameters() {
        assert!(!parameter.requires_grad() && !parameter.grad().defined(), "{name}");
    }
    let now = learner.policies()[0].adapter.as_ref().unwrap().parameters();
    for ((name, now), (_, then)) in now.iter().zip(adapter.parameters()) {
        assert!(!now.equal(&then), "{name} was not trained");
    }
}

#[test]
fn the_token_budget_changes_only_rounding() {
    let config = config(false);
    let weights = weights(&config, 8);
    let adapter = adapter(&config, 4);
    let samples = samples(&config, &weights, Some(&adapter), 0);
    let with_budget = |budget| {
        let policies = vec![(new_policy(0), adapter.copy())];
        let mut learner =
            Learner::adapters(config.clone(), weights.shallow(), policies, settings(budget)).unwrap();
        let metrics = run(&mut learner, &samples).remove(0);
        (metrics, gradients(&learner.policies()[0]))
    };
    let (metrics, whole) = with_budget(1000);
    for budget in [1, 15, 24] {
        let (other, parts) = with_budget(budget);
        assert!((metrics.loss - other.loss).abs() < 1e-6);
        for ((_, a), (_, b)) in parts.iter().zip(&whole) {
            // An Intel processor with AVX-512 has gaps of 5.0e-6.
            close(a, b, 1e-5);
        }
    }
}

#[test]
fn metrics_describe_the_update() {
    let config = config(true);
    let weights = weights(&config, 9);
    let adapter = adapter(&config, 5);
    let mut samples = samples(&config, &weights, Some(&adapter), 0);
    for (t, _) in &mut samples {
        *t = sampled_from(&config, &weights, Some(&adapter), t.clone(), 0.0);
    }
    // The recorded log-probability of one token differs from training's.
    samples[0].0.logprobs[2] += -0.25;
    let policies = vec![(new_policy(0), adapter.copy())];
    let mut learner = Learner::adapters(config.clone(), weights.shallow(), policies, settings(64)).unwrap();
    let metrics = run(&mut learner, &samples).remove(0);

    // The transition without advantage (3 tokens) counts but is not computed.
    assert_eq!((metrics.tokens, metrics.trained_tokens), (36, 33));
    assert_eq!((metrics.optimizer_steps, metrics.skipped_steps, metrics.version), (1, 0, 1));
    assert!((metrics.max_logprob_gap.unwrap() - 0.25).abs() < 1e-5);
    assert!((metrics.close_logprobs.unwrap() - 32.0 / 33.0).abs() < 1e-9);
    // e^0.25 = 1.284 is just above the range, and the transition's advantage is positive.
    assert!((metrics.clip_fraction - 1.0 / 33.0).abs() < 1e-9);
    assert_eq!(metrics.dual_clip_fraction, 0.0);
    let k3 = 0.25f64.exp() - 1.0 - 0.25;
    assert!((metrics.kl.unwrap() - k3 / 33.0).abs() < 1e-6);
    assert_eq!(metrics.lr, 1e-3);
    let squares: f64 = gradients(&learner.policies()[0])
        .iter()
        .map(|(_, t)| t.square().sum(Kind::Double).double_value(&[]))
        .sum();
    assert!((metrics.grad_norm - squares.sqrt()).abs() < 1e-5);

    // Entropy at the sampling temperature.
    let mut entropy = 0.0;
    for (t, _) in samples.iter().filter(|(_, advantage)| *advantage != 0.0) {
        let logp = plain_distributions(&config, &weights, Some(&adapter), t);
        entropy -= (logp.exp() * logp).sum(Kind::Double).double_value(&[]);
    }
    assert!((metrics.entropy.unwrap() - entropy / 33.0).abs() < 1e-4);
}

#[test]
fn without_advantages_nothing_changes() {
    let config = config(true);
    let weights = weights(&config, 10);
    let adapter = adapter(&config, 6);
    let mut samples = samples(&config, &weights, Some(&adapter), 0);
    samples.iter_mut().for_each(|(_, advantage)| *advantage = 0.0);
    let policies = vec![(new_policy(0), adapter.copy())];
    let mut learner = Learner::adapters(config, weights, policies, settings(64)).unwrap();
    let metrics = run(&mut learner, &samples).remove(0);
    assert_eq!((metrics.tokens, metrics.trained_tokens, metrics.version), (36, 0, 0));
    assert_eq!((metrics.optimizer_steps, metrics.loss, metrics.entropy), (0, 0.0, None));
    let now = learner.policies()[0].adapter.as_ref().unwrap();
    assert!(same_bits(&now.parameters(), &adapter.parameters()));
}

#[test]
fn mini_batches_and_epochs_are_optimizer_steps() {
    let config = config(true);
    let weights = weights(&config, 11);
    let adapter = adapter(&config, 7);
    let samples: Vec<_> = (0..8)
        .map(|i| {
            let t = sampled_from(&config, &weights, Some(&adapter), transition(0, i, 3, 5), 0.0);
            (t, if i % 2 == 0 { 1.0 } else { -1.0 })
        })
        .collect();
    let train = Train { epochs: 3, mini_batches: 4, ..train() };
    let policies = vec![(new_policy(0), adapter)];
    let settings = LearnerSettings::new(&train, &config, tch::Device::Cpu, 0, 1);
    let mut learner = Learner::adapters(config, weights, policies, settings).unwrap();
    let metrics = run(&mut learner, &samples).remove(0);
    assert_eq!((metrics.optimizer_steps, metrics.version), (12, 1));
    // The gap is measured only before the first step; afterwards the policy has changed.
    assert!(metrics.max_logprob_gap.unwrap() < 1e-5);
    assert_eq!(metrics.close_logprobs, Some(1.0));
    assert!(metrics.kl.unwrap() > 1e-6);
}

#[test]
fn tokens_with_positive_advantage_become_likelier() {
    for lora in [true, false] {
        let config = config(true);
        let weights = weights(&config, 12);
        let settings = LearnerSettings::new(&train(), &config, tch::Device::Cpu, 0, 1);
        let mut learner = if lora {
            let adapter = Adapter::new(&config, 3, 6.0, &Projection::ALL, [8; 32]).unwrap();
            Learner::adapters(config.clone(), weights, vec![(new_policy(0), adapter)], settings).unwrap()
        } else {
            Learner::full(config.clone(), weights, Dtype::F32, new_policy(0), settings).unwrap()
        };
        // A bandit with one prompt and six arms, one of which has a positive advantage.
        let arms = |learner: &Learner| -> Vec<Transition> {
            let (weights, adapter) = (learner.base().working(), learner.policies()[0].adapter.as_ref());
            let arm = |i| {
                let mut t = transition(0, 0, 4, 1);
                t.key.branch = i;
                t.completion = vec![10 + i];
                sampled_from(&config, weights, adapter, t, 0.0)
            };
            (0..6).map(arm).collect()
        };
        let before: Vec<f32> = arms(&learner).iter().map(|t| t.logprobs[0]).collect();
        for _ in 0..8 {
            let samples: Vec<_> = arms(&learner)
                .into_iter()
                .enumerate()
                .map(|(i, t)| (t, if i == 3 { 5.0 } else { -1.0 }))
                .collect();
            run(&mut learner, &samples);
        }
        let after: Vec<f32> = arms(&learner).iter().map(|t| t.logprobs[0]).collect();
        assert!(after[3] > before[3] + 0.02, "{before:?} {after:?}");
        let odds = |logps: &[f32]| {
            logps[3] - logps.iter().enumerate().filter(|(i, _)| *i != 3).map(|(_, l)| l / 5.0).sum::<f32>()
        };
        assert!(odds(&after) > odds(&before) + 0.05, "{before:?} {after:?}");
    }
}

#[test]
fn invalid_transitions_are_refused_with_their_position() {
    let config = config(true);
    let weights = weights(&config, 13);
    let adapter = adapter(&config, 9);
    let policies = vec![(new_policy(0), adapter)];
    let learner = Learner::adapters(config.clone(), weights, policies, settings(64)).unwrap();
    let good = || transition(0, 4, 3, 5);
    let with = |change: fn(&mut Transition)| {
        let mut t = good();
        change(&mut t);
        t
    };
    let cases = [
        (with(|t| t.policy = 3), 1.0, "policy 3 is not trained"),
        (with(|t| t.prompt.clear()), 1.0, "no tokens"),
        (with(|t| t.logprobs.truncate(2)), 1.0, "5 completion tokens, but 2 log-probabilities"),
        (with(|t| t.completion[1] = 61), 1.0, "token 61 is outside"),
        (with(|t| t.prompt = vec![1; 124]), 1.0, "129 tokens, but the model has only 128 positions"),
        (
            with(|t| t.support = Some(vec![Vec::new(); 4])),
            1.0,
            "5 completion tokens, but 4 lists of sampled-from ids",
        ),
        (
            with(|t| t.support = Some(vec![vec![61]; 5])),
            1.0,
            "are outside the vocabulary or do not contain it",
        ),
        (with(|t| t.logprobs[0] = f32::NAN), 1.0, "not a number in its range"),
        (with(|t| t.logprobs[0] = 0.5), 1.0, "not a number in its range"),
        (with(|t| t.temperature = -1.0), 1.0, "not a number in its range"),
        (good(), f64::INFINITY, "an advantage, or a number that the loss needs, is not finite"),
    ];
    for (transition, advantage, part) in &cases {
        let sample = Sample::new(transition, *advantage);
        let message = learner.plan(3, vec![sample]).unwrap_err().to_string();
        assert!(message.contains(part), "{message}");
        assert!(message.starts_with("step 3, task `t4`, agent `agent0`, turn 0: "), "{message}");
    }
    let good = good();
    assert!(learner.plan(3, vec![Sample::new(&good, 1.0)]).is_ok());
}

/// Values recorded at sampling stand for those that the trainer would compute, but not if the weights have changed.
#[test]
fn recorded_values_save_the_passes_of_the_completions() {
    let config = config(true);
    let weights = weights(&config, 23);
    let adapter = adapter(&config, 5);
    let plain: Vec<Transition> = (0..3)
        .map(|i| {
            let t = transition(0, i, 3 + i as usize, 6);
            sampled_from(&config, &weights, Some(&adapter), Transition { reward: 1.0, ..t }, 0.1)
        })
        .collect();
    let values = |learner: &Learner, transitions: &[Transition]| -> Vec<Vec<f32>> {
        let outcomes: Vec<_> = transitions.iter().map(|t| (t, TurnOutcome::from(t))).collect();
        let planned = learner.prepare(1, &outcomes, None).unwrap();
        planned.samples.iter().map(|sample| sample.targets.critic.as_ref().unwrap().values.clone()).collect()
    };
    let recorded: Vec<Transition> = plain
        .iter()
        .map(|t| Transition { values: Some(vec![0.125; t.completion.len()]), ..t.clone() })
        .collect();
    for on in [CriticBase::Policy, CriticBase::Shared, CriticBase::Adapter] {
        let with = |staleness: u32| {
            let settings = LearnerSettings::new(&train(), &config, tch::Device::Cpu, staleness, 1);
            let policies = vec![(policy_to_train(0, ppo(critic(on))), adapter.copy())];
            let learner = Learner::adapters(config.clone(), weights.shallow(), policies, settings).unwrap();
            let head = learner.policies()[0].critic.as_ref().unwrap().head_parameters();
            head.into_iter().for_each(|(_, mut tensor)| drop(tch::no_grad(|| tensor.fill_(0.3))));
            learner
        };
        let (fresh, stale) = (with(0), with(1));
        let computed = values(&fresh, &plain);
        assert!(computed.iter().flatten().any(|value| *value != 0.125));
        let used = values(&fresh, &recorded);
        // The engine has no critic's adapter: its values would be those of the policy.
        let expected_is_recorded = on != CriticBase::Adapter;
        assert_eq!(used.iter().flatten().all(|value| *value == 0.125), expected_is_recorded, "{on:?}");
        assert_eq!(used == computed, !expected_is_recorded, "{on:?}");
        assert_eq!(values(&stale, &recorded), computed, "{on:?}");
        // A transition without values, as a server returns it, needs a pass for all.
        let mixed: Vec<Transition> = [&recorded[..1], &plain[1..]].concat();
        assert_eq!(values(&fresh, &mixed), computed, "{on:?}");
    }
}
