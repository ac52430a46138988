//! Schedules other than `sync`: their results depend on the order of steps alone.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pl_record::schedule::read_schedule;
use pl_record::{TraceFile, Traces};
use pl_run::progress::{Activity, MetricsLine, Notice, Tracker};
use pl_run::schedule::simulate::read_costs;
use pl_run::{
    CheckedWorkflow, DevicePreference, Error, Host, NoProgress, Permissions, Progress, RunEnding, RunOptions,
    StopRequest, TrainingRun, select_device,
};

use pl_types::{TaskKey, Transition};
use serde_json::Value;

use crate::support::{EMBEDDED, Workflow, checkpoints, metrics, parse, resume};

const ASYNC: [&str; 3] = ["train.schedule=async", "train.steps=6", "held_out.every=2"];

/// Pauses the threads of a run at every report, by pseudo-random times, and requests a stop after a step.
struct Delays {
    state: AtomicU64,
    stop: Option<(u64, StopRequest)>,
}

impl Delays {
    fn pause(&self) {
        // A linear congruential generator: only the pattern of pauses matters.
        let next = |state: u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        let state = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap();
        std::thread::sleep(Duration::from_millis((state >> 33) % 40));
    }
}

impl Progress for Delays {
    fn start(&self, activity: Activity<'_>) -> Box<dyn Tracker> {
        self.pause();
        NoProgress.start(activity)
    }

    fn notice(&self, _: &Notice) {}

    fn metrics(&self, line: &MetricsLine<'_>) {
        self.pause();
        if let Some((step, stop)) = &self.stop
            && line.step == *step
        {
            stop.request();
        }
    }
}

/// Runs a workflow in a subfolder with pauses, and stops it after a step.
pub(crate) fn run_with_delays(
    workflow: &Workflow,
    name: &str,
    overrides: &[&str],
    delays: u64,
    stop_after: Option<u64>,
) -> RunEnding {
    try_with_delays(workflow, name, overrides, delays, stop_after, None).unwrap()
}

pub(crate) fn try_with_delays(
    workflow: &Workflow,
    name: &str,
    overrides: &[&str],
    delays: u64,
    stop_after: Option<u64>,
    repeated: Option<&str>,
) -> Result<RunEnding, Error> {
    let stop = StopRequest::default();
    let progress = Delays { state: delays.into(), stop: stop_after.map(|step| (step, stop.clone())) };
    let host = Host::new(EMBEDDED, Arc::new(progress)).unwrap().with_permissions(Permissions::all());
    let device = select_device(&host, DevicePreference::Cpu).unwrap();
    let checked = CheckedWorkflow::open(&host, &workflow.file, &parse(overrides)).unwrap();
    let replay_schedule = repeated.map(|run| workflow.path(run));
    let options =
        RunOptions { folder: Some(workflow.path(name)), seed: 1, replay_schedule, ..RunOptions::default() };
    TrainingRun::start(&host, &checked, device, &options)?.train(&stop)
}

/// Checks that two runs have the same metrics, transitions and final weights: those in the file `policies` of the last
/// checkpoint, unless it is empty.
pub(crate) fn assert_same_results(left: &Path, right: &Path, policies: &str) {
    let mut files = vec!["metrics.jsonl".to_owned(), "failures.jsonl".to_owned()];
    files.extend((1..=6).map(|step| format!("steps/{step:06}.parquet")));
    files.extend((1..=6).map(|step| format!("tokens/{step:06}.parquet")));
    if !policies.is_empty() {
        files.push(format!("checkpoints/step-00000006/policies/{policies}"));
    }
    for file in files {
        let read = |root: &Path| std::fs::read(root.join(&file)).unwrap();
        assert!(read(left) == read(right), "{file} differs");
    }
}

const ADAPTER: &str = "first/adapter_model.safetensors";

#[test]
fn a_staleness_of_zero_is_sync() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let common = &ASYNC[1..];
    workflow.try_run("sync", common).unwrap();
    workflow.try_run("async", &[&ASYNC[..], &["train.staleness=0"]].concat()).unwrap();
    assert_same_results(&workflow.path("sync"), &workflow.path("async"), ADAPTER);
}

#[test]
fn rollouts_lack_exactly_the_updates_of_the_staleness() {
    for (overrides, staleness) in [
        (&["train.schedule=one_step_off"][..], 1),
        (&["train.schedule=async"], 2),
        (&["train.schedule=sync"], 0),
    ] {
        let workflow = Workflow::new("tree-l2.mas", "");
        let run = workflow.run(&[&["train.steps=5", "held_out.every=0"], overrides].concat());
        for step in 1..=5u64 {
            let path = run.join(format!("steps/{step:06}.parquet"));
            for transition in pl_record::read_transitions(&path).unwrap() {
                assert_eq!(transition.version, (step - 1).saturating_sub(staleness), "step {step}");
            }
        }
    }
}

