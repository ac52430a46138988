//! Setup of learners from policies, and the effect of updates on each policy.

use std::path::Path;

use pl_dsl::settings::ALGORITHMS;
use pl_dsl::workflow::{Lora, Policy, Train};
use pl_types::{Dtype, ModelDtype};
use tch::Tensor;

use pl_dsl::workflow::objective::{Advantage, Correction, Objective, OldLogprobs, Ratio, Scale};

use super::*;
use crate::fixtures::{model, policy, same_bits, starts_below, train, transition, workflow};
use crate::policy_setup::can_train;
use crate::preparation::TurnOutcome;

fn new_trainer(policies: Vec<Policy>, models: Vec<Model>) -> Trainer {
    let workflow = workflow(policies, Some(train()));
    Trainer::new(&workflow, starts_below(Path::new(".")), models, 1, Device::Cpu).unwrap()
}

/// Eight transitions per policy.
fn step(policies: u32) -> Vec<Transition> {
    let of_task = |i: u32| (0..policies).map(move |p| transition(p, i, 3 + i as usize % 3, 6));
    let mut transitions: Vec<_> = (0..8).flat_map(of_task).collect();
    for (i, transition) in transitions.iter_mut().enumerate() {
        // Two groups per policy.
        transition.group.task /= 4;
        transition.reward = [1.0, -0.5, 0.0, 0.7, -1.2][i % 5];
    }
    transitions
}

