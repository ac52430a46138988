//! Runs of PPO with critics.

use std::path::Path;

use pl_run::RunEnding;

use crate::support::{Workflow, metrics, resume};

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
    for t in transitions.iter().filter(|t| t.next_prompt.is_some()) {
        assert!(!t.chosen && t.turn == 0 && t.next_prompt.as_ref() != Some(&t.prompt));
    }
}