/// Two models with an adapter each: the first policy may be one update behind, the second four.
const OWN_STALENESS: [&str; 6] = [
    "train.schedule=async",
    "train.steps=6",
    "first.lora.rank=2",
    "second.lora.rank=2",
    "first.train.staleness=1",
    "second.train.staleness=4",
];

#[test]
fn each_policy_lacks_the_updates_of_its_own_staleness() {
    let workflow = Workflow::new("flat-l3.mas", "");
    let run = workflow.run(&[&OWN_STALENESS[..], &["held_out.every=0", "train.checkpoint_every=6"]].concat());
    let mut seen = [0, 0];
    for step in 1..=6u64 {
        let path = run.join(format!("steps/{step:06}.parquet"));
        for transition in pl_record::read_transitions(&path).unwrap() {
            let policy = transition.policy as usize;
            assert_eq!(transition.version, (step - 1).saturating_sub([1, 4][policy]), "step {step}");
            seen[policy] += 1;
        }
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    // Both learners train on their own: each has its time on every step.
    let text = std::fs::read_to_string(run.join("timings.jsonl")).unwrap();
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let learners = line["learners"].as_array().unwrap();
        assert_eq!(learners.len(), 2);
        assert!(learners.iter().all(|own| own["start"].as_f64().unwrap() < own["end"].as_f64().unwrap()));
    }
}

/// Random pauses, an interrupt and a kill change nothing, whichever learner is ahead.
#[test]
fn learners_at_their_own_pace_have_the_same_results() {
    let workflow = Workflow::new("flat-l3.mas", "");
    let overrides =
        [&OWN_STALENESS[..], &["held_out.every=4", "train.checkpoint_every=3", "train.keep_checkpoints=9"]]
            .concat();
    workflow.try_run("whole", &overrides).unwrap();
    let whole = workflow.path("whole");
    let same = |name: &str| {
        for policy in ["first", "second"] {
            assert_same_results(&whole, &workflow.path(name), &format!("{policy}/adapter_model.safetensors"));
        }
    };
    for (name, episodes) in [("few", "train.episodes=2"), ("many", "train.episodes=32")] {
        let overrides = [&overrides[..], &[episodes]].concat();
        assert_eq!(run_with_delays(&workflow, name, &overrides, 5, None), RunEnding::Done);
        same(name);
    }
    // Steps after the checkpoint use older weights of the second policy, which the checkpoint has.
    assert!(whole.join("checkpoints/step-00000003/earlier/0/second/adapter_model.safetensors").is_file());
    assert!(!whole.join("checkpoints/step-00000003/earlier/0/first").exists());
    for (name, stop_after) in [("stopped early", 1), ("stopped", 3)] {
        let ending = run_with_delays(&workflow, name, &overrides, 11, Some(stop_after));
        assert_eq!(ending, RunEnding::Interrupted);
        assert_eq!(resume(&workflow.path(name), &[]).unwrap(), RunEnding::Done);
        same(name);
    }
    // As after a kill between two checkpoints.
    workflow.try_run("killed", &overrides).unwrap();
    std::fs::remove_dir_all(workflow.path("killed/checkpoints/step-00000006")).unwrap();
    assert_eq!(resume(&workflow.path("killed"), &[]).unwrap(), RunEnding::Done);
    same("killed");
}

/// One episode at a time plays steps in turn; many at a time play the stragglers of a step beside the next steps.
#[test]
fn results_do_not_depend_on_the_number_of_episodes_at_a_time() {
    for (scenario, policies, more) in [
        ("tree-l2.mas", ADAPTER, &[][..]),
        // Whole models are replaced between steps.
        ("flat-l3.mas", "", &[]),
        // A step's tasks follow from the results of the step before.
        ("tree-l2.mas", ADAPTER, &["train.max_refills=2", "train.flat_groups=drop"]),
    ] {
        let workflow = Workflow::new(scenario, "");
        let overrides = [&ASYNC[..], &["train.staleness=1"], more].concat();
        workflow.try_run("one", &[&overrides[..], &["train.episodes=1"]].concat()).unwrap();
        assert_eq!(
            run_with_delays(&workflow, "many", &[&overrides[..], &["train.episodes=32"]].concat(), 3, None),
            RunEnding::Done
        );
        assert_same_results(&workflow.path("one"), &workflow.path("many"), policies);
    }
}

