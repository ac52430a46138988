//! Critics over several steps of a trainer: resumed runs, and what PPO learns.

use std::path::Path;

use pl_dsl::workflow::{Policy, Train};
use pl_model::Model;
use serde_json::Value;

use super::*;
use crate::checkpoint::Checkpoints;
use crate::fixtures::{
    VOCABULARY, model, plain_distributions, policy, same_bits, starts_below, train, workflow,
};
use crate::{StepMetrics, Trainer};

fn with_critic(name: &str, lora: bool, critic: CriticSettings) -> Policy {
    Policy { training: Some(ppo(critic)), ..policy(name, lora) }
}

fn new_trainer(policies: Vec<Policy>, train: Train) -> Trainer {
    let workflow = workflow(policies, Some(train));
    Trainer::new(&workflow, starts_below(Path::new(".")), vec![model(true, 31)], 5, Device::Cpu).unwrap()
}

/// Policies with critics of all kinds and one without, half of them adapters, half fully trained.
fn team() -> Trainer {
    let warm = CriticSettings { warmup: 1, ..critic(CriticBase::Shared) };
    let policies = vec![
        with_critic("a", true, critic(CriticBase::Policy)),
        with_critic("b", true, warm),
        policy("c", true),
        with_critic("whole", false, critic(CriticBase::Shared)),
        with_critic("adapted", true, critic(CriticBase::Adapter)),
        with_critic("modelled", true, critic(CriticBase::Model)),
        with_critic("whole-adapted", false, critic(CriticBase::Adapter)),
        with_critic("whole-modelled", false, critic(CriticBase::Model)),
    ];
    new_trainer(policies, Train { mini_batches: 2, ..train() })
}

/// A step with trees of two turns and two candidates, for each of eight policies.
fn step_transitions(step: u64) -> Vec<Transition> {
    (0..8)
        .flat_map(|policy| (0..12).map(move |i| (policy, i)))
        .map(|(policy, i)| {
            let mut t = transition(policy, i + 20 * step as u32, 5, 4 + i as usize % 3);
            (t.key.task, t.key.node_visit, t.key.branch) = (i / 4, i / 2 % 2, i % 2);
            (t.group.task, t.group.turn) = (i / 4, i / 2 % 2);
            t.chosen = i % 2 == 0;
            t.next_prompt = (!t.chosen && t.key.node_visit == 0).then(|| vec![1, 2, 3, i + policy]);
            t.reward = f64::from((i * 5 + step as u32) % 7) / 3.0 - 1.0;
            t
        })
        .collect()
}

fn update(trainer: &mut Trainer, step: u64) -> StepMetrics {
    trainer.update(step, &step_transitions(step), None, &mut |_| {}).unwrap()
}

#[test]
fn the_order_of_episodes_changes_no_bit() {
    let mut sorted = team();
    let mut shuffled = team();
    for step in 1..3 {
        let mut transitions = step_transitions(step);
        let metrics = update(&mut sorted, step);
        transitions.reverse();
        transitions.rotate_left(17);
        assert_eq!(shuffled.update(step, &transitions, None, &mut |_| {}).unwrap(), metrics);
        assert!(same_bits(&state(&sorted), &state(&shuffled)));
    }
}

/// All tensors that a trainer changes.
fn state(trainer: &Trainer) -> Vec<(String, Tensor)> {
    let own = |optimizer: &AdamW| {
        let parameters = optimizer.parameters().map(|(name, tensor)| (name.to_owned(), tensor.copy()));
        parameters.chain(optimizer.state()).collect::<Vec<_>>()
    };
    let policies = trainer.learners().iter().flat_map(|learner| learner.policies());
    policies
        .flat_map(|policy| {
            let critic = policy.critic.as_ref().map(|critic| own(&critic.optimizer));
            own(&policy.optimizer).into_iter().chain(critic.unwrap_or_default())
        })
        .collect()
}

