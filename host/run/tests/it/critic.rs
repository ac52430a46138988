//! Runs of PPO with critics.

use std::path::Path;

use pl_run::RunEnding;

use crate::support::{Workflow, metrics, resume};

#[test]
fn a_resumed_run_with_critics_of_their_own_ends_as_an_uninterrupted_one() {
    // An adapter in the passes of the policies, and a copy of their model.
    resume_equals(
        Workflow::new("tree-l2.mas", ""),
        &["first.critic.on=adapter", "first.critic.rank=4", "second.critic.on=model"],
        &["policies/first/critic/adapter_model.safetensors", "policies/second/critic/model.safetensors"],
    );
}

#[test]
fn a_resumed_run_with_critics_beside_whole_models_ends_as_an_uninterrupted_one() {
    resume_equals(
        Workflow::new("flat-l3.mas", ""),
        &["first.critic.on=adapter", "second.critic.on=model"],
        &["policies/first/critic/adapter_model.safetensors", "policies/second/critic/model.safetensors"],
    );
}

/// Compares files of the last checkpoint of a run and of one that was resumed.
fn resume_equals(workflow: Workflow, critics: &[&str], files: &[&str]) {
    let ppo = ["train.algorithm=ppo", "train.lr_schedule=constant", "train.warmup=0", "held_out.every=0"];
    let settings = [&ppo[..], critics].concat();
    workflow.try_run("long", &[&settings[..], &["train.steps=3"]].concat()).unwrap();
    let long = workflow.path("long");
    let run = workflow.run(&[&settings[..], &["train.steps=1"]].concat());
    assert_eq!(resume(&run, &["train.steps=3"]).unwrap(), RunEnding::Done);
    let read = |root: &Path, name: &str| std::fs::read(root.join(name)).unwrap();
    let checkpoint = |name: &str| format!("checkpoints/step-00000003/{name}");
    let both = ["optimizers/first.critic.safetensors", "optimizers/second.critic.safetensors"];
    for name in files.iter().chain(&both).map(|name| checkpoint(name)).chain(["metrics.jsonl".to_owned()]) {
        assert!(read(&long, &name) == read(&run, &name), "{name} differs");
    }
    for line in metrics(&run, "step") {
        for policy in ["first", "second"] {
            let own = &line["policies"][policy]["critic"];
            assert!(
                own["value_loss"].as_f64().unwrap() > 0.0 && own["grad_norm"].as_f64().unwrap() > 0.0,
                "{own}"
            );
        }
    }
}

#[test]
fn a_resumed_run_with_critics_ends_as_an_uninterrupted_one() {
    // A tree of two agents with two turns each. One policy has the default critic.
    let workflow = Workflow::new("tree-l2.mas", "");
    let ppo = [
        "train.algorithm=ppo",
        "train.gamma_turn=0.9",
        "train.lambda=0.95",
        "second.critic.on=shared",
        "second.critic.warmup=1",
        "train.lr_schedule=constant",
        "train.warmup=0",
        "held_out.every=0",
    ];
    workflow.try_run("long", &[&ppo[..], &["train.steps=3"]].concat()).unwrap();
    let long = workflow.path("long");
    let run = workflow.run(&[&ppo[..], &["train.steps=1"]].concat());
    assert_eq!(resume(&run, &["train.steps=3"]).unwrap(), RunEnding::Done);
    let read = |root: &Path, name: &str| std::fs::read(root.join(name)).unwrap();
    let checkpoint = "checkpoints/step-00000003";
    for name in [
        "metrics.jsonl",
        "steps/000003.parquet",
        &format!("{checkpoint}/policies/first/adapter_model.safetensors"),
        &format!("{checkpoint}/policies/first/value_head.safetensors"),
        &format!("{checkpoint}/policies/second/value_head.safetensors"),
        &format!("{checkpoint}/optimizers/second.critic.safetensors"),
    ] {
        assert!(read(&long, name) == read(&run, name), "{name} differs");
    }
    let steps = metrics(&run, "step");
    for (step, line) in steps.iter().enumerate() {
        for policy in ["first", "second"] {
            let own = &line["policies"][policy];
            let number = |name: &str| own["critic"][name].as_f64().unwrap_or_else(|| panic!("{name}: {own}"));
            assert!(number("value_loss") > 0.0 && number("grad_norm") > 0.0, "{own}");
            assert_eq!(number("mean_value") == 0.0, step == 0, "{own}");
            let warms_up = policy == "second" && step == 0;
            assert_eq!(own["optimizer_steps"] == 0, warms_up, "{own}");
        }
    }
    // Candidates that the tree did not continue from lead to prompts of their own.
    let transitions = pl_record::read_transitions(&run.join("steps/000003.parquet")).unwrap();
    assert!(transitions.iter().any(|t| t.next_prompt.is_some()));
    // The engine has the heads: each token has its value, and not the 0 of the start.
    for t in &transitions {
        let values = t.values.as_ref().unwrap();
        assert!(values.len() == t.completion.len() && values.iter().any(|value| *value != 0.0));
    }
    for t in transitions.iter().filter(|t| t.next_prompt.is_some()) {
        assert!(!t.chosen && t.turn == 0 && t.next_prompt.as_ref() != Some(&t.prompt));
    }
}