#[test]
fn steps_overlap_as_far_as_the_staleness_allows() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let run =
        workflow.run(&["train.schedule=async", "train.staleness=3", "train.steps=4", "held_out.every=0"]);
    // Start and end of the rollouts of each step.
    let text = std::fs::read_to_string(run.join("timings.jsonl")).unwrap();
    let mut plays = Vec::new();
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let parts = line["timeline"].as_array().unwrap();
        let play = parts.iter().find(|part| part["part"] == "play").unwrap();
        plays.push((play["start"].as_f64().unwrap(), play["end"].as_f64().unwrap()));
        assert_eq!(line["learners"][0]["policies"], serde_json::json!(["first", "second"]));
        assert!(line["learners"][0]["seconds"].as_f64().unwrap() > 0.0);
    }
    // All four start from the weights that there are, before any of them has ended.
    let first_end = plays.iter().map(|play| play.1).fold(f64::INFINITY, f64::min);
    assert!(plays.iter().all(|play| play.0 <= first_end), "{plays:?}");
    // The costs of each of two trees a step are there for simulations.
    let costs = read_costs(&run, &[]).unwrap();
    assert_eq!((costs.slots, costs.steps.len()), (64, 4));
    assert!(
        costs.steps.iter().all(|step| step.episodes.len() == 2 && step.episodes.iter().all(|own| *own > 0.0))
    );
}

#[test]
fn results_do_not_depend_on_timing() {
    // Whole models: the trainer changes the weights that the engine was started with.
    let workflow = Workflow::new("flat-l3.mas", "");
    assert_eq!(run_with_delays(&workflow, "a", &ASYNC, 1, None), RunEnding::Done);
    assert_eq!(run_with_delays(&workflow, "b", &ASYNC, 99, None), RunEnding::Done);
    let policies = std::fs::read_dir(workflow.path("a/checkpoints/step-00000006/policies")).unwrap();
    for policy in policies {
        let name = policy.unwrap().file_name().into_string().unwrap();
        assert_same_results(&workflow.path("a"), &workflow.path("b"), &format!("{name}/model.safetensors"));
    }
}

#[test]
fn an_interrupted_run_ends_as_an_undisturbed_one() {
    for schedule in ["train.schedule=sync", "train.schedule=one_step_off", "train.staleness=3"] {
        let workflow = Workflow::new("tree-l2.mas", "");
        let overrides = [&ASYNC[..], &["train.checkpoint_every=5", schedule]].concat();
        workflow.try_run("whole", &overrides).unwrap();
        assert_eq!(run_with_delays(&workflow, "stopped", &overrides, 7, Some(2)), RunEnding::Interrupted);
        let stopped = workflow.path("stopped");
        assert!(metrics(&stopped, "step").len() < 6);
        assert!(!checkpoints(&stopped).is_empty());
        assert_eq!(resume(&stopped, &[]).unwrap(), RunEnding::Done);
        assert_same_results(&workflow.path("whole"), &stopped, ADAPTER);
    }
}

/// The first steps after the former end use the newest weights that there are.
#[test]
fn runs_are_prolonged() {
    for overrides in [&["train.schedule=async", "train.staleness=2"][..], &OWN_STALENESS] {
        for steps in ["train.steps=4", "train.steps=5"] {
            let workflow = Workflow::new("flat-l3.mas", "");
            let run = workflow.run(&[overrides, &[steps, "held_out.every=0"]].concat());
            assert_eq!(resume(&run, &["train.steps=9"]).unwrap(), RunEnding::Done);
            assert_eq!(metrics(&run, "step").len(), 9);
        }
    }
}

#[test]
fn a_killed_run_ends_as_an_undisturbed_one() {
    let workflow = Workflow::new("tree-l2.mas", "");
    workflow.try_run("whole", &ASYNC).unwrap();
    let killed = workflow.path("killed");
    workflow.try_run("killed", &ASYNC).unwrap();
    // As after a kill between the checkpoints of steps 4 and 6: everything that was written later is there.
    std::fs::remove_dir_all(killed.join("checkpoints/step-00000006")).unwrap();
    assert!(checkpoints(&killed).contains(&4), "{:?}", checkpoints(&killed));
    assert_eq!(resume(&killed, &[]).unwrap(), RunEnding::Done);
    assert_same_results(&workflow.path("whole"), &killed, ADAPTER);
}

/// Tasks that end first are trained on first, with a staleness of four: two steps are played ahead, and tasks may be two
/// updates late.
const BY_ARRIVAL: [&str; 7] = [
    "train.schedule=async",
    "train.staleness=4",
    "train.order=arrival",
    "train.steps=6",
    "train.tasks_per_step=3",
    "train.checkpoint_every=3",
    "held_out.every=0",
];

