//! A resumed run equals an uninterrupted one; damage is detected; the right checkpoints are kept.

use pl_dsl::workflow::Train;
use pl_dsl::workflow::objective::{Advantage, Baseline, Optimizer, Scale};
use pl_types::Transition;
use serde_json::json;

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tch::{Device, Tensor};

use super::manifest::{LARGEST_MANIFEST, MANIFEST, MANIFEST_HASH};
use super::*;
use crate::fixtures::{model, optimizer, policy, same_bits, starts_below, train, transition, workflow};
use crate::preparation::ObjectiveState;

/// Two adapters and a fully trained policy on one model.
fn new_trainer() -> Trainer {
    let mut policies = vec![policy("a", true), policy("b", true), policy("whole", false)];
    for training in policies.iter_mut().filter_map(|policy| policy.training.as_mut()) {
        training.optimizer = Optimizer { weight_decay: 0.01, warmup: 3, ..optimizer() };
    }
    // State of an objective: moving averages and an adaptive coefficient.
    for training in policies[1..].iter_mut().filter_map(|policy| policy.training.as_mut()) {
        training.objective.advantage = Advantage::Ema;
        (training.objective.baseline, training.objective.scale) = (Baseline::None, Scale::Batch);
        (training.objective.kl, training.objective.kl_target) = (0.1, Some(0.02));
        training.objective.kl_horizon = 100.0;
    }
    let train = Train { mini_batches: 2, ..train() };
    let workflow = workflow(policies, Some(train));
    Trainer::new(&workflow, starts_below(Path::new(".")), vec![model(true, 1)], 11, Device::Cpu).unwrap()
}

fn update(trainer: &mut Trainer, step: u64) -> crate::StepMetrics {
    let mut transitions: Vec<Transition> = (0..6)
        .flat_map(|i| (0..3).map(move |p| transition(p, i + step as u32 * 7, 4, 5 + i as usize)))
        .collect();
    for (i, transition) in transitions.iter_mut().enumerate() {
        transition.group.task = 0;
        transition.reward = ((i * 5 + step as usize) % 7) as f64 - 3.0;
    }
    trainer.update(step + 1, &transitions, None, &mut |_| {}).unwrap()
}

/// Everything that a trainer can change: tensors, and versions with optimiser steps and objectives.
type TrainerState = (Vec<(String, Tensor)>, Vec<(u64, u64, ObjectiveState)>);

fn trainer_state(trainer: &Trainer) -> TrainerState {
    let policies = trainer.learners().iter().flat_map(|learner| learner.policies());
    let counters = policies.clone().map(|m| (m.version, m.optimizer.steps(), m.state.clone())).collect();
    let tensors = policies
        .flat_map(|policy| {
            let own = policy.optimizer.parameters().map(|(name, t)| (name.to_owned(), t.copy()));
            own.chain(policy.optimizer.state()).collect::<Vec<_>>()
        })
        .collect();
    (tensors, counters)
}

fn assert_same(a: &Trainer, b: &Trainer) {
    let ((tensors, counters), (other_tensors, other_counters)) = (trainer_state(a), trainer_state(b));
    assert!(same_bits(&tensors, &other_tensors));
    assert_eq!(counters, other_counters);
}

#[test]
fn a_resumed_run_equals_an_uninterrupted_run() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path().join("checkpoints"), 2);
    let mut straight = new_trainer();
    update(&mut straight, 0);
    update(&mut straight, 1);
    let state = json!({ "cursor": 16, "lengths": { "metrics.jsonl": 1234 } });
    let path = checkpoints.save(&straight, 2, Some(score(0.25)), &state).unwrap();
    assert!(path.ends_with("checkpoints/step-00000002"));

    let mut resumed = new_trainer();
    let restored = resumed.load(&path).unwrap();
    assert_eq!(restored, RestoredCheckpoint { step: 2, score: Some(score(0.25)), state });
    assert_same(&straight, &resumed);
    for step in 2..4 {
        assert_eq!(update(&mut straight, step), update(&mut resumed, step));
        assert_same(&straight, &resumed);
    }
    // The state has changed since the start.
    assert!(!same_bits(&trainer_state(&straight).0, &trainer_state(&new_trainer()).0));
}

