//! Policies whose updates train on the tasks of several steps at once.

use std::collections::BTreeMap;
use std::path::Path;

use pl_model::{Model, TensorSet};
use pl_run::{CheckedWorkflow, RunEnding};
use pl_trainer::Trainer;
use pl_types::{Dtype, Transition};
use serde_json::Value;
use tch::{Device, Tensor};

use crate::schedule::{assert_same_results, run_with_delays};
use crate::support::{Workflow, host, metrics, parse, repository, resume};

/// The first policy is updated after every step, the second after every third, on all three.
const THIRDS: [&str; 6] = [
    "second.train.tasks_per_update=6",
    "train.steps=6",
    "train.record_tokens=true",
    "train.keep_checkpoints=9",
    "train.checkpoint_every=1",
    "held_out.every=4",
];

fn transitions(run: &Path, step: u64, policy: u32) -> Vec<Transition> {
    let path = run.join(format!("steps/{step:06}.parquet"));
    let all = pl_record::read_transitions(&path).unwrap();
    all.into_iter().filter(|transition| transition.policy == policy).collect()
}

/// Number of completions that each policy was trained on in a step.
fn trained(line: &Value) -> BTreeMap<String, u64> {
    let policies = line["policies"].as_object().unwrap();
    policies.iter().map(|(name, own)| (name.clone(), own["completions"].as_u64().unwrap())).collect()
}

#[test]
fn an_update_trains_on_the_completions_of_all_its_steps() {
    let workflow = Workflow::new("flat-l3.mas", "");
    let run = workflow.run(&THIRDS);
    let count = |step: u64, policy: u32| transitions(&run, step, policy).len() as u64;
    for (index, line) in metrics(&run, "step").iter().enumerate() {
        let step = index as u64 + 1;
        let mut expected = BTreeMap::from([("first".to_owned(), count(step, 0))]);
        if step.is_multiple_of(3) {
            expected.insert("second".to_owned(), (step - 2..=step).map(|step| count(step, 1)).sum());
        }
        assert_eq!(trained(line), expected, "step {step}");
        // Its weights change after these steps alone, so its completions are as fresh as those of the first.
        let versions: Vec<u64> = transitions(&run, step, 1).iter().map(|own| own.version).collect();
        assert!(versions.iter().all(|version| *version == (step - 1) / 3), "step {step}: {versions:?}");
    }
    // The tokens of a step are in its file, whichever update has trained on them.
    for step in 1..=6 {
        let read = |policy: &str| {
            let table = pl_record::TokenTable::open(&run.join(format!("tokens/{step:06}.parquet"))).unwrap();
            let agent = u32::from(policy == "second");
            table.rows().unwrap().iter().filter(|row| row.key.agent == agent && row.epoch == 0).count() as u64
        };
        assert_eq!((read("first"), read("second")), (count(step, 0), count(step, 1)), "step {step}");
    }
}

/// The update of three steps is that of a trainer which gets the completions of all three at once.
#[test]
fn an_update_of_several_steps_is_one_update() {
    let workflow = Workflow::new("flat-l3.mas", "");
    let run = workflow.run(&THIRDS);
    let host = host();
    let checked = CheckedWorkflow::open(&host, &workflow.file, &parse(&THIRDS)).unwrap();
    let load = || Model::load(repository().join("tests/data/tiny"), Device::Cpu, Dtype::F32).unwrap();
    let starts = |from: &str| checked.folder.join(from).into();
    let mut trainer = Trainer::new(&checked.workflow, starts, vec![load(), load()], 1, Device::Cpu).unwrap();
    let all: Vec<Transition> = (1..=3).flat_map(|step| transitions(&run, step, 1)).collect();
    trainer.update(3, &all, None, &mut |_| {}).unwrap();
    let saved = run.join("checkpoints/step-00000003/policies/second/model.safetensors");
    let saved: BTreeMap<String, Tensor> = Tensor::read_safetensors(saved).unwrap().into_iter().collect();
    let weights = trainer.served(1).unwrap().weights.unwrap();
    for (name, tensor) in weights.parameters() {
        assert!(tensor.equal(&saved[&name]), "{name} differs");
    }
}

