//! Gradients of learners under all kinds of objectives: equal to plain autograd, and independent of how a batch is
//! cut.

use std::collections::BTreeMap;

use pl_dsl::workflow::objective::{
    Advantage, Aggregation, Baseline, Correction, GroupBy, KlEstimator, KlPlace, Objective, OldLogprobs,
    Optimizer, Overlong, PolicyTraining, Ratio, Returns, Scale, TrustRegion,
};
use pl_model::TensorSet;
use pl_types::Transition;
use proptest::prelude::*;
use tch::{Kind, Tensor, no_grad};

use super::*;
use crate::aggregation::{CompletionCounts, token_weight};
use crate::fixtures::{
    adapter, close, config, objective, optimizer, plain_distributions, plain_logprobs, policy_to_train,
    same_bits, sampled_from, train, training, transition, weights,
};
use crate::loss::TokenInputs;
use crate::objective::{ObjectiveInputs, has_kl_in_loss, objective_loss};
use crate::preparation::TurnOutcome;

/// One objective of each kind, by name.
fn objectives() -> BTreeMap<&'static str, Objective> {
    let by_episode = GroupBy { agent: true, turn: false };
    let grpo = Objective {
        returns: Returns::Episode,
        group_by: by_episode,
        aggregation: Aggregation::SequenceMean,
        clip_high: 0.2,
        dual_clip: 0.0,
        ..objective()
    };
    let token_mean = Objective { aggregation: Aggregation::TokenMean, ..grpo };
    let reinforce = Objective { ratio: Ratio::None, trust_region: TrustRegion::None, ..token_mean };
    BTreeMap::from([
        ("at_grpo", objective()),
        (
            "dr_grpo",
            Objective { scale: Scale::None, aggregation: Aggregation::Constant, divisor: Some(10), ..grpo },
        ),
        ("rloo", Objective { baseline: Baseline::LeaveOneOut, scale: Scale::None, ..reinforce }),
        (
            "reinforce_pp",
            Objective {
                returns: Returns::Discounted,
                gamma_turn: 0.9,
                advantage: Advantage::Return,
                baseline: Baseline::None,
                scale: Scale::Batch,
                kl: 0.05,
                kl_in: KlPlace::Reward,
                kl_estimator: KlEstimator::K1,
                ..token_mean
            },
        ),
        ("dapo", Objective { overlong: Overlong::Mask, clip_high: 0.28, ..token_mean }),
        ("gspo", Objective { ratio: Ratio::Sequence, clip_low: 0.02, clip_high: 0.03, ..grpo }),
        ("cispo", Objective { trust_region: TrustRegion::Cispo, ..token_mean }),
        (
            "mask",
            Objective { trust_region: TrustRegion::Mask, clip_low: 0.002, clip_high: 0.002, ..token_mean },
        ),
        (
            "rft",
            Objective {
                advantage: Advantage::Success,
                baseline: Baseline::None,
                scale: Scale::None,
                ..reinforce
            },
        ),
        (
            "icepop",
            Objective {
                correction: Correction::Icepop,
                correction_low: 0.9,
                correction_high: 1.2,
                ..reinforce
            },
        ),
        (
            "sequence_mask",
            Objective {
                correction: Correction::SequenceMask,
                correction_low: 0.98,
                correction_high: 1.05,
                ..reinforce
            },
        ),
        (
            "tis",
            Objective {
                old_logprobs: OldLogprobs::Recompute,
                correction: Correction::Tis,
                correction_high: 1.1,
                ..token_mean
            },
        ),
        (
            "entropy_and_kl",
            Objective { kl: 0.2, kl_estimator: KlEstimator::StraightThrough, entropy: 0.1, ..grpo },
        ),
        (
            "ema",
            Objective {
                advantage: Advantage::Ema,
                baseline: Baseline::None,
                scale: Scale::Batch,
                ..token_mean
            },
        ),
        ("grpo", grpo),
    ])
}