#[test]
fn loading_replaces_a_later_state() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path(), 1);
    let mut trainer = new_trainer();
    update(&mut trainer, 0);
    let then = trainer_state(&trainer);
    let path = checkpoints.save(&trainer, 1, None, &Value::Null).unwrap();
    update(&mut trainer, 1);
    trainer.load(&path).unwrap();
    let now = trainer_state(&trainer);
    assert_eq!(now.1, then.1);
    let mut straight = new_trainer();
    update(&mut straight, 0);
    assert_same(&straight, &trainer);
}

fn score(value: f64) -> EvaluationScore {
    EvaluationScore { evaluation: "held_out".to_owned(), value }
}

#[test]
fn scores_of_different_evaluations_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path(), 1);
    let trainer = new_trainer();
    let easy = EvaluationScore { evaluation: "easy".to_owned(), value: 0.9 };
    checkpoints.save(&trainer, 1, Some(easy), &Value::Null).unwrap();
    assert_eq!(checkpoints.best().unwrap().unwrap().step, 1);
    for (step, value) in [(2, 0.3), (3, 0.2), (4, 0.1)] {
        checkpoints.save(&trainer, step, Some(score(value)), &Value::Null).unwrap();
    }
    assert_eq!(checkpoints.best().unwrap().unwrap().step, 2);
    // The best of the earlier evaluation stays: nothing shows that another one is better.
    let steps: Vec<u64> = checkpoints.list().unwrap().iter().map(|entry| entry.step).collect();
    assert_eq!(steps, [1, 2, 4]);
    assert_eq!(fs::read_link(folder.path().join("best")).unwrap(), Path::new("step-00000002"));
}

#[test]
fn a_manifest_that_can_not_be_read_is_an_error_instead_of_a_missing_score() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path(), 2);
    let trainer = new_trainer();
    let first = checkpoints.save(&trainer, 1, Some(score(0.9)), &Value::Null).unwrap();
    checkpoints.save(&trainer, 2, Some(score(0.1)), &Value::Null).unwrap();
    // A folder in place of a file exists, but reading it fails.
    for name in [MANIFEST, MANIFEST_HASH] {
        let file = first.join(name);
        let whole = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        for message in
            [checkpoints.best().unwrap_err(), checkpoints.tidy().unwrap_err()].map(|e| e.to_string())
        {
            assert!(message.contains(name) && message.contains("read the file"), "{message}");
        }
        assert!(first.is_dir());
        fs::remove_dir(&file).unwrap();
        fs::write(&file, whole).unwrap();
    }
    assert_eq!(checkpoints.best().unwrap().unwrap().step, 1);
}

#[test]
fn the_newest_and_the_best_checkpoints_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path(), 2);
    let trainer = new_trainer();
    assert_eq!(checkpoints.latest().unwrap(), None);
    let scores = [Some(0.1), Some(0.7), None, Some(0.7), Some(f64::NAN), Some(0.3)];
    for (step, score) in scores.into_iter().enumerate() {
        checkpoints.save(&trainer, step as u64, score.map(self::score), &Value::Null).unwrap();
    }
    let steps: Vec<u64> = checkpoints.list().unwrap().iter().map(|entry| entry.step).collect();
    assert_eq!(steps, [1, 4, 5]);
    assert_eq!(checkpoints.best().unwrap().unwrap().step, 1);
    assert_eq!(checkpoints.latest().unwrap().unwrap().step, 5);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4, "three checkpoints and the link");
    assert_eq!(fs::read_link(folder.path().join("best")).unwrap(), Path::new("step-00000001"));
}

