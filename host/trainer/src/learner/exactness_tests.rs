//! Gradients of learners in single and double precision, independent of how a batch is cut, for every published
//! algorithm and every kind of critic, and equal to finite differences.

mod differences;
mod losses;

use std::collections::BTreeMap;

use pl_dsl::settings::ALGORITHMS;
use pl_dsl::workflow::objective::{
    Advantage, Correction, CriticBase, FlatGroups, GroupBy, KlEstimator, KlPlace, Objective, OldLogprobs,
    Optimizer, Overlong, PolicyTraining, Scale, TrustRegion,
};
use pl_model::TensorSet;
use pl_types::Transition;
use proptest::prelude::*;
use tch::{Kind, Tensor, no_grad};

use super::*;
use crate::critic::CriticModel;
use crate::fixtures::{
    adapter, config, critic, optimizer, policy_to_train, sampled_from, train, training, transition, weights,
};
use crate::preparation::TurnOutcome;

/// An objective, and the kind of its critic if it needs one.
#[derive(Clone, Copy)]
struct Case {
    objective: Objective,
    critic: Option<CriticBase>,
}

/// Every published algorithm, `ppo` with critics of all kinds, and the choices that no algorithm makes.
fn cases() -> BTreeMap<String, Case> {
    let algorithm = |word: &str| ALGORITHMS.iter().find(|one| one.word == word).unwrap().objective;
    let mut cases: BTreeMap<String, Case> = ALGORITHMS
        .iter()
        .map(|one| {
            let objective = Objective { divisor: Some(10), ..one.objective };
            (one.word.to_owned(), Case { objective, critic: None })
        })
        .collect();
    let ppo =
        Objective { gamma: 0.99, gamma_turn: 0.9, lambda: 0.8, ..cases.remove("ppo").unwrap().objective };
    for (name, on) in [
        ("ppo, policy", CriticBase::Policy),
        ("ppo, shared", CriticBase::Shared),
        ("ppo, adapter", CriticBase::Adapter),
        ("ppo, model", CriticBase::Model),
    ] {
        cases.insert(name.to_owned(), Case { objective: ppo, critic: Some(on) });
    }
    let (grpo, rloo) = (algorithm("grpo"), algorithm("rloo"));
    let recompute = Objective { old_logprobs: OldLogprobs::Recompute, ..algorithm("dapo") };
    let (correction_low, correction_high) = (0.9, 1.1);
    for (name, objective) in [
        (
            "mask",
            Objective {
                trust_region: TrustRegion::Mask,
                clip_low: 0.002,
                clip_high: 0.002,
                dual_clip: 0.0,
                ..grpo
            },
        ),
        ("no trust region", Objective { trust_region: TrustRegion::None, dual_clip: 0.0, ..grpo }),
        ("tis", Objective { correction: Correction::Tis, correction_high, ..recompute }),
        ("icepop", Objective { correction: Correction::Icepop, correction_low, correction_high, ..rloo }),
        (
            "sequence mask",
            Objective {
                correction: Correction::SequenceMask,
                correction_low: 0.98,
                correction_high: 1.05,
                ..rloo
            },
        ),
        ("k1", Objective { kl: 0.2, kl_in: KlPlace::Reward, kl_estimator: KlEstimator::K1, ..grpo }),
        ("k2", Objective { kl: 0.2, kl_estimator: KlEstimator::K2, ..grpo }),
        ("k3", Objective { kl: 0.2, kl_estimator: KlEstimator::K3, ..rloo }),
        ("straight-through", Objective { kl: 0.2, kl_estimator: KlEstimator::StraightThrough, ..grpo }),
        ("entropy", Objective { entropy: 0.1, ..grpo }),
        ("ema", Objective { advantage: Advantage::Ema, ..algorithm("reinforce_pp") }),
        ("leave one out, scaled", Objective { scale: Scale::Group, ..rloo }),
        ("groups of tasks", Objective { group_by: GroupBy { agent: false, turn: false }, ..grpo }),
        ("token penalty", Objective { token_penalty: 0.01, ..algorithm("reinforce_pp") }),
        ("flat groups", Objective { flat_groups: FlatGroups::Drop, ..grpo }),
        ("outliers", Objective { outliers: 0.9, drop_groups: 0.5, ..grpo }),
        ("overlong", Objective { overlong: Overlong::Mask, ..algorithm("dapo") }),
    ] {
        cases.insert(name.to_owned(), Case { objective, critic: None });
    }
    cases
}

/// Number format of a learner.
#[derive(Clone, Copy)]
struct Format(Kind);

impl Format {
    fn weights(self, config: &Config) -> Weights {
        weights(config, 51).map(|tensor| tensor.to_kind(self.0))
    }

