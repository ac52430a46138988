//! Evaluations whose agents use other policies than their own.

use std::collections::BTreeMap;
use std::path::Path;

use pl_rollout::{Agreement, EventKind};
use pl_run::plan::RunPlan;
use pl_run::replay::{Replayer, RunTraces};
use pl_run::{CheckedWorkflow, DevicePreference, select_device};
use pl_types::EpisodeId;

use crate::support::{Workflow, host};

/// Completions of an evaluation after a step, by task and sample.
fn completions(run: &Path, evaluation: &str, step: u64) -> BTreeMap<(u32, u32), Vec<Vec<u32>>> {
    let recorded = RunTraces::open(run).unwrap();
    let mut out = BTreeMap::new();
    for trace in recorded.traces().map(Result::unwrap) {
        let id = EpisodeId::from_key(&trace.key);
        if id.step == step && id.evaluation.as_deref() == Some(evaluation) {
            let tokens = |kind: EventKind| match kind {
                EventKind::Completion { tokens, .. } => Some(tokens),
                _ => None,
            };
            let all = trace.events.into_iter().filter_map(|event| tokens(event.kind)).collect();
            out.insert((trace.key.task, trace.key.sample), all);
        }
    }
    assert!(!out.is_empty(), "{evaluation} was not run after step {step}");
    out
}

/// Greedy completions of an untrained policy stay as they are, whatever happens to the agents' own policies.
#[test]
fn agents_may_use_an_untrained_policy() {
    let more = "\npolicy plain { model = base; train = false }\n\
                evaluate own { every = 4; limit = 4; temperature = 0 }\n\
                evaluate untrained { every = 4; limit = 4; temperature = 0; roles { alto = plain; bass = plain } }\n";
    let workflow = Workflow::new("tree-l2.mas", more);
    let run = workflow.run(&["train.steps=4", "train.learning_rate=0.05", "train.warmup=0"]);
    assert_eq!(completions(&run, "untrained", 0), completions(&run, "untrained", 4));
    assert_ne!(completions(&run, "own", 0), completions(&run, "own", 4));
    // A fresh adapter changes nothing, so that both begin with the same completions.
    assert_eq!(completions(&run, "untrained", 0), completions(&run, "own", 0));
}

#[test]
fn the_plan_names_the_evaluation_that_alone_uses_a_policy() {
    let more = "\npolicy plain { model = base; train = false }\n\
                evaluate untrained { limit = 4; temperature = 0; roles { alto = plain } }\n";
    let (workflow, host) = (Workflow::new("tree-l2.mas", more), host());
    let checked = CheckedWorkflow::open(&host, &workflow.file, &[]).unwrap();
    let device = select_device(&host, DevicePreference::Cpu).unwrap();
    let plan = RunPlan::new(&host, &checked, device);
    let plain = plan.policies.iter().find(|policy| policy.name == "plain").unwrap();
    assert_eq!(plain.agents, ["alto in untrained"]);
}

/// Trained policies change places: each agent's completions are those of the other one's policy, also where the policies
/// have a model each.
#[test]
fn trained_policies_may_swap_roles() {
    for file in ["tree-l2.mas", "flat-l3.mas"] {
        let more = "\nevaluate own { every = 2; limit = 4; temperature = 0 }\n\
                    evaluate swapped { every = 2; limit = 4; temperature = 0; roles { alto = second; bass = first } }\n";
        let workflow = Workflow::new(file, more);
        let run = workflow.run(&["train.steps=2", "train.learning_rate=0.05", "train.warmup=0"]);
        assert_ne!(completions(&run, "own", 2), completions(&run, "swapped", 2), "{file}");
        let (host, recorded) = (host(), RunTraces::open(&run).unwrap());
        let replayer = Replayer::new(&host, &run, &BTreeMap::new(), false).unwrap();
        let mut replays = 0;
        replayer
            .replay_all(&host, &recorded, false, |agreement| {
                assert_eq!(agreement, Agreement::Full, "{file}");
                replays += 1;
                Ok::<(), pl_run::Error>(())
            })
            .unwrap();
        assert!(replays > 8, "{file}: {replays} replays");
    }
}
