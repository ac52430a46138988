//! Saved and loaded is as if never stopped; damage is found; the right ones are kept.

use pl_dsl::workflow::Train;
use pl_record::transition::Transition;
use serde_json::json;

use super::*;
use crate::fixtures::{model, policy, same_bits, train, transition, workflow};

/// An adapter pair and a fully trained policy on one model.
fn fresh() -> Trainer {
    let policies = vec![policy("a", true), policy("b", true), policy("whole", false)];
    let train = Train { mini_batches: 2, weight_decay: 0.01, warmup: 3, ..train() };
    let workflow = workflow(policies, Some(train));
    Trainer::new(&workflow, Path::new("."), vec![model(true, 1)], 11, Device::Cpu).unwrap()
}

fn update(trainer: &mut Trainer, step: u64) -> crate::StepMetrics {
    let transitions: Vec<Transition> = (0..6)
        .flat_map(|i| (0..3).map(move |p| transition(p, i + step as u32 * 7, 4, 5 + i as usize)))
        .collect();
    let advantages: Vec<f64> =
        (0..transitions.len()).map(|i| ((i * 5 + step as usize) % 7) as f64 - 3.0).collect();
    trainer.update(step, &transitions, &advantages, &mut |_| {}).unwrap()
}

/// All that a trainer can change: tensors, and versions with optimiser steps.
type Everything = (Vec<(String, Tensor)>, Vec<(u64, u64)>);

fn everything(trainer: &Trainer) -> Everything {
    let members = trainer.learners().iter().flat_map(|learner| learner.members());
    let counters = members.clone().map(|m| (m.version, m.optimizer.steps())).collect();
    let tensors = members
        .flat_map(|member| {
            let own = member.optimizer.parameters().map(|(name, t)| (name.to_owned(), t.copy()));
            own.chain(member.optimizer.state()).collect::<Vec<_>>()
        })
        .collect();
    (tensors, counters)
}

fn assert_same(a: &Trainer, b: &Trainer) {
    let ((tensors, counters), (other_tensors, other_counters)) = (everything(a), everything(b));
    assert!(same_bits(&tensors, &other_tensors));
    assert_eq!(counters, other_counters);
}

#[test]
fn a_resumed_run_is_the_run_that_was_not_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path().join("checkpoints"), 2);
    let mut straight = fresh();
    update(&mut straight, 0);
    update(&mut straight, 1);
    let state = json!({ "cursor": 16, "lengths": { "metrics.jsonl": 1234 } });
    let path = checkpoints.save(&straight, 2, Some(0.25), &state).unwrap();
    assert!(path.ends_with("checkpoints/step-00000002"));

    let mut resumed = fresh();
    let restored = resumed.load(&path).unwrap();
    assert_eq!(restored, Restored { step: 2, score: Some(0.25), state });
    assert_same(&straight, &resumed);
    for step in 2..4 {
        assert_eq!(update(&mut straight, step), update(&mut resumed, step));
        assert_same(&straight, &resumed);
    }
    // What is saved is not what the learners started from.
    assert!(!same_bits(&everything(&straight).0, &everything(&fresh()).0));
}

#[test]
fn loading_goes_over_a_state_that_moved_on() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path(), 1);
    let mut trainer = fresh();
    update(&mut trainer, 0);
    let then = everything(&trainer);
    let path = checkpoints.save(&trainer, 1, None, &Value::Null).unwrap();
    update(&mut trainer, 1);
    trainer.load(&path).unwrap();
    let now = everything(&trainer);
    assert_eq!(now.1, then.1);
    let mut straight = fresh();
    update(&mut straight, 0);
    assert_same(&straight, &trainer);
}

#[test]
fn the_newest_and_the_best_stay() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path(), 2);
    let trainer = fresh();
    assert_eq!(checkpoints.latest().unwrap(), None);
    let scores = [Some(0.1), Some(0.7), None, Some(0.7), Some(f64::NAN), Some(0.3)];
    for (step, score) in scores.into_iter().enumerate() {
        checkpoints.save(&trainer, step as u64, score, &Value::Null).unwrap();
    }
    let steps: Vec<u64> = checkpoints.list().unwrap().iter().map(|entry| entry.step).collect();
    assert_eq!(steps, [1, 4, 5]);
    assert_eq!(checkpoints.best().unwrap().unwrap().step, 1);
    assert_eq!(checkpoints.latest().unwrap().unwrap().step, 5);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
}

