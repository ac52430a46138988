//! Runs with objectives other than the default one.

use std::path::Path;

use pl_run::RunEnding;
use serde_json::Value;

use crate::support::{Workflow, metrics, resume};

#[test]
fn every_published_algorithm_trains() {
    let workflow = Workflow::new("tree-l2.mas", "");
    for algorithm in ["grpo", "dr_grpo", "rloo", "reinforce_pp", "ppo", "dapo", "gspo", "cispo", "rft"] {
        let chosen = format!("train.algorithm={algorithm}");
        workflow.try_run(algorithm, &[&chosen, "train.steps=1", "held_out.every=0"]).unwrap();
        let lines = metrics(&workflow.path(algorithm), "step");
        for policy in ["first", "second"] {
            let metrics = &lines[0]["policies"][policy];
            let number = |name: &str| metrics[name].as_f64().unwrap_or_else(|| panic!("{name}: {metrics}"));
            assert!(number("completions") > 0.0 && number("completion_length") <= 12.0, "{metrics}");
            // The rewards of the tiny model may leave an objective without a gradient.
            if number("trained_tokens") > 0.0 {
                assert!(number("grad_norm") > 0.0 && number("version") == 1.0, "{algorithm}: {metrics}");
            }
            assert_eq!(metrics["reference_kl"].is_number(), algorithm == "reinforce_pp", "{metrics}");
        }
    }
}

/// A reference policy, an adaptive coefficient and moving averages go on where they were.
#[test]
fn a_resumed_run_with_a_reference_ends_as_an_uninterrupted_one() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let objective = [
        "train.advantage=ema",
        "train.scale=batch",
        "train.kl=0.1",
        "train.kl_target=0.01",
        "train.kl_horizon=50",
        "train.entropy=0.01",
        "train.lr_schedule=constant",
        "held_out.every=0",
    ];
    workflow.try_run("long", &[&objective[..], &["train.steps=3"]].concat()).unwrap();
    let long = workflow.path("long");
    let run = workflow.run(&[&objective[..], &["train.steps=1"]].concat());
    assert_eq!(resume(&run, &["train.steps=3"]).unwrap(), RunEnding::Done);
    let read = |root: &Path, name: &str| std::fs::read(root.join(name)).unwrap();
    for name in ["metrics.jsonl", "checkpoints/step-00000003/policies/first/adapter_model.safetensors"] {
        assert!(read(&long, name) == read(&run, name), "{name} differs");
    }
    let coefficient = |line: &Value| line["policies"]["first"]["kl_coefficient"].as_f64().unwrap();
    let coefficients: Vec<f64> = metrics(&run, "step").iter().map(coefficient).collect();
    assert!(
        coefficients[0] == 0.1 && coefficients.windows(2).all(|pair| pair[0] != pair[1]),
        "{coefficients:?}"
    );
}

#[test]
fn policies_with_settings_of_their_own_take_turns() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let overrides = [
        "first.train.update_every=2",
        "second.train.freeze=1",
        "second.train.update_every=2",
        "second.train.learning_rate=0.001",
        "train.steps=3",
        "train.warmup=0",
        "train.lr_schedule=constant",
        "held_out.every=0",
    ];
    let run = workflow.run(&overrides);
    let updated = |line: &Value| -> Vec<(String, f64)> {
        let policies = line["policies"].as_object().unwrap();
        policies.iter().map(|(name, own)| (name.clone(), own["lr"].as_f64().unwrap())).collect()
    };
    let updated: Vec<_> = metrics(&run, "step").iter().map(updated).collect();
    let (first, second) = (("first".to_owned(), 0.01), ("second".to_owned(), 0.001));
    assert_eq!(updated, [vec![first.clone()], vec![second], vec![first]]);
}