fn new_policy(policy: usize, objective: &Objective) -> NewPolicy {
    let optimizer = Optimizer { learning_rate: 1e-3, max_grad_norm: 0.0, ..optimizer() };
    let training = PolicyTraining { optimizer, objective: *objective, ..training() };
    policy_to_train(policy, training)
}

fn settings(token_budget: u32) -> LearnerSettings {
    LearnerSettings::new(
        &Train { token_budget: Some(token_budget), ..train() },
        &config(true),
        tch::Device::Cpu,
        0,
        1,
    )
}

/// Two episodes of two turns in each of two tasks, with shared prompts, near the policy's distribution.
fn transitions(config: &Config, weights: &Weights, adapter: &Adapter, policy: u32) -> Vec<Transition> {
    (0..8)
        .map(|i: u32| {
            let (task, sample, turn) = (i / 4, i / 2 % 2, i % 2);
            let mut t = transition(policy, i, 1, 3 + i as usize);
            t.key.node_visit = turn;
            (t.key.task, t.key.sample) = (task, sample);
            (t.group.task, t.group.turn, t.group.node_visit, t.turn) = (task, turn, None, turn);
            t.prompt = transition(policy, 20 + task, 20, 1).prompt;
            t.temperature = [1.0, 0.8][i as usize % 2];
            t.reward = [1.0, 0.0, 0.3, 0.9, 0.2, 0.7, 0.0, 1.0][i as usize];
            t.success = i.is_multiple_of(3);
            t.cut_off = i == 5;
            let seed = t.key.task;
            // The noise of the log-probabilities follows the task.
            t.key.task = i;
            let mut t = sampled_from(config, weights, Some(adapter), t, 0.2);
            t.key.task = seed;
            t
        })
        .collect()
}

/// Gradient of a policy's first step: AdamW's first moment after one step is a tenth of it.
fn gradients(policy: &TrainedPolicy) -> Vec<(String, Tensor)> {
    assert_eq!(policy.optimizer.steps(), 1);
    let state = policy.optimizer.state().into_iter();
    state.filter_map(|(name, t)| Some((name.strip_prefix("mean.")?.to_owned(), t * 10.0))).collect()
}

/// Runs the first step of a learner.
fn first_step(learner: &mut Learner, transitions: &[Transition]) -> Vec<UpdateMetrics> {
    let mut sorted: Vec<&Transition> = transitions.iter().collect();
    sorted.sort_by(|a, b| a.key.cmp(&b.key));
    let outcomes: Vec<(&Transition, TurnOutcome)> =
        sorted.into_iter().map(|transition| (transition, TurnOutcome::from(transition))).collect();
    let planned = learner.prepare(1, &outcomes, None).unwrap();
    learner.update(&planned, &mut || {}).unwrap()
}

/// The loss over all completions at once, with the targets that the learner prepares.
fn plain_loss(
    learner: &Learner,
    config: &Config,
    weights: &Weights,
    adapter: &Adapter,
    transitions: &[Transition],
) -> Tensor {
    let outcomes: Vec<_> = transitions.iter().map(|t| (t, TurnOutcome::from(t))).collect();
    let planned = learner.prepare(1, &outcomes, None).unwrap();
    let objective = &learner.policies()[0].training.objective;
    let samples = || planned.samples.iter().filter(|sample| !sample.targets.masked);
    let counts = CompletionCounts {
        completions: samples().count(),
        tokens: samples().map(|sample| sample.transition.completion.len()).sum(),
    };
    let mut total = Tensor::zeros([], (Kind::Float, tch::Device::Cpu));
    for sample in samples() {
        let (t, targets) = (sample.transition, &sample.targets);
        let logp = plain_logprobs(config, weights, Some(adapter), t);
        let column = |values: &[f32]| Tensor::from_slice(values);
        let old_logp = column(targets.old_logprobs.as_deref().unwrap_or(&t.logprobs));
        let mean = (logp.detach() - &old_logp).mean(Kind::Float).expand_as(&logp);
        let [reference, correction] =
            [&targets.reference_logprobs, &targets.correction].map(|own| own.as_deref().map(column));
        let reference = reference.filter(|_| has_kl_in_loss(objective));
        let inputs = ObjectiveInputs {
            tokens: TokenInputs {
                logp: &logp,
                old_logp: &old_logp,
                advantage: &column(&targets.advantages),
                sequence_log_ratio: Some(&mean),
            },
            reference: reference.as_ref(),
            correction: correction.as_ref(),
            kl_coefficient: objective.kl,
        };
        let loss = objective_loss(objective, &inputs).unwrap().loss.sum(Kind::Float);
        let distributions = plain_distributions(config, weights, Some(adapter), t);
        let entropy = -(distributions.exp() * distributions).sum(Kind::Float);
        let weight = token_weight(objective.aggregation, 10, t.completion.len(), counts);
        total += (loss - entropy * objective.entropy) * f64::from(weight);
    }
    total
}