    fn adapter(self, config: &Config, seed: u8) -> Adapter {
        adapter(config, seed).map(|tensor| tensor.to_kind(self.0))
    }
}

fn new_policy(policy: usize, case: Case, format: Format, config: &Config) -> NewPolicy {
    let optimizer = Optimizer { learning_rate: 1e-3, max_grad_norm: 0.0, ..optimizer() };
    let critic = case.critic.map(critic);
    let training = PolicyTraining { optimizer, objective: case.objective, critic, ..training() };
    let model = || {
        let weights = weights(config, 60).map(|tensor| tensor.to_kind(format.0));
        CriticModel::trained(config.clone(), weights, Dtype::F32).unwrap()
    };
    let critic_model = (case.critic == Some(CriticBase::Model)).then(model);
    NewPolicy { critic_model, ..policy_to_train(policy, training) }
}

/// Gives the head and the adapter of a critic weights other than 0.
fn set_critic(policy: &TrainedPolicy) {
    let Some(critic) = &policy.critic else { return };
    let tensors = critic
        .head_parameters()
        .into_iter()
        .chain(critic.network_parameters().into_iter().filter(|(name, _)| name.contains("lora_B")));
    for (index, (_, mut tensor)) in tensors.enumerate() {
        let count = tensor.numel() as i64;
        let wave = (Tensor::arange(count, (Kind::Double, tch::Device::Cpu)) * 1.3 + index as f64).sin() * 0.2;
        no_grad(|| tensor.copy_(&wave.view_as(&tensor)));
    }
}

/// Two episodes of two turns in each of two tasks, with shared prompts, near the policy's distribution.
fn transitions(config: &Config, weights: &Weights, adapter: &Adapter, policy: u32) -> Vec<Transition> {
    (0..8)
        .map(|i: u32| {
            let (task, sample, turn) = (i / 4, i / 2 % 2, i % 2);
            let mut t = transition(policy, i, 1, 3 + i as usize);
            (t.key.node_visit, t.key.sample) = (turn, sample);
            (t.group.task, t.group.turn, t.group.node_visit, t.turn) = (task, turn, None, turn);
            t.prompt = transition(policy, 20 + task, 20, 1).prompt;
            t.temperature = [1.0, 0.8][i as usize % 2];
            t.reward = [1.0, 0.0, 0.3, 0.9, 0.2, 0.7, 0.0, 1.0][i as usize];
            t.success = i.is_multiple_of(3);
            t.cut_off = i == 5;
            // The noise of the log-probabilities follows the task.
            let mut t = sampled_from(config, weights, Some(adapter), t, 0.35);
            t.key.task = task;
            t
        })
        .collect()
}

/// A division of the work.
#[derive(Debug, Clone, Copy)]
struct Cut {
    token_budget: u32,
    checkpointing: Checkpointing,
    threads: i32,
}

const WHOLE: Cut = Cut { token_budget: 10_000, checkpointing: Checkpointing::Off, threads: 1 };

/// Gradients of a policy's first step, with those of its critic.
fn gradients(policy: &TrainedPolicy) -> Vec<(String, Tensor)> {
    let own = |optimizer: &AdamW| {
        assert_eq!(optimizer.steps(), 1);
        let state = optimizer.state().into_iter();
        // The first moment after one step is a tenth of the gradient.
        let mean = |(name, t): (String, Tensor)| Some((name.strip_prefix("mean.")?.to_owned(), t * 10.0));
        state.filter_map(mean).collect::<Vec<_>>()
    };
    let critic = policy.critic.as_ref().map(|critic| own(&critic.optimizer)).unwrap_or_default();
    own(&policy.optimizer).into_iter().chain(critic).collect()
}

/// A learner of adapters with the named cases, and its transitions.
fn learner(names: &[String], cut: Cut, format: Format) -> (Learner, Vec<Transition>) {
    let (config, all) = (config(true), cases());
    let weights = format.weights(&config);
    let policies: Vec<(NewPolicy, Adapter)> = names
        .iter()
        .enumerate()
        .map(|(i, name)| (new_policy(i, all[name], format, &config), format.adapter(&config, 30 + i as u8)))
        .collect();
    let transitions = policies
        .iter()
        .flat_map(|(new, adapter)| transitions(&config, &weights, adapter, new.policy as u32))
        .collect();
    let settings = LearnerSettings {
        checkpointing: cut.checkpointing,
        ..LearnerSettings::new(
            &Train { token_budget: Some(cut.token_budget), ..train() },
            &config,
            tch::Device::Cpu,
            0,
            1,
        )
    };
    let learner = Learner::adapters(config, weights, policies, settings).unwrap();
    learner.policies().iter().for_each(set_critic);
    (learner, transitions)
}