/// Every trained tensor, with names.
fn trained(trainer: &Trainer) -> Vec<(String, Tensor)> {
    let policies = trainer.learners().iter().flat_map(|learner| learner.policies());
    policies
        .flat_map(|policy| {
            let own = policy.optimizer.parameters().map(|(name, t)| (name.to_owned(), t.copy()));
            own.chain(policy.optimizer.state()).collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn adapters_of_one_model_share_a_learner() {
    let mut other = policy("c", true);
    other.model = 1;
    let policies = vec![policy("a", true), other, policy("b", true), policy("whole", false)];
    let trainer = new_trainer(policies, vec![model(true, 1), model(true, 2)]);
    let names: Vec<Vec<&str>> = trainer
        .learners()
        .iter()
        .map(|learner| learner.policies().iter().map(|policy| policy.name.as_str()).collect())
        .collect();
    assert_eq!(names, [vec!["a", "b"], vec!["c"], vec!["whole"]]);
    let served = trainer.policies();
    let bases: Vec<usize> = served.iter().map(|served| served.base).collect();
    assert_eq!(bases, [0, 1, 0, 2]);
    assert_eq!(trainer.versions(), [0, 0, 0, 0]);
    assert!(served[0].adapter.is_some() && served[3].adapter.is_none());
    // Adapters start with different weights: their seeds are derived from their names.
    let (a, b) = (served[0].adapter.as_ref().unwrap(), served[2].adapter.as_ref().unwrap());
    assert!(!same_bits(&a.parameters(), &b.parameters()));
    let again = new_trainer(vec![policy("b", true)], vec![model(true, 1)]);
    let again = again.policies().remove(0).adapter.unwrap();
    assert!(same_bits(&again.parameters(), &b.parameters()));
}

#[test]
fn f16_is_not_trained_on_a_gpu() {
    let gpu = Device::Cuda(0);
    for dtype in [ModelDtype::F32, ModelDtype::Bf16] {
        assert_eq!(can_train(dtype, gpu), Ok(()));
    }
    assert!(can_train(ModelDtype::F16, gpu).unwrap_err().contains("`dtype = bf16`"));
    // A CPU computes in f32.
    assert_eq!(can_train(ModelDtype::F16, Device::Cpu), Ok(()));
}

#[test]
fn only_shared_models_are_copied() {
    let one = model(true, 1);
    let original = one.weights.norm.data_ptr();
    let alone = new_trainer(vec![policy("whole", false)], vec![one]);
    assert_eq!(alone.bases()[0].weights.norm.data_ptr(), original);

    let one = model(true, 1);
    let original = one.weights.norm.data_ptr();
    let mixed = new_trainer(vec![policy("whole", false), policy("a", true), policy("all", false)], vec![one]);
    let is_original: Vec<bool> = mixed
        .policies()
        .iter()
        .map(|served| mixed.bases()[served.base].weights.norm.data_ptr() == original)
        .collect();
    assert_eq!(is_original, [false, true, false]);
}

#[test]
fn full_training_does_not_change_the_base_of_adapters() {
    let policies = vec![policy("a", true), policy("whole", false)];
    let mut trainer = new_trainer(policies, vec![model(true, 3)]);
    let before = trainer.bases()[0].weights.copy();
    let transitions = step(2);
    let metrics = trainer.update(1, &transitions, None, &mut |_| {}).unwrap();
    let names: Vec<&str> = metrics.policies.iter().map(|m| m.policy.as_str()).collect();
    assert_eq!(names, ["a", "whole"]);
    assert_eq!(trainer.versions(), [1, 1]);
    assert!(same_bits(&trainer.bases()[0].weights.parameters(), &before.parameters()));
    assert!(!trainer.bases()[1].weights.norm.equal(&before.norm));
}

#[test]
fn served_adapters_share_memory_with_trained_ones() {
    let mut trainer = new_trainer(vec![policy("a", true)], vec![model(true, 4)]);
    let served = trainer.policies().remove(0).adapter.unwrap();
    let then = served.copy();
    let transitions = step(1);
    trainer.update(1, &transitions, None, &mut |_| {}).unwrap();
    assert!(!same_bits(&served.parameters(), &then.parameters()));
    let now = trainer.served(0).unwrap();
    assert_eq!(now.version, 1);
    let now = now.adapter.unwrap();
    assert!(same_bits(&now.parameters(), &served.parameters()));
    assert!(now.parameters().iter().all(|(_, t)| !t.requires_grad()));
}

/// 16-bit policies compute with rounded weights and are trained as f32 masters.
#[test]
fn a_models_number_format_reaches_its_learner() {
    let mut half = model(false, 5);
    (half.weights, half.dtype) = (half.weights.round_to(Dtype::F16).unwrap(), ModelDtype::F16);
    let mut trainer = new_trainer(vec![policy("whole", false)], vec![half]);
    let transitions = step(1);
    trainer.update(1, &transitions, None, &mut |_| {}).unwrap();
    assert_eq!(trainer.bases()[0].dtype, ModelDtype::F16);
    let working = trainer.bases()[0].weights.parameters();
    let rounded = trainer.bases()[0].weights.round_to(Dtype::F16).unwrap().parameters();
    assert!(same_bits(&working, &rounded));
    let masters = trainer.learners()[0].base().masters().unwrap();
    assert!(!same_bits(&masters.parameters(), &working));
    assert!(same_bits(&masters.round_to(Dtype::F16).unwrap().parameters(), &working));
}

#[test]
fn updates_are_bit_identical_for_any_order_of_transitions() {
    let run = |reversed: bool| {
        let mut policies = vec![policy("a", true), policy("b", true), policy("whole", false)];
        change_objective(&mut policies[1], |objective| {
            (objective.kl, objective.entropy, objective.ratio) = (0.1, 0.01, Ratio::Sequence);
        });
        change_objective(&mut policies[2], |objective| {
            (objective.advantage, objective.scale) = (Advantage::Ema, Scale::Batch);
            (objective.old_logprobs, objective.correction) = (OldLogprobs::Recompute, Correction::Tis);
        });
        let train = Train { epochs: 2, mini_batches: 3, ..train() };
        let workflow = workflow(policies, Some(train));
        let mut trainer =
            Trainer::new(&workflow, starts_below(Path::new(".")), vec![model(false, 5)], 7, Device::Cpu)
                .unwrap();
        let mut metrics = Vec::new();
        for number in 1..3 {
            let mut transitions = step(3);
            if reversed {
                transitions.reverse();
            }
            metrics.push(trainer.update(number, &transitions, None, &mut |_| {}).unwrap());
        }
        (trained(&trainer), metrics)
    };
    let (first, first_metrics) = run(false);
    let (second, second_metrics) = run(true);
    assert!(same_bits(&first, &second));
    assert_eq!(first_metrics, second_metrics);
}

#[test]
fn no_published_algorithm_depends_on_the_order_of_transitions() {
    let run = |lora: bool, reversed: bool| {
        let published = ALGORITHMS.iter().filter(|one| one.objective.advantage != Advantage::Gae);
        let policies: Vec<Policy> = published
            .map(|one| {
                let mut policy = policy(one.word, lora);
                change_objective(&mut policy, |objective| {
                    *objective = Objective { divisor: Some(10), ..one.objective };
                });
                policy
            })
            .collect();
        let count = policies.len() as u32;
        let mut trainer = new_trainer(policies, vec![model(false, 5)]);
        let mut transitions = step(count);
        if reversed {
            transitions.reverse();
            transitions.rotate_left(17);
        }
        let metrics = trainer.update(1, &transitions, None, &mut |_| {}).unwrap();
        (trained(&trainer), metrics)
    };
    for lora in [true, false] {
        let ((first, first_metrics), (second, second_metrics)) = (run(lora, false), run(lora, true));
        assert!(same_bits(&first, &second));
        assert_eq!(first_metrics, second_metrics);
    }
}

#[test]
fn training_of_a_policy_does_not_depend_on_other_policies() {
    let train = Train { epochs: 2, mini_batches: 3, ..train() };
    let run = |policies: Vec<Policy>, count: u32| {
        let workflow = workflow(policies, Some(train.clone()));
        let mut trainer =
            Trainer::new(&workflow, starts_below(Path::new(".")), vec![model(true, 6)], 7, Device::Cpu)
                .unwrap();
        let transitions = step(2);
        let own: Vec<usize> = (0..transitions.len()).filter(|&i| transitions[i].policy < count).collect();
        let transitions: Vec<_> = own.iter().map(|&i| transitions[i].clone()).collect();
        trainer.update(1, &transitions, None, &mut |_| {}).unwrap();
        trainer.policies().remove(0).adapter.unwrap()
    };
    let joint = run(vec![policy("a", true), policy("b", true)], 2);
    let alone = run(vec![policy("a", true)], 1);
    for ((name, a), (_, b)) in joint.parameters().iter().zip(alone.parameters()) {
        // Six steps of AdamW: where a gradient is near zero, its sign is rounding.
        let mean = (a - b).abs().mean(tch::Kind::Float).double_value(&[]);
        assert!(mean < 1e-4, "{name}: {mean}");
    }
}

#[test]
fn learners_side_by_side_have_the_bits_of_learners_in_turn() {
    let setup = || {
        let mut policies = vec![policy("a", true), policy("x", false), policy("y", false), policy("b", true)];
        policies[3].model = 1;
        change_objective(&mut policies[1], |objective| objective.old_logprobs = OldLogprobs::Recompute);
        let train = Train { epochs: 2, mini_batches: 3, ..train() };
        let models = vec![model(false, 5), model(true, 6)];
        Trainer::new(&workflow(policies, Some(train)), starts_below(Path::new(".")), models, 7, Device::Cpu)
            .unwrap()
    };
    let (mut together, mut in_turn) = (setup(), setup());
    for number in 1..3 {
        let transitions = step(4);
        let mut last = None;
        together.update(number, &transitions, None, &mut |progress| last = Some(progress)).unwrap();
        let UpdateProgress { done, total } = last.unwrap();
        assert!(done == total && total > 4, "{done} of {total}");
        let mut sorted: Vec<&Transition> = transitions.iter().collect();
        sorted.sort_by(|a, b| a.key.cmp(&b.key));
        for learner in &mut in_turn.learners {
            let is_own = |transition: &&Transition| {
                learner.policies().iter().any(|policy| policy.policy == transition.policy as usize)
            };
            let own: Vec<_> =
                sorted.iter().copied().filter(is_own).map(|t| (t, TurnOutcome::from(t))).collect();
            let planned = learner.prepare(number, &own, None).unwrap();
            learner.update(&planned, &mut || {}).unwrap();
        }
        assert!(same_bits(&trained(&together), &trained(&in_turn)));
    }
    let learners = together.learners_to_train().unwrap();
    let names: Vec<String> = learners.iter().flat_map(|learner| learner.names()).collect();
    assert_eq!(names, ["a", "b", "x", "y"]);
}

fn change_objective(policy: &mut Policy, change: impl FnOnce(&mut Objective)) {
    change(&mut policy.training.as_mut().unwrap().objective);
}

#[test]
fn each_policy_follows_its_own_settings() {
    let mut policies = vec![policy("fast", true), policy("slow", true), policy("late", true)];
    for (policy, rate) in policies.iter_mut().zip([1e-2, 1e-5, 1e-2]) {
        let training = policy.training.as_mut().unwrap();
        training.optimizer.learning_rate = rate;
        training.update_every = 2;
    }
    policies[2].training.as_mut().unwrap().freeze = 1;
    let mut trainer = new_trainer(policies, vec![model(true, 3)]);
    let transitions = step(3);
    let mut versions = Vec::new();
    let mut updated = Vec::new();
    for number in 1..5 {
        let metrics = trainer.update(number, &transitions, None, &mut |_| {}).unwrap();
        updated.push(metrics.policies.iter().map(|own| (own.policy.clone(), own.lr)).collect::<Vec<_>>());
        versions.push(trainer.versions());
    }
    // Two policies take turns with a third.
    assert_eq!(versions, [[1, 1, 0], [1, 1, 1], [2, 2, 1], [2, 2, 2]]);
    let (fast, slow, late) =
        (("fast".to_owned(), 1e-2), ("slow".to_owned(), 1e-5), ("late".to_owned(), 1e-2));
    let first = vec![fast, slow];
    assert_eq!(updated, [first.clone(), vec![late.clone()], first, vec![late]]);
    let start = new_trainer(vec![policy("fast", true), policy("slow", true)], vec![model(true, 3)]);
    let distance = |index: usize| -> f64 {
        let (now, then) = (trainer.policies().remove(index), start.policies().remove(index));
        let pairs = now.adapter.unwrap().parameters().into_iter().zip(then.adapter.unwrap().parameters());
        pairs.map(|((_, a), (_, b))| (a - b).abs().max().double_value(&[])).fold(0.0, f64::max)
    };
    assert!(distance(0) > 1e-3 && distance(1) < 1e-4, "{} and {}", distance(0), distance(1));
}

/// One policy decays its matrices, and another one follows the first gradient alone.
#[test]
fn each_policy_has_an_optimizer_of_its_own() {
    let run = |change: fn(&mut Policy)| {
        let mut policies = vec![policy("plain", true), policy("other", true)];
        change(&mut policies[1]);
        let mut trainer = new_trainer(policies, vec![model(true, 3)]);
        for number in 1..3 {
            trainer.update(number, &step(2), None, &mut |_| {}).unwrap();
        }
        let adapters = trainer.policies().into_iter().map(|served| served.adapter.unwrap().parameters());
        adapters.collect::<Vec<_>>()
    };
    let same = run(|_| {});
    for change in [
        (|policy| policy.training.as_mut().unwrap().optimizer.weight_decay = 0.5) as fn(&mut Policy),
        |policy| policy.training.as_mut().unwrap().optimizer.beta1 = 0.0,
        |policy| policy.training.as_mut().unwrap().optimizer.beta2 = 0.5,
    ] {
        let changed = run(change);
        assert!(same_bits(&same[0], &changed[0]));
        assert!(!same_bits(&same[1], &changed[1]));
    }
}

/// The control experiment: rewards keep their groups, but not their completions.
#[test]
fn shuffled_rewards_change_the_update_reproducibly() {
    let run = |shuffle: Option<[u8; 32]>| {
        let mut trainer = new_trainer(vec![policy("a", true)], vec![model(true, 4)]);
        let metrics = trainer.update(1, &step(1), shuffle, &mut |_| {}).unwrap();
        (trained(&trainer), metrics)
    };
    let ((plain, first), (shuffled, second)) = (run(None), run(Some([3; 32])));
    assert!(!same_bits(&plain, &shuffled));
    assert!(same_bits(&run(Some([3; 32])).0, &shuffled));
    assert_eq!((first.groups, first.flat_groups), (second.groups, second.flat_groups));
}

#[test]
fn transitions_of_frozen_policies_are_ignored() {
    let mut frozen = policy("frozen", true);
    frozen.train = false;
    let mut trainer = new_trainer(vec![policy("a", true), frozen], vec![model(true, 7)]);
    assert!(trainer.served(1).unwrap().adapter.is_none());
    assert_eq!(trainer.policies().iter().map(|served| served.trained).collect::<Vec<_>>(), [true, false]);
    let transitions = step(2);
    let mut seen = Vec::new();
    let metrics = trainer.update(1, &transitions, None, &mut |p| seen.push(p)).unwrap();
    assert_eq!(metrics.policies.len(), 1);
    assert_eq!(trainer.versions(), [1, 0]);
    let done: Vec<u64> = seen.iter().map(|p| p.done).collect();
    assert_eq!(done, (0..=metrics.batches).collect::<Vec<_>>());
    assert!(metrics.batches > 1 && seen.iter().all(|p| p.total == metrics.batches));
}

#[test]
fn without_a_train_block_policies_are_served_as_they_are() {
    let workflow = workflow(vec![policy("a", true), policy("whole", false)], None);
    let mut trainer =
        Trainer::new(&workflow, starts_below(Path::new(".")), vec![model(true, 8)], 1, Device::Cpu).unwrap();
    assert!(trainer.learners().is_empty());
    assert_eq!(trainer.bases().len(), 1);
    assert!(trainer.policies().iter().all(|served| served.adapter.is_none() && served.base == 0));
    let message = trainer.update(1, &[], None, &mut |_| {}).unwrap_err().to_string();
    assert!(message.contains("trains no policy"), "{message}");
}

#[test]
fn policies_start_from_adapters_and_models() {
    let folder = tempfile::tempdir().unwrap();
    let mut first = new_trainer(vec![policy("a", true), policy("whole", false)], vec![model(true, 9)]);
    let transitions = step(2);
    first.update(1, &transitions, None, &mut |_| {}).unwrap();
    first.export(folder.path()).unwrap();
    let adapter = first.policies().remove(0).adapter.unwrap();
    let weights = first.bases()[1].weights.copy();

    let from = |name: &str, lora: bool, train: bool, from: &str| Policy {
        train,
        from: Some(from.to_owned()),
        ..policy(name, lora)
    };
    let start = |policies: Vec<Policy>| {
        let workflow = workflow(policies, Some(train()));
        Trainer::new(&workflow, starts_below(folder.path()), vec![model(true, 9)], 2, Device::Cpu)
    };
    let policies = vec![
        from("b", true, true, "a"),
        from("c", false, false, "a"),
        from("d", false, true, "whole"),
        from("e", false, false, "whole"),
    ];
    let second = start(policies).unwrap();
    let served = second.policies();
    for index in [0, 1] {
        let got = served[index].adapter.as_ref().unwrap().parameters();
        assert!(same_bits(&got, &adapter.parameters()));
        assert_eq!(served[index].base, 0);
    }
    for index in [2, 3] {
        let got = second.bases()[served[index].base].weights.parameters();
        assert!(same_bits(&got, &weights.parameters()));
    }
    assert_ne!(served[2].base, served[3].base);
    assert_eq!(second.learners().len(), 2);

    let refused = |policy: Policy, part: &str| {
        let message = start(vec![policy]).unwrap_err().to_string();
        assert!(message.starts_with("policy `x`: ") && message.contains(part), "{message}");
    };
    refused(from("x", true, true, "whole"), "has a `lora` block");
    refused(from("x", false, true, "a"), "has no `lora` block");
    refused(from("x", true, true, "missing"), "does not exist");
    let mut wider = from("x", true, true, "a");
    wider.lora = wider.lora.map(|lora| Lora { rank: 5, ..lora });
    refused(wider, "rank 3, alpha 6 on q k v o gate up down; the policy's `lora` block says rank 5");
    let small = model(false, 9);
    small
        .weights
        .save_folder(
            &folder.path().join("small"),
            &small.config,
            &small.tokenizer,
            &small.template,
            Dtype::F32,
        )
        .unwrap();
    refused(from("x", false, true, "small"), "other dimensions");
}

#[test]
fn mismatched_counts_are_refused() {
    let message = Trainer::new(
        &workflow(vec![policy("a", true)], Some(train())),
        starts_below(Path::new(".")),
        Vec::new(),
        1,
        Device::Cpu,
    )
    .unwrap_err()
    .to_string();
    assert!(message.contains("0 models were loaded for the 1"), "{message}");
    let mut trainer = new_trainer(vec![policy("a", true)], vec![model(true, 1)]);
    let message = trainer.update(1, &[transition(9, 0, 2, 2)], None, &mut |_| {}).unwrap_err().to_string();
    assert!(message.contains("no policy 9"), "{message}");
}