#[test]
fn gradients_of_all_objectives_equal_plain_autograd() {
    let config = config(true);
    let weights = weights(&config, 41);
    let adapter = adapter(&config, 21);
    let transitions = transitions(&config, &weights, &adapter, 0);
    for (name, objective) in objectives() {
        let policies = vec![(new_policy(0, &objective), adapter.copy())];
        let mut learner =
            Learner::adapters(config.clone(), weights.shallow(), policies, settings(64)).unwrap();
        let reference = adapter.copy();
        reference.set_trainable(true);
        let loss = plain_loss(&learner, &config, &weights, &reference, &transitions);
        loss.backward();
        let metrics = first_step(&mut learner, &transitions).remove(0);
        assert!((metrics.loss - loss.double_value(&[])).abs() < 1e-5, "{name}");
        for ((tensor, got), (_, parameter)) in
            gradients(&learner.policies()[0]).iter().zip(reference.parameters())
        {
            let largest = parameter.grad().abs().max().double_value(&[]);
            assert!(largest > 1e-5, "{name}: {tensor} has no gradient");
            close(&(got / largest), &(parameter.grad() / largest), 1e-4);
        }
    }
}

/// Gradients of the policies of a learner, with the same transitions in another order or in other batches.
fn joint_gradients(
    chosen: &[&str],
    token_budget: u32,
    checkpointing: Checkpointing,
) -> Vec<Vec<(String, Tensor)>> {
    let config = config(true);
    let weights = weights(&config, 42);
    let all = objectives();
    let own = chosen.iter().enumerate();
    let own = own.map(|(i, name)| (new_policy(i, &all[name]), adapter(&config, 30 + i as u8)));
    let policies: Vec<_> = own.collect();
    let transitions: Vec<Transition> = policies
        .iter()
        .flat_map(|(new, adapter)| transitions(&config, &weights, adapter, new.policy as u32))
        .collect();
    let settings = LearnerSettings { checkpointing, ..settings(token_budget) };
    let mut learner = Learner::adapters(config, weights, policies, settings).unwrap();
    first_step(&mut learner, &transitions);
    learner.policies().iter().map(gradients).collect()
}