fn first_step(learner: &mut Learner, transitions: &[Transition]) -> Vec<UpdateMetrics> {
    let mut sorted: Vec<&Transition> = transitions.iter().collect();
    sorted.sort_by(|a, b| a.key.cmp(&b.key));
    let outcomes: Vec<(&Transition, TurnOutcome)> =
        sorted.into_iter().map(|t| (t, TurnOutcome::from(t))).collect();
    let planned = learner.prepare(1, &outcomes, None).unwrap();
    learner.update(&planned, &mut || {}).unwrap()
}

fn joint_gradients(names: &[String], cut: Cut, format: Format) -> Vec<Vec<(String, Tensor)>> {
    tch::set_num_threads(cut.threads);
    let (mut learner, transitions) = learner(names, cut, format);
    first_step(&mut learner, &transitions);
    learner.policies().iter().map(gradients).collect()
}

/// Asserts that the gradients of a policy differ by at most a share of the largest entry.
fn assert_near(got: &[(String, Tensor)], expected: &[(String, Tensor)], share: f64, name: &str) {
    let largest = |gradients: &[(String, Tensor)]| {
        gradients.iter().map(|(_, t)| t.abs().max().double_value(&[])).fold(0.0, f64::max)
    };
    assert_eq!(got.len(), expected.len());
    let bound = share * largest(expected);
    assert!(bound > 0.0, "{name} has no gradient");
    for ((tensor, got), (_, expected)) in got.iter().zip(expected) {
        let gap = (got - expected).abs().max().double_value(&[]);
        assert!(gap <= bound, "{name}, {tensor}: {gap} of {bound}");
    }
}

fn cuts() -> impl Strategy<Value = Cut> {
    (1u32..300, any::<bool>(), 1i32..4).prop_map(|(token_budget, checkpointed, threads)| {
        let checkpointing = if checkpointed { Checkpointing::On } else { Checkpointing::Off };
        Cut { token_budget, checkpointing, threads }
    })
}

/// Every case once, beside a policy whose critic has an adapter of its own: the property test below draws only some.
#[test]
fn every_objective_is_independent_of_the_cut() {
    let cut = Cut { token_budget: 1, checkpointing: Checkpointing::On, threads: 2 };
    let (format, neighbour) = (Format(Kind::Double), "ppo, adapter".to_owned());
    for name in cases().into_keys() {
        let together = joint_gradients(&[name.clone(), neighbour.clone()], cut, format);
        let alone = joint_gradients(std::slice::from_ref(&name), WHOLE, format);
        assert_near(&together[0], &alone[0], 1e-12, &name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]
    /// Any token budget, gradient checkpointing and number of threads, alone or beside others.
    #[test]
    fn no_gradient_depends_on_the_cut(
        names in prop::sample::subsequence(cases().into_keys().collect::<Vec<_>>(), 1..4),
        cut in cuts(),
    ) {
        for (format, share) in [(Format(Kind::Double), 1e-12), (Format(Kind::Float), 1e-5)] {
            let (together, whole) = (joint_gradients(&names, cut, format), joint_gradients(&names, WHOLE, format));
            for (i, name) in names.iter().enumerate() {
                assert_near(&together[i], &whole[i], share, name);
            }
            // The first policy alone: its adapter has the same seed in both.
            let alone = joint_gradients(&names[..1], WHOLE, format);
            assert_near(&together[0], &alone[0], share, &names[0]);
        }
    }
}

/// Policies that train all weights, with every objective and with critics of every kind.
#[test]
fn whole_models_are_independent_of_the_cut() {
    let (config, format) = (config(true), Format(Kind::Double));
    let run = |case: Case, cut: Cut| {
        tch::set_num_threads(cut.threads);
        let weights = format.weights(&config);
        let none = format.adapter(&config, 1).map(Tensor::zeros_like);
        let transitions = transitions(&config, &weights, &none, 0);
        let settings = LearnerSettings {
            checkpointing: cut.checkpointing,
            ..LearnerSettings::new(
                &Train { token_budget: Some(cut.token_budget), ..train() },
                &config,
                tch::Device::Cpu,
                0,
                1,
            )
        };
        let new = new_policy(0, case, format, &config);
        let mut learner = Learner::full(config.clone(), weights, Dtype::F32, new, settings).unwrap();
        set_critic(&learner.policies()[0]);
        first_step(&mut learner, &transitions);
        gradients(&learner.policies()[0])
    };
    for (name, case) in cases() {
        let whole = run(case, WHOLE);
        let cut = Cut { token_budget: 64, checkpointing: Checkpointing::On, threads: 2 };
        assert_near(&run(case, cut), &whole, 1e-12, &name);
        if case.critic.is_some() {
            let cut = Cut { token_budget: 1, checkpointing: Checkpointing::Off, threads: 2 };
            assert_near(&run(case, cut), &whole, 1e-12, &name);
        }
    }
}