/// Steps of a window may be before a checkpoint, ahead of it, or both.
#[test]
fn a_run_that_is_killed_or_stopped_between_updates_ends_as_an_undisturbed_one() {
    for (scenario, file, schedule) in [
        ("tree-l2.mas", "adapter_model.safetensors", &["train.schedule=sync"][..]),
        ("flat-l3.mas", "model.safetensors", &["train.schedule=async", "train.staleness=2"]),
    ] {
        let workflow = Workflow::new(scenario, "");
        let overrides = [&THIRDS[..], schedule].concat();
        workflow.try_run("whole", &overrides).unwrap();
        let same = |name: &str| {
            let (whole, other) = (workflow.path("whole"), workflow.path(name));
            for policy in ["first", "second"] {
                assert_same_results(&whole, &other, &format!("{policy}/{file}"));
            }
        };
        for after in [1, 4, 5] {
            let name = format!("killed after {after}");
            workflow.try_run(&name, &overrides).unwrap();
            for step in after + 1..=6 {
                let checkpoint = format!("{name}/checkpoints/step-{step:08}");
                std::fs::remove_dir_all(workflow.path(&checkpoint)).unwrap();
            }
            assert_eq!(resume(&workflow.path(&name), &[]).unwrap(), RunEnding::Done);
            same(&name);
        }
        let ending = run_with_delays(&workflow, "stopped", &overrides, 5, Some(2));
        assert_eq!(ending, RunEnding::Interrupted);
        assert_eq!(resume(&workflow.path("stopped"), &[]).unwrap(), RunEnding::Done);
        same("stopped");
    }
}

/// Learners at their own pace, one of which trains on two steps at once: pauses change nothing, and a step that only waits
/// for weights which are there begins without them.
#[test]
fn learners_with_a_staleness_and_a_window_of_their_own() {
    let workflow = Workflow::new("flat-l3.mas", "");
    let overrides = [
        "train.schedule=async",
        "train.steps=6",
        "first.lora.rank=2",
        "second.lora.rank=2",
        "first.train.staleness=1",
        "second.train.staleness=3",
        "second.train.tasks_per_update=4",
        "train.record_tokens=true",
        "train.checkpoint_every=3",
        "train.keep_checkpoints=9",
        "held_out.every=0",
    ];
    workflow.try_run("whole", &overrides).unwrap();
    let whole = workflow.path("whole");
    for step in 1..=6_u64 {
        // After updates 2 and 4; step 6 has the weights after update 2.
        let version = step.saturating_sub(4) / 2;
        assert!(transitions(&whole, step, 1).iter().all(|own| own.version == version), "step {step}");
        assert!(transitions(&whole, step, 0).iter().all(|own| own.version == step.saturating_sub(2)));
    }
    for (name, delays) in [("slow", 7), ("slower", 23)] {
        assert_eq!(run_with_delays(&workflow, name, &overrides, delays, None), RunEnding::Done);
        assert_same_results(&whole, &workflow.path(name), "second/adapter_model.safetensors");
    }
    std::fs::remove_dir_all(workflow.path("slow/checkpoints/step-00000006")).unwrap();
    assert_eq!(resume(&workflow.path("slow"), &[]).unwrap(), RunEnding::Done);
    assert_same_results(&whole, &workflow.path("slow"), "second/adapter_model.safetensors");
}

/// Tasks that end first, of several steps, are put into windows too, and a run that repeats the order has the same bits.
#[test]
fn windows_of_tasks_in_the_order_in_which_they_end() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let overrides = [
        "train.schedule=async",
        "train.staleness=4",
        "train.order=arrival",
        "train.steps=6",
        "second.train.tasks_per_update=4",
        "train.record_tokens=true",
        "train.checkpoint_every=3",
        "held_out.every=0",
    ];
    assert_eq!(run_with_delays(&workflow, "recorded", &overrides, 3, None), RunEnding::Done);
    let recorded = workflow.path("recorded");
    let count = |step: u64| transitions(&recorded, step, 1).len() as u64;
    for (index, line) in metrics(&recorded, "step").iter().enumerate() {
        let step = index as u64 + 1;
        let expected = step.is_multiple_of(2).then(|| count(step - 1) + count(step));
        assert_eq!(trained(line).get("second").copied(), expected, "step {step}");
    }
    let repeated =
        crate::schedule::try_with_delays(&workflow, "repeated", &overrides, 77, None, Some("recorded"));
    assert_eq!(repeated.unwrap(), RunEnding::Done);
    assert_same_results(&recorded, &workflow.path("repeated"), "second/adapter_model.safetensors");
}

/// Steps that no update has trained on yet are trained on when the run is prolonged.
#[test]
fn a_prolonged_run_trains_on_the_steps_that_were_left() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let run = workflow
        .run(&[&THIRDS[..], &["train.steps=5", "train.lr_schedule=constant", "held_out.every=0"]].concat());
    assert_eq!(metrics(&run, "step").iter().filter(|line| trained(line).contains_key("second")).count(), 1);
    assert_eq!(resume(&run, &["train.steps=6"]).unwrap(), RunEnding::Done);
    let expected: u64 = (4..=6).map(|step| transitions(&run, step, 1).len() as u64).sum();
    assert_eq!(trained(&metrics(&run, "step")[5])["second"], expected);
}