#[test]
fn a_checkpoint_of_the_same_step_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path(), 3);
    let mut trainer = new_trainer();
    checkpoints.save(&trainer, 4, None, &json!("old")).unwrap();
    update(&mut trainer, 0);
    let path = checkpoints.save(&trainer, 4, None, &json!("new")).unwrap();
    let mut other = new_trainer();
    assert_eq!(other.load(&path).unwrap().state, json!("new"));
    assert_same(&trainer, &other);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

/// Environment variable with the folder in which [`a_child_replaces_a_checkpoint`] works.
const REPLACED_IN: &str = "PL_TRAINER_REPLACED_IN";

/// SIGKILL between the two renames: the old checkpoint is set aside, and the new one does not have its name yet.
#[test]
fn a_kill_while_a_checkpoint_is_replaced_leaves_the_one_before() {
    if !pl_testing::has_strace() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path(), 3);
    let mut straight = new_trainer();
    update(&mut straight, 0);
    let before = checkpoints.save(&straight, 1, None, &Value::Null).unwrap();
    update(&mut straight, 1);
    let replaced = checkpoints.save(&straight, 2, None, &Value::Null).unwrap();

    let renames = "rename,renameat,renameat2";
    let (trace, inject) = (format!("trace={renames}"), format!("inject={renames}:signal=KILL:when=1"));
    let child = "checkpoint::tests::a_child_replaces_a_checkpoint";
    let killed = Command::new("strace")
        .args(["-f", "-e", &trace, "-e", &inject, "-o", "/dev/null", "-P"])
        .arg(with_suffix(&replaced, PARTIAL))
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", child, "--ignored", "--nocapture"])
        .env(REPLACED_IN, folder.path())
        .output()
        .unwrap();
    assert_eq!(killed.status.signal(), Some(9), "{}", String::from_utf8_lossy(&killed.stdout));
    let left = list_folder(folder.path()).unwrap();
    let aside = with_suffix(&replaced, &format!(".old{PARTIAL}"));
    assert_eq!(left, [before.clone(), aside, with_suffix(&replaced, PARTIAL)]);

    assert_eq!(checkpoints.latest().unwrap().unwrap().path, before);
    let mut resumed = new_trainer();
    resumed.load(&before).unwrap();
    update(&mut resumed, 1);
    assert_same(&straight, &resumed);
    let saved = checkpoints.save(&resumed, 2, None, &Value::Null).unwrap();
    assert_eq!(list_folder(folder.path()).unwrap(), [before, saved.clone()]);
    let mut again = new_trainer();
    again.load(&saved).unwrap();
    assert_same(&straight, &again);
}

#[test]
#[ignore = "started by the test above"]
fn a_child_replaces_a_checkpoint() {
    let Some(folder) = std::env::var_os(REPLACED_IN) else { return };
    Checkpoints::new(folder, 3).save(&new_trainer(), 2, None, &Value::Null).unwrap();
}

#[test]
fn unfinished_checkpoints_are_ignored_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path(), 3);
    let mut trainer = new_trainer();
    let path = checkpoints.save(&trainer, 1, None, &Value::Null).unwrap();
    let unfinished = folder.path().join("step-00000002.partial");
    fs::rename(checkpoints.save(&trainer, 2, None, &Value::Null).unwrap(), &unfinished).unwrap();
    assert_eq!(checkpoints.latest().unwrap().unwrap().path, path);
    let message = trainer.load(&unfinished).unwrap_err().to_string();
    assert!(message.contains("not a complete checkpoint"), "{message}");
    checkpoints.save(&trainer, 3, None, &Value::Null).unwrap();
    assert!(!unfinished.exists());
}