/// Checks that each task of a run of six steps is trained on once, within its staleness, and that its traces are in the
/// file of the step that it was drawn for.
fn assert_all_tasks_are_trained(run: &Path) {
    let batches = read_schedule(run).unwrap().unwrap();
    assert_eq!(batches.iter().map(|batch| batch.step).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    let mut tasks: Vec<TaskKey> = batches.iter().flat_map(|batch| batch.tasks.clone()).collect();
    tasks.sort_unstable();
    let all = (1..=6).flat_map(|step| (0..3).map(move |task| TaskKey { step, task }));
    assert!(tasks.into_iter().eq(all));
    for batch in &batches {
        let path = run.join(format!("steps/{:06}.parquet", batch.step));
        for Transition { key, version, .. } in pl_record::read_transitions(&path).unwrap() {
            assert!(batch.tasks.contains(&TaskKey { step: key.step, task: key.task }));
            // A resumed run has no weights from before its checkpoint.
            assert!(version + 3 >= key.step && version < batch.step && batch.step - 1 - version <= 4);
        }
        let file = TraceFile { step: batch.step, evaluation: None };
        let index = Traces::for_run(run).index(&file).unwrap().unwrap();
        let played: BTreeSet<u32> = index.attempts.iter().map(|attempt| attempt.task).collect();
        assert_eq!(played.into_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }
    let late = |line: &Value| line["late_tasks"].as_u64().unwrap();
    assert!(metrics(run, "step").iter().map(late).all(|late| late <= 3));
}

#[test]
fn tasks_that_end_first_are_trained_on_first_and_the_order_can_be_repeated() {
    for (scenario, policies) in [("tree-l2.mas", ADAPTER), ("flat-l3.mas", "")] {
        let workflow = Workflow::new(scenario, "");
        let run = |name, overrides: &[&str], delays, repeated| {
            let overrides = [&BY_ARRIVAL[..], overrides].concat();
            try_with_delays(&workflow, name, &overrides, delays, None, repeated)
        };
        assert_eq!(run("first", &[], 3, None).unwrap(), RunEnding::Done);
        assert_all_tasks_are_trained(&workflow.path("first"));
        // One episode at a time ends them in another order.
        assert_eq!(run("again", &["train.episodes=2"], 8, Some("first")).unwrap(), RunEnding::Done);
        assert_all_tasks_are_trained(&workflow.path("again"));
        assert_same_results(&workflow.path("first"), &workflow.path("again"), policies);
        let error = run("other", &["train.tasks_per_step=2"], 1, Some("first")).unwrap_err().to_string();
        assert!(error.contains("can't repeat the schedule of") && error.contains("has 3 tasks"), "{error}");
        // The same tasks and samples take the same seed.
        let lock = workflow.path("first/lock.json");
        let text = std::fs::read_to_string(&lock).unwrap();
        std::fs::write(&lock, text.replace(r#""seed": 1"#, r#""seed": 7"#)).unwrap();
        let error = run("other", &[], 1, Some("first")).unwrap_err().to_string();
        assert!(error.contains("its seed is 7, and that of this run is 1"), "{error}");
        assert!(!workflow.path("other").exists());
    }
}

#[test]
fn a_run_by_arrival_is_resumed_and_loses_no_task() {
    let workflow = Workflow::new("tree-l2.mas", "");
    assert_eq!(run_with_delays(&workflow, "stopped", &BY_ARRIVAL, 5, Some(1)), RunEnding::Interrupted);
    let stopped = workflow.path("stopped");
    assert!(metrics(&stopped, "step").len() < 6);
    assert_eq!(resume(&stopped, &[]).unwrap(), RunEnding::Done);
    assert_all_tasks_are_trained(&stopped);
    // As after a kill between the checkpoints of steps 3 and 6.
    std::fs::remove_dir_all(stopped.join("checkpoints/step-00000006")).unwrap();
    assert_eq!(resume(&stopped, &[]).unwrap(), RunEnding::Done);
    assert_all_tasks_are_trained(&stopped);
    // A run in the order of keys has no order to repeat.
    workflow.try_run("keys", &["train.steps=1"]).unwrap();
    let error = try_with_delays(&workflow, "b", &BY_ARRIVAL, 5, None, Some("keys")).unwrap_err();
    assert!(error.to_string().contains("has no schedule.jsonl"), "{error}");
    let keys = ["train.steps=1"];
    let error = try_with_delays(&workflow, "c", &keys, 5, None, Some("stopped")).unwrap_err();
    assert!(error.to_string().contains("only a run with `order = arrival`"), "{error}");
}