#[test]
fn a_resumed_run_with_critics_equals_an_uninterrupted_one() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path(), 1);
    let mut straight = team();
    update(&mut straight, 1);
    update(&mut straight, 2);
    let path = checkpoints.save(&straight, 2, None, &Value::Null).unwrap();
    let mut resumed = team();
    assert!(!same_bits(&state(&straight), &state(&resumed)));
    resumed.load(&path).unwrap();
    assert!(same_bits(&state(&straight), &state(&resumed)));
    for step in 3..5 {
        assert_eq!(update(&mut straight, step), update(&mut resumed, step));
        assert!(same_bits(&state(&straight), &state(&resumed)));
    }
    // The head is a file beside its adapter or model.
    let head = Tensor::read_safetensors(path.join("policies/a/value_head.safetensors")).unwrap();
    let shapes: Vec<(String, Vec<i64>)> = head.iter().map(|(name, t)| (name.clone(), t.size())).collect();
    assert_eq!(shapes.len(), 2);
    assert!(shapes.contains(&("weight".to_owned(), vec![1, WIDTH])));
    assert!(shapes.contains(&("bias".to_owned(), vec![1])));
    assert!(path.join("policies/whole/value_head.safetensors").is_file());
    assert!(!path.join("policies/c/value_head.safetensors").exists());
    // So is its own network, as an adapter or a model.
    for name in ["adapted", "whole-adapted"] {
        assert!(path.join(format!("policies/{name}/critic/adapter_model.safetensors")).is_file());
    }
    for name in ["modelled", "whole-modelled"] {
        assert!(path.join(format!("policies/{name}/critic/config.json")).is_file());
    }
    for name in ["a", "b", "whole"] {
        assert!(!path.join(format!("policies/{name}/critic")).exists());
    }
}

/// A critic with a smaller model than its policy, trained whole or with an adapter.
#[test]
fn a_critic_may_have_another_model_than_its_policy() {
    let small = |positions: usize, vocab: i64| {
        let config = Config { hidden: 8, layers: 1, max_positions: positions, vocab, ..config(false) };
        let tokens = model(true, 32);
        Model { weights: weights(&config, 33), config, hash: "small".to_owned(), ..tokens }
    };
    let policies = || -> Vec<Policy> {
        [(CriticBase::Model, true), (CriticBase::Adapter, true), (CriticBase::Model, false)]
            .into_iter()
            .enumerate()
            .map(|(i, (on, lora))| {
                let critic = CriticSettings { model: Some(1), ..critic(on) };
                with_critic(&format!("p{i}"), lora, critic)
            })
            .collect()
    };
    let set_up = |critic: Model| {
        let mut workflow = workflow(policies(), Some(train()));
        workflow.models.push(pl_dsl::workflow::Model {
            name: "small".into(),
            source: "".into(),
            dtype: None,
        });
        Trainer::new(&workflow, starts_below(Path::new(".")), vec![model(true, 31), critic], 5, Device::Cpu)
    };
    let mut trainer = set_up(small(128, VOCABULARY)).unwrap();
    // The critics' models are not served.
    assert!(trainer.bases().iter().all(|base| base.hash != "small"));
    let transitions: Vec<Transition> =
        (0..6).map(|i| Transition { reward: f64::from(i % 2), ..transition(i % 3, i, 5, 4) }).collect();
    let before = state(&trainer);
    // A head of zeros has no gradient for the hidden states.
    trainer.update(1, &transitions, None, &mut |_| {}).unwrap();
    let metrics = trainer.update(2, &transitions, None, &mut |_| {}).unwrap();
    assert!(metrics.policies.iter().all(|own| own.critic.as_ref().unwrap().grad_norm > 0.0));
    let after = state(&trainer);
    let is_parameter = |name: &str| !name.starts_with("mean.") && !name.starts_with("square.");
    let all = before.iter().zip(&after).filter(|((name, _), _)| is_parameter(name));
    // The first step of an adapter changes only its second factors.
    for ((name, before), (_, after)) in all.filter(|((name, _), _)| !name.contains("lora_A")) {
        assert!(!before.equal(after), "{name} did not change");
    }
    for (critic, part) in [
        (small(64, VOCABULARY), "has 64 positions, fewer than the 128"),
        (small(128, VOCABULARY - 1), "has other tokens"),
    ] {
        let message = set_up(critic).unwrap_err().to_string();
        assert!(message.starts_with("policy `p0`: ") && message.contains(part), "{message}");
    }
}