#[test]
fn damage_is_detected_before_anything_changes() {
    let folder = tempfile::tempdir().unwrap();
    let mut trainer = new_trainer();
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
        MANIFEST_HASH,
    ];
    let mut other = new_trainer();
    let before = trainer_state(&other);
    for name in files {
        let file = path.join(name);
        let whole = fs::read(&file).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        for bytes in [&whole[..whole.len() / 2], &flipped] {
            fs::write(&file, bytes).unwrap();
            let message = other.load(&path).unwrap_err().to_string();
            assert!(message.contains("the checkpoint is damaged"), "{message}");
            assert!(message.contains("resume from an older checkpoint"), "{message}");
            let reported = if name == MANIFEST_HASH { MANIFEST } else { name };
            assert!(message.contains(reported), "{message}");
        }
        fs::remove_file(&file).unwrap();
        assert!(other.load(&path).is_err(), "{name} is missing");
        fs::write(&file, whole).unwrap();
    }
    let after = trainer_state(&other);
    assert!(same_bits(&before.0, &after.0) && before.1 == after.1);
    other.load(&path).unwrap();
    assert_same(&trainer, &other);
}

/// Changes the manifest of a checkpoint as its author can: its hash is that of the changed one.
fn change_manifest(checkpoint: &Path, change: impl FnOnce(&mut Value)) {
    let path = checkpoint.join(MANIFEST);
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut manifest);
    let text = serde_json::to_vec(&manifest).unwrap();
    fs::write(checkpoint.join(MANIFEST_HASH), blake3::hash(&text).to_hex().as_str()).unwrap();
    fs::write(path, text).unwrap();
}