fn assert_near(got: &[(String, Tensor)], expected: &[(String, Tensor)], name: &str) {
    for ((tensor, got), (_, expected)) in got.iter().zip(expected) {
        let largest = expected.abs().max().double_value(&[]).max(1e-12);
        let gap = (got - expected).abs().max().double_value(&[]) / largest;
        // Rounding alone: mostly below 6e-6, and 1.3e-5 where the sequences' gradients of a tensor nearly cancel.
        assert!(gap < 3e-5, "{name}, {tensor}: {gap}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    /// Any token budget, with gradient checkpointing or not, alone or beside adapters with other objectives.
    #[test]
    fn no_gradient_depends_on_how_a_batch_is_cut(
        names in prop::sample::subsequence(objectives().into_keys().collect::<Vec<_>>(), 1..4),
        budget in 1u32..300,
        checkpointed: bool,
    ) {
        let checkpointing = if checkpointed { Checkpointing::On } else { Checkpointing::Off };
        let together = joint_gradients(&names, budget, checkpointing);
        let whole = joint_gradients(&names, 10_000, Checkpointing::Off);
        for ((name, together), whole) in names.iter().zip(&together).zip(&whole) {
            assert_near(together, whole, name);
        }
        // The first policy alone: its adapter has the same seed in both.
        let alone = joint_gradients(&names[..1], 10_000, Checkpointing::Off);
        assert_near(&together[0], &alone[0], names[0]);
    }
}

/// Each objective once, since the property test draws only some of them.
#[test]
fn no_objective_depends_on_the_token_budget() {
    for name in objectives().into_keys() {
        let (cut, whole) = (
            joint_gradients(&[name, "at_grpo"], 40, Checkpointing::Off),
            joint_gradients(&[name], 10_000, Checkpointing::Off),
        );
        assert_near(&cut[0], &whole[0], name);
    }
}

#[test]
fn the_reference_of_an_adapter_is_its_base_or_its_start() {
    let config = config(true);
    let weights = weights(&config, 43);
    let adapter = adapter(&config, 22);
    let transitions = transitions(&config, &weights, &adapter, 0);
    let objective = Objective { kl: 0.1, kl_estimator: KlEstimator::K3, ..objective() };
    let divergence = |logp: f64, reference: f64| (reference - logp).exp_m1() + logp - reference;
    let expected = |reference: Option<&Adapter>| {
        let (mut sum, mut tokens) = (0.0, 0);
        for t in &transitions {
            let reference = no_grad(|| plain_logprobs(&config, &weights, reference, t));
            for (logp, reference) in t.logprobs.iter().zip(Vec::<f32>::try_from(reference).unwrap()) {
                sum += divergence(f64::from(*logp), f64::from(reference));
                tokens += 1;
            }
        }
        sum / f64::from(tokens)
    };
    for has_start in [false, true] {
        let new = NewPolicy { has_start, ..new_policy(0, &objective) };
        let mut learner =
            Learner::adapters(config.clone(), weights.shallow(), vec![(new, adapter.copy())], settings(64))
                .unwrap();
        let expected = expected(has_start.then_some(&adapter));
        for step in 0..2 {
            let metrics = first_step(&mut learner, &transitions).remove(0);
            let (kl, coefficient) = (metrics.reference_kl.unwrap(), metrics.kl_coefficient.unwrap());
            assert!((kl - expected).abs() < 1e-4 * expected.max(0.1), "{step}: {kl} and {expected}");
            assert_eq!(coefficient, 0.1);
        }
    }
    // Full training keeps a copy of the weights.
    let before = weights.copy();
    let mut learner =
        Learner::full(config.clone(), weights, Dtype::F32, new_policy(0, &objective), settings(64)).unwrap();
    let first = first_step(&mut learner, &transitions).remove(0).reference_kl.unwrap();
    assert!(!learner.base().working().norm.equal(&before.norm));
    let second = first_step(&mut learner, &transitions).remove(0).reference_kl.unwrap();
    // Both are relative to the log-probabilities of sampling, which stay the same.
    assert!((first - second).abs() < 1e-9, "{first} and {second}");
}

/// Weights of the correction are known before the update, or only in it.
#[test]
fn an_update_whose_completions_were_all_dropped_changes_nothing() {
    let config = config(true);
    let weights = weights(&config, 45);
    let adapter = adapter(&config, 24);
    let transitions = transitions(&config, &weights, &adapter, 0);
    let all = objectives();
    let bounds = |low: f64, high: f64, mut objective: Objective| {
        (objective.correction_low, objective.correction_high) = (low, high);
        objective
    };
    let recomputed = Objective { old_logprobs: OldLogprobs::Recompute, ..all["grpo"] };
    let planned = Objective { correction: Correction::SequenceMask, ..recomputed };
    for (name, objective) in [("planned", planned), ("icepop", all["icepop"]), ("mask", all["sequence_mask"])]
    {
        let run = |objectives: &[Objective]| {
            let decay = Optimizer { weight_decay: 0.1, ..new_policy(0, &objective).training.optimizer };
            let new = |objective| {
                let new = new_policy(0, objective);
                let training = PolicyTraining { optimizer: decay, ..new.training };
                NewPolicy { training, ..new }
            };
            let policies = vec![(new(&objectives[0]), adapter.copy())];
            let mut learner =
                Learner::adapters(config.clone(), weights.shallow(), policies, settings(64)).unwrap();
            let mut metrics = Vec::new();
            for objective in objectives {
                learner.policies[0].training.objective = *objective;
                metrics.extend(first_step(&mut learner, &transitions));
            }
            let state = learner.policies()[0].optimizer.state();
            let parameters = learner.policies()[0].optimizer.parameters();
            let all: Vec<_> = parameters.map(|(name, t)| (name.to_owned(), t.copy())).chain(state).collect();
            (metrics, all)
        };
        let (kept, dropped) = (bounds(0.0, 1e9, objective), bounds(1e8, 1e9, objective));
        let (metrics, state) = run(&[kept, dropped]);
        let of =
            |own: &UpdateMetrics| (own.optimizer_steps, own.skipped_steps, own.version, own.trained_tokens);
        assert_eq!(of(&metrics[0]), (1, 0, 1, metrics[0].trained_tokens), "{name}");
        assert!(metrics[0].trained_tokens > 0, "{name}");
        assert_eq!(of(&metrics[1]), (0, 0, 1, 0), "{name}");
        assert_eq!((metrics[1].effective_sample_size, metrics[1].grad_norm), (Some(0.0), 0.0), "{name}");
        // Momentum and weight decay move nothing either.
        assert!(same_bits(&state, &run(&[kept]).1), "{name}");
        // If a part is dropped, its tokens alone don't count.
        if objective.correction == Correction::SequenceMask {
            let (some, _) = run(&[bounds(0.98, 1.05, objective)]);
            assert!((1..metrics[0].trained_tokens).contains(&some[0].trained_tokens), "{name}: {some:?}");
        }
    }
}

#[test]
fn metrics_describe_completions_corrections_and_ratios() {
    let config = config(true);
    let weights = weights(&config, 44);
    let adapter = adapter(&config, 23);
    let transitions = transitions(&config, &weights, &adapter, 0);
    let run = |objective: &Objective| {
        let policies = vec![(new_policy(0, objective), adapter.copy())];
        let mut learner =
            Learner::adapters(config.clone(), weights.shallow(), policies, settings(64)).unwrap();
        first_step(&mut learner, &transitions).remove(0)
    };
    let plain = run(&objectives()["at_grpo"]);
    assert_eq!(plain.completions, 8);
    assert_eq!(plain.completion_length, (3..11).sum::<u32>() as f64 / 8.0);
    assert_eq!(plain.cut_off, 1.0 / 8.0);
    assert!((plain.advantage_std - 0.7).abs() < 0.1, "{plain:?}");
    assert_eq!((plain.effective_sample_size, plain.reference_kl, plain.kl_coefficient), (None, None, None));
    let [low, middle, high] = plain.ratio_quantiles.unwrap();
    assert!(low > 0.8 && low < 0.9 && (middle - 1.0).abs() < 0.1 && high > 1.1 && high < 1.23, "{plain:?}");
    let corrected = run(&objectives()["tis"]);
    let size = corrected.effective_sample_size.unwrap();
    assert!((0.9..1.0).contains(&size), "{size}");
    let dropped = run(&objectives()["icepop"]).effective_sample_size.unwrap();
    assert!((0.3..0.95).contains(&dropped), "{dropped}");
    let masked = run(&objectives()["dapo"]);
    assert_eq!(masked.completions, 8);
    assert!(masked.trained_tokens <= masked.tokens - 8);
}
