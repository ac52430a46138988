//! Runs that train a designer together with the agents of its designs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pl_run::design::{DesignRecord, Outcome, read_designs};
use pl_run::replay::{Replayer, RunTraces};
use pl_run::{CheckedWorkflow, Error};
use pl_types::Transition;
use serde_json::Value;

use crate::support::{Workflow, host, metrics, parse, resume};

/// Settings of the workflow.
const DESIGNS: u32 = 4;
const EXECUTIONS: u32 = 3;
const TASKS: u32 = 2;

fn transitions(run: &Path, step: u64) -> Vec<Transition> {
    pl_record::read_transitions(&run.join(format!("steps/{step:06}.parquet"))).unwrap()
}

fn records(run: &Path) -> Vec<DesignRecord> {
    let text = std::fs::read_to_string(run.join("designs.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn is_of_designer(transition: &Transition) -> bool {
    transition.agent == "writer"
}

/// Success of a design's episodes, by its task and number.
fn success(record: &DesignRecord) -> Option<f64> {
    match &record.outcome {
        Outcome::Played { success, episodes, .. } => {
            assert_eq!(*episodes, EXECUTIONS);
            Some(*success)
        }
        Outcome::Invalid { .. } | Outcome::Costly { .. } => None,
    }
}

/// Compares everything that two runs of `steps` steps have recorded, and their last weights.
fn assert_equal(whole: &Path, part: &Path, steps: u64) {
    let mut names: Vec<String> =
        ["metrics.jsonl", "designs.jsonl", "failures.jsonl"].map(str::to_owned).into();
    names.extend((1..=steps).map(|step| format!("steps/{step:06}.parquet")));
    names.extend((1..=steps).map(|step| format!("traces/{step:06}.jsonl.zst")));
    for policy in ["architect", "singer"] {
        names.push(format!("checkpoints/step-{steps:08}/policies/{policy}/adapter_model.safetensors"));
    }
    for name in &names {
        let read = |root: &Path| std::fs::read(root.join(name)).unwrap();
        assert!(read(whole) == read(part), "{name} differs");
    }
}

#[test]
fn designs_of_a_task_and_executions_of_a_design_are_groups() {
    let workflow = Workflow::new("designer.mas", "");
    let run = workflow.run(&["train.steps=1"]);
    let records = records(&run);
    assert_eq!(records.len() as u32, TASKS * DESIGNS);
    let all = transitions(&run, 1);
    let keys: BTreeSet<_> = all.iter().map(|one| &one.key).collect();
    assert_eq!(keys.len(), all.len());
    let mut groups: BTreeMap<_, Vec<&Transition>> = BTreeMap::new();
    for transition in &all {
        groups.entry(&transition.group).or_default().push(transition);
    }
    let played = records.iter().filter(|one| success(one).is_some()).count();
    assert!(played >= 3, "{records:#?}");
    let mut executors = 0;
    for (group, members) in groups {
        if is_of_designer(members[0]) {
            assert_eq!(members.len() as u32, DESIGNS);
            for (sample, one) in members.iter().enumerate() {
                let record = &records[(group.task * DESIGNS) as usize + sample];
                assert_eq!(one.key.sample as usize, sample);
                // The reward is that of the check and the success of the design's episodes.
                let check = match record.outcome {
                    Outcome::Invalid { .. } => panic!("a constrained design is wrong: {record:#?}"),
                    Outcome::Costly { .. } => -0.25,
                    Outcome::Played { .. } => 0.0,
                };
                assert_eq!((one.local_reward, one.team_reward), (check, success(record).unwrap_or(0.0)));
                assert_eq!(one.reward, one.local_reward + one.team_reward);
                assert_eq!(Value::String(record.design.clone()).to_string(), one.action);
            }
        } else {
            // Episodes of one design alone, each at most once.
            let designs: BTreeSet<u32> =
                members.iter().map(|one| (one.key.sample - DESIGNS) / EXECUTIONS).collect();
            let samples: BTreeSet<u32> = members.iter().map(|one| one.key.sample).collect();
            assert_eq!((designs.len(), samples.len()), (1, members.len()));
            let record = &records[(group.task * DESIGNS + designs.first().unwrap()) as usize];
            assert!(success(record).is_some());
            executors += 1;
        }
    }
    assert!(executors >= played);
    let line = &metrics(&run, "step")[0];
    for policy in ["architect", "singer"] {
        assert!(line["policies"][policy]["grad_norm"].as_f64().unwrap() > 0.0, "{line}");
    }
    let designs = &line["scenarios"]["made"]["designs"];
    assert_eq!(designs["count"], TASKS * DESIGNS);
    assert_eq!(designs["played"].as_f64().unwrap(), played as f64 / f64::from(TASKS * DESIGNS));
    assert_eq!(line["scenarios"]["made"]["episodes"], played as u32 * EXECUTIONS);
}

#[test]
fn executions_are_compared_by_role_across_designs() {
    let workflow = Workflow::new("designer.mas", "");
    let run = workflow.run(&["train.steps=1", "writer.executor_groups=role"]);
    let all = transitions(&run, 1);
    let mut designs: BTreeMap<_, BTreeSet<u32>> = BTreeMap::new();
    for one in all.iter().filter(|one| !is_of_designer(one)) {
        designs.entry(&one.group).or_default().insert((one.key.sample - DESIGNS) / EXECUTIONS);
    }
    assert!(designs.values().any(|designs| designs.len() > 1), "{designs:?}");
    let keys: BTreeSet<_> = all.iter().map(|one| &one.key).collect();
    assert_eq!(keys.len(), all.len());
}

#[test]
fn a_run_is_deterministic_resumes_bit_for_bit_and_replays() {
    let workflow = Workflow::new("designer.mas", "");
    let whole = workflow.run(&["train.steps=2"]);
    workflow.try_run("part", &["train.steps=1", "train.episodes=1"]).unwrap();
    let part = workflow.path("part");
    resume(&part, &["train.steps=2", "train.episodes=8"]).unwrap();
    assert_equal(&whole, &part, 2);
    let host = host();
    let (replayer, recorded) =
        (Replayer::new(&host, &part, &BTreeMap::new(), false).unwrap(), RunTraces::open(&part).unwrap());
    let mut episodes = 0;
    let compare = |agreement| {
        episodes += 1;
        let equal = matches!(agreement, pl_rollout::Agreement::Full);
        assert!(equal, "{agreement:?}");
        Ok::<(), Error>(())
    };
    replayer.replay_all(&host, &recorded, false, compare).unwrap();
    let played = records(&part).iter().filter(|one| success(one).is_some()).count() as u32;
    assert_eq!(episodes, 2 * TASKS * DESIGNS + played * EXECUTIONS);
    // The best are whole workflows.
    let best = std::fs::read_dir(part.join("best")).unwrap().map(|entry| entry.unwrap().path());
    let best: Vec<_> = best.collect();
    assert!(!best.is_empty());
    for file in best {
        let checked = CheckedWorkflow::open(&host, &file, &parse(&[])).unwrap();
        assert!(checked.warnings.list.is_empty(), "{}", file.display());
    }
    assert!(read_designs(&part).unwrap().len() <= records(&part).len());
}

#[test]
fn designs_that_can_not_be_played_are_scored_and_the_run_goes_on() {
    let workflow = Workflow::new("designer.mas", "");
    let played = |name: &str, setting: &str| {
        workflow.try_run(name, &["train.steps=2", setting]).unwrap();
        let run = workflow.path(name);
        assert_eq!(metrics(&run, "step").len(), 2);
        (transitions(&run, 2), records(&run))
    };
    // A random model writes no text of the language.
    let (all, _) = played("free", "writer.constrained=false");
    assert!(all.iter().all(|one| is_of_designer(one) && one.reward < -0.5));
    // Every episode of a team fails.
    let (all, records) = played("failing", "board.trap=1.0");
    assert!(all.iter().any(|one| !is_of_designer(one) && one.reward == -1.0));
    let mut count = 0;
    for record in &records {
        if let Outcome::Played { success, failure, .. } = &record.outcome {
            assert!(*success == 0.0 && failure.is_some());
            count += 1;
        }
    }
    assert!(count > 0);
}

#[test]
fn guided_designs_are_learned_from_as_if_they_had_no_grammar() {
    let workflow = Workflow::new("designer.mas", "");
    let settings = ["writer.constrained=false", "writer.guided=1", "train.old_logprobs=recompute"];
    let whole = workflow.run(&[&settings[..], &["train.steps=2"]].concat());
    for (step, line) in (1..).zip(metrics(&whole, "step")) {
        for own in transitions(&whole, step).into_iter().filter(is_of_designer) {
            assert_eq!(own.support, None);
            // The first design of each task has no mistake. Those that a random model writes on its own don't parse.
            assert_eq!(own.local_reward > -0.5, own.key.sample == 0, "{}: {}", own.action, own.local_reward);
        }
        let designs = &line["scenarios"]["made"]["designs"];
        assert_eq!(designs["guided"], TASKS, "{designs}");
        assert_eq!((&designs["count"], &designs["valid"]), (&(TASKS * (DESIGNS - 1)).into(), &0.0.into()));
    }
    workflow.try_run("part", &[&settings[..], &["train.steps=1", "train.episodes=1"]].concat()).unwrap();
    let part = workflow.path("part");
    resume(&part, &["train.steps=2", "train.episodes=8"]).unwrap();
    assert_equal(&whole, &part, 2);
}

#[test]
fn agents_and_designer_learn_by_turns() {
    let workflow = Workflow::new("designer.mas", "");
    let whole = workflow.run(&["train.steps=3", "writer.alternate=1"]);
    let updated = |line: &Value| -> Vec<String> {
        line["policies"].as_object().unwrap().keys().map(String::clone).collect()
    };
    let lines = metrics(&whole, "step");
    assert_eq!(lines.iter().map(updated).collect::<Vec<_>>(), [["singer"], ["architect"], ["singer"]]);
    let learns = |line: &Value| line["scenarios"]["made"]["designs"]["learns"].clone();
    assert_eq!(lines.iter().map(learns).collect::<Vec<_>>(), ["agents", "designer", "agents"]);
    workflow.try_run("part", &["train.steps=2", "writer.alternate=1", "train.episodes=1"]).unwrap();
    let part = workflow.path("part");
    resume(&part, &["train.steps=3", "train.episodes=8"]).unwrap();
    assert_equal(&whole, &part, 3);
}

#[test]
fn one_policy_may_learn_to_design_and_to_act_by_turns() {
    let workflow = Workflow::new("designer.mas", "");
    let run = workflow.run(&[
        "train.steps=2",
        "writer.alternate=1",
        "writer.policy=singer",
        "architect.train=false",
    ]);
    for (step, designer) in [(1, false), (2, true)] {
        let own = transitions(&run, step).into_iter().filter(|one| is_of_designer(one) == designer);
        let tokens: usize = own.map(|one| one.completion.len()).sum();
        assert!(tokens > 0);
        let line = &metrics(&run, "step")[step as usize - 1];
        assert_eq!(line["policies"]["singer"]["tokens"], tokens, "{line}");
    }
}

#[test]
fn designs_that_are_played_ahead_are_the_same_in_every_run() {
    let workflow = Workflow::new("designer.mas", "");
    let settings = ["train.steps=3", "train.schedule=async", "train.staleness=2", "train.checkpoint_every=2"];
    let whole = workflow.run(&settings);
    workflow.try_run("part", &[&settings[..], &["train.episodes=2"]].concat()).unwrap();
    let part = workflow.path("part");
    // Without its last checkpoint, it continues from one that has designs of steps which were played ahead of their updates.
    std::fs::remove_dir_all(part.join("checkpoints/step-00000003")).unwrap();
    let before = std::fs::read_to_string(part.join("checkpoints/step-00000002/checkpoint.json")).unwrap();
    assert!(before.contains("\"designs\""), "{before}");
    resume(&part, &["train.episodes=8"]).unwrap();
    assert_equal(&whole, &part, 3);
}

#[test]
fn a_run_does_not_continue_with_another_text_of_a_used_file() {
    let workflow = Workflow::new("designer.mas", "\nuse \"parts.mas\" as parts\n");
    let parts = workflow.path("parts.mas");
    std::fs::write(&parts, "param spare: int = 1\n").unwrap();
    let run = workflow.run(&["train.steps=1"]);
    std::fs::write(&parts, "param spare: int = 2\n").unwrap();
    let error = resume(&run, &["train.steps=2"]).unwrap_err().to_string();
    assert!(error.contains("text parts.mas"), "{error}");
    std::fs::write(&parts, "param spare: int = 1\n").unwrap();
    resume(&run, &["train.steps=2"]).unwrap();
    assert_eq!(metrics(&run, "step").len(), 2);
}