#[test]
fn one_of_the_same_step_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path(), 3);
    let mut trainer = fresh();
    checkpoints.save(&trainer, 4, None, &json!("old")).unwrap();
    update(&mut trainer, 0);
    let path = checkpoints.save(&trainer, 4, None, &json!("new")).unwrap();
    let mut other = fresh();
    assert_eq!(other.load(&path).unwrap().state, json!("new"));
    assert_same(&trainer, &other);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn unfinished_ones_are_passed_over_and_swept() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path(), 3);
    let mut trainer = fresh();
    let path = checkpoints.save(&trainer, 1, None, &Value::Null).unwrap();
    let unfinished = folder.path().join("step-00000002.partial");
    fs::rename(checkpoints.save(&trainer, 2, None, &Value::Null).unwrap(), &unfinished).unwrap();
    assert_eq!(checkpoints.latest().unwrap().unwrap().path, path);
    let message = trainer.load(&unfinished).unwrap_err().to_string();
    assert!(message.contains("not a whole checkpoint"), "{message}");
    checkpoints.save(&trainer, 3, None, &Value::Null).unwrap();
    assert!(!unfinished.exists());
}

#[test]
fn damage_is_found_before_anything_changes() {
    let folder = tempfile::tempdir().unwrap();
    let mut trainer = fresh();
    update(&mut trainer, 0);
    let path = Checkpoints::new(folder.path(), 1).save(&trainer, 1, None, &Value::Null).unwrap();
    let files = [
        "policies/a/adapter_model.safetensors",
        "policies/b/adapter_config.json",
        "policies/whole/model.safetensors",
        "policies/whole/config.json",
        "optimizers/a.safetensors",
        "optimizers/whole.safetensors",
        MANIFEST,
        SEAL,
    ];
    let mut other = fresh();
    let before = everything(&other);
    for name in files {
        let file = path.join(name);
        let whole = fs::read(&file).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        for bytes in [&whole[..whole.len() / 2], &flipped] {
            fs::write(&file, bytes).unwrap();
            let message = other.load(&path).unwrap_err().to_string();
            assert!(message.contains("the checkpoint is damaged"), "{message}");
            assert!(message.contains("resume from an older one"), "{message}");
            let reported = if name == SEAL { MANIFEST } else { name };
            assert!(message.contains(reported), "{message}");
        }
        fs::remove_file(&file).unwrap();
        assert!(other.load(&path).is_err(), "{name} is missing");
        fs::write(&file, whole).unwrap();
    }
    let after = everything(&other);
    assert!(same_bits(&before.0, &after.0) && before.1 == after.1);
    other.load(&path).unwrap();
    assert_same(&trainer, &other);
}

#[test]
fn a_checkpoint_of_other_policies_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = Checkpoints::new(folder.path(), 1).save(&fresh(), 1, None, &Value::Null).unwrap();
    let load = |policies| {
        let workflow = workflow(policies, Some(train()));
        let mut trainer =
            Trainer::new(&workflow, Path::new("."), vec![model(true, 1)], 1, Device::Cpu).unwrap();
        trainer.load(&path).unwrap_err().to_string()
    };
    let message = load(vec![policy("a", true), policy("other", true), policy("whole", false)]);
    assert!(message.contains("holds no policy `other`"), "{message}");
    let message = load(vec![policy("a", true)]);
    assert!(message.contains("a policy `b` that the workflow does not train"), "{message}");
    let mut wider = policy("a", true);
    wider.lora.as_mut().unwrap().rank = 2;
    let message = load(vec![wider, policy("b", true), policy("whole", false)]);
    assert!(message.contains("resume with the workflow that it was made with"), "{message}");
}