#[test]
fn a_checkpoint_with_other_critics_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let with = || new_trainer(vec![with_critic("a", true, critic(CriticBase::Policy))], train());
    let without = || new_trainer(vec![policy("a", true)], train());
    let save = |trainer: &Trainer, name: &str| {
        Checkpoints::new(folder.path().join(name), 1).save(trainer, 1, None, &Value::Null).unwrap()
    };
    let (with_path, without_path) = (save(&with(), "with"), save(&without(), "without"));
    let message = without().load(&with_path).unwrap_err().to_string();
    assert!(message.contains("policy `a` has a critic"), "{message}");
    let message = with().load(&without_path).unwrap_err().to_string();
    assert!(message.contains("policy `a` has no critic"), "{message}");
}

/// Samples a completion from the policy, with its log-probabilities.
fn sample(trainer: &Trainer, mut t: Transition, length: usize, rng: &mut impl rand::Rng) -> Transition {
    let base = &trainer.bases()[0];
    let served = trainer.served(0).unwrap();
    (t.completion, t.logprobs) = (Vec::new(), Vec::new());
    for _ in 0..length {
        t.completion.push(0);
        let logps = no_grad(|| plain_distributions(&base.config, &base.weights, served.adapter.as_ref(), &t));
        let logps = Vec::<f32>::try_from(logps.get(-1)).unwrap();
        let mut left = (rng.next_u32() >> 8) as f32 / (1 << 24) as f32;
        let drawn = logps.iter().position(|logp| {
            left -= logp.exp();
            left < 0.0
        });
        let token = drawn.unwrap_or(VOCABULARY as usize - 1);
        *t.completion.last_mut().unwrap() = token as u32;
        t.logprobs.push(logps[token].min(0.0));
    }
    t
}

/// Plays episodes of two turns of two tokens. Only the last turn has a reward: the share of all tokens below 30.
fn play(trainer: &Trainer, step: u64, episodes: u32) -> Vec<Transition> {
    use rand_chacha::rand_core::SeedableRng;
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(step);
    let mut transitions = Vec::new();
    for episode in 0..episodes {
        let turn = |visit: u32, prompt: Vec<u32>| {
            let mut t = transition(0, 0, 1, 1);
            (t.key.sample, t.key.node_visit, t.turn) = (episode, visit, visit);
            t.prompt = prompt;
            t
        };
        let first = sample(trainer, turn(0, vec![1, 2, 3]), 2, &mut rng);
        let prompt = [first.prompt.as_slice(), &first.completion, &[7]].concat();
        let mut second = sample(trainer, turn(1, prompt), 2, &mut rng);
        let good = first.completion.iter().chain(&second.completion).filter(|&&id| id < 30).count();
        second.reward = good as f64 / 4.0;
        transitions.extend([first, second]);
    }
    transitions
}

#[test]
fn ppo_learns_from_a_reward_of_the_last_turn() {
    for on in [CriticBase::Policy, CriticBase::Shared, CriticBase::Adapter, CriticBase::Model] {
        let critic = CriticSettings { learning_rate: 0.1, weight: 0.1, ..critic(on) };
        let mut policies = vec![with_critic("a", true, critic)];
        let training = policies[0].training.as_mut().unwrap();
        (training.optimizer.learning_rate, training.objective.lambda) = (5e-2, 0.9);
        let mut trainer = new_trainer(policies, Train { token_budget: Some(512), ..train() });
        let (mut rewards, mut losses) = (Vec::new(), Vec::new());
        for step in 1..=14 {
            let transitions = play(&trainer, step, 24);
            rewards.push(transitions.iter().map(|t| t.reward).sum::<f64>() / 24.0);
            let metrics = trainer.update(step, &transitions, None, &mut |_| {}).unwrap();
            losses.push(metrics.policies[0].critic.clone().unwrap().value_loss);
        }
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let (first, last) = (mean(&rewards[..4]), mean(&rewards[10..]));
        assert!(first < 0.75 && last > first + 0.15, "{on:?}: {rewards:?}");
        assert!(mean(&losses[10..]) < losses[0] / 2.0, "{on:?}: {losses:?}");
    }
}