/// Returns the entry of a file with this content in a manifest.
fn digest(content: &[u8]) -> Value {
    json!({ "bytes": content.len(), "blake3": blake3::hash(content).to_hex().as_str() })
}

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn make_sparse(path: &Path, bytes: u64) {
    fs::File::options().write(true).create(true).truncate(false).open(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn a_manifest_that_is_a_pipe_or_huge_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut trainer = new_trainer();
    let path = Checkpoints::new(folder.path(), 1).save(&trainer, 1, None, &Value::Null).unwrap();
    for name in [MANIFEST, MANIFEST_HASH] {
        let file = path.join(name);
        let whole = fs::read(&file).unwrap();
        for (is_pipe, problem) in [(true, "it is not a file"), (false, "it is larger than 1024 MiB")] {
            fs::remove_file(&file).unwrap();
            if is_pipe {
                make_pipe(&file);
            } else {
                make_sparse(&file, LARGEST_MANIFEST + 1);
            }
            let message = trainer.load(&path).unwrap_err().to_string();
            assert!(message.contains(name) && message.contains(problem), "{message}");
        }
        fs::remove_file(&file).unwrap();
        fs::write(&file, whole).unwrap();
    }
    trainer.load(&path).unwrap();
}

#[test]
fn names_links_and_pipes_do_not_lead_out_of_a_checkpoint() {
    let folder = tempfile::tempdir().unwrap();
    let outside = folder.path().join("secret");
    fs::write(&outside, b"secret").unwrap();
    let mut trainer = new_trainer();
    let checkpoints = Checkpoints::new(folder.path().join("checkpoints"), 1);
    let save = |trainer: &Trainer| checkpoints.save(trainer, 1, None, &Value::Null).unwrap();
    let refused = |trainer: &mut Trainer, path: &Path| trainer.load(path).unwrap_err().to_string();

    for name in ["../../secret", "policies/../../../secret", outside.to_str().unwrap()] {
        let path = save(&trainer);
        change_manifest(&path, |manifest| manifest["files"][name] = digest(b"secret"));
        let message = refused(&mut trainer, &path);
        assert!(message.contains(MANIFEST) && message.contains("names a file outside"), "{message}");
    }

    let path = save(&trainer);
    let optimizer = path.join("optimizers/a.safetensors");
    let (inner, outer) = (path.join("inner"), folder.path().join("outer"));
    fs::copy(&optimizer, &outer).unwrap();
    fs::rename(&optimizer, &inner).unwrap();
    symlink(&inner, &optimizer).unwrap();
    trainer.load(&path).unwrap();
    fs::remove_file(&optimizer).unwrap();
    symlink(&outer, &optimizer).unwrap();
    let message = refused(&mut trainer, &path);
    assert!(message.contains("a.safetensors") && message.contains("link to something outside"), "{message}");

    // The manifest need not name it.
    let path = save(&trainer);
    let optimizer = path.join("optimizers/a.safetensors");
    change_manifest(&path, |manifest| {
        manifest["files"].as_object_mut().unwrap().remove("optimizers/a.safetensors").unwrap();
    });
    trainer.load(&path).unwrap();
    fs::remove_file(&optimizer).unwrap();
    make_pipe(&optimizer);
    let message = refused(&mut trainer, &path);
    assert!(message.contains("a.safetensors") && message.contains("not a regular file"), "{message}");
}

#[test]
fn a_sparse_file_in_a_checkpoint_is_not_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut trainer = new_trainer();
    let checkpoints = Checkpoints::new(folder.path(), 1);
    for name in [
        "optimizers/a.safetensors",
        "policies/b/adapter_model.safetensors",
        "policies/whole/model.safetensors",
        "policies/whole/model-2.safetensors",
    ] {
        let path = checkpoints.save(&trainer, 1, None, &Value::Null).unwrap();
        make_sparse(&path.join(name), 1 << 40);
        change_manifest(&path, |manifest| {
            manifest["files"][name] = json!({ "bytes": 1u64 << 40, "blake3": "" });
        });
        let message = trainer.load(&path).unwrap_err().to_string();
        assert!(message.contains("but the tensors of the workflow take at most"), "{message}");
    }
    // Of a name that no policy has; an earlier version that the manifest alone has is no excuse.
    let path = checkpoints.save(&trainer, 1, None, &Value::Null).unwrap();
    make_sparse(&path.join("notes"), 1 << 40);
    change_manifest(&path, |manifest| {
        manifest["files"]["notes"] = json!({ "bytes": 1u64 << 40, "blake3": "" });
        let version = |update: u32| json!({ "update": update, "policy": "a", "version": 0 });
        manifest["earlier"] = (0..1 << 14).map(version).collect();
    });
    let message = trainer.load(&path).unwrap_err().to_string();
    assert!(message.contains("but the tensors of the workflow take at most"), "{message}");

    let path = checkpoints.save(&trainer, 1, None, &Value::Null).unwrap();
    change_manifest(&path, |manifest| manifest["files"]["notes"] = digest(b"notes"));
    make_sparse(&path.join("notes"), 1 << 40);
    let message = trainer.load(&path).unwrap_err().to_string();
    assert!(message.contains("notes") && message.contains("truncated or changed"), "{message}");
}

#[test]
fn a_checkpoint_of_other_policies_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = Checkpoints::new(folder.path(), 1).save(&new_trainer(), 1, None, &Value::Null).unwrap();
    let load = |policies| {
        let workflow = workflow(policies, Some(train()));
        let mut trainer =
            Trainer::new(&workflow, starts_below(Path::new(".")), vec![model(true, 1)], 1, Device::Cpu)
                .unwrap();
        trainer.load(&path).unwrap_err().to_string()
    };
    let message = load(vec![policy("a", true), policy("other", true), policy("whole", false)]);
    assert!(message.contains("contains no policy `other`"), "{message}");
    let message = load(vec![policy("a", true)]);
    assert!(message.contains("a policy `b` that the workflow does not train"), "{message}");
    let mut wider = policy("a", true);
    wider.lora.as_mut().unwrap().rank = 2;
    let message = load(vec![wider, policy("b", true), policy("whole", false)]);
    assert!(message.contains(OTHER_WORKFLOW), "{message}");
    let mut scaled = policy("a", true);
    scaled.lora.as_mut().unwrap().alpha *= 2.0;
    let message = load(vec![scaled, policy("b", true), policy("whole", false)]);
    assert!(message.contains("it was trained with alpha = "), "{message}");
}
