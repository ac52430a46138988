//! Teams that share no learner: each plays and trains at a pace of its own.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use pl_record::read_transitions;
use pl_run::progress::{Activity, MetricsLine, Notice, Tracker};
use pl_run::schedule::simulate::{Simulation, read_costs};
use pl_run::{
    CheckedWorkflow, DevicePreference, Host, NoProgress, Permissions, Progress, RunEnding, RunOptions,
    StopRequest, TrainingRun, select_device,
};

use crate::schedule::{assert_same_results, run_with_delays, try_with_delays};
use crate::support::{EMBEDDED, Workflow, parse, resume};

const STEPS: usize = 6;

fn assert_same(workflow: &Workflow, left: &str, right: &str) {
    for policy in ["first", "second"] {
        let weights = format!("{policy}/adapter_model.safetensors");
        assert_same_results(&workflow.path(left), &workflow.path(right), &weights);
    }
}

/// The pace of the learners and of the rollouts changes nothing, nor does an interrupt or a kill: neither what is played nor
/// what is recorded of it.
#[test]
fn lanes_have_the_same_results_at_any_pace() {
    let workflow = Workflow::new("lanes.mas", "");
    // With a checkpoint after every step, no lane gets ahead of the other.
    let lockstep = ["train.checkpoint_every=1", "train.keep_checkpoints=9", "train.episodes=1"];
    workflow.try_run("lockstep", &lockstep).unwrap();
    for (name, delays, overrides) in [("apart", 5, &[][..]), ("one at a time", 7, &["train.episodes=1"])] {
        assert_eq!(run_with_delays(&workflow, name, overrides, delays, None), RunEnding::Done);
        assert_same(&workflow, "lockstep", name);
    }
    // Each transition has the versions of both policies, also of the one that its team does not have.
    let last = read_transitions(&workflow.path("apart/steps/000006.parquet")).unwrap();
    let version = |policy: u32| last.iter().find(|one| one.policy == policy).unwrap().version;
    let versions = [version(0), version(1)];
    assert!(versions.iter().all(|version| *version > 0), "{versions:?}");
    assert!(last.iter().all(|transition| transition.versions == versions));

    // A run without overlap is one lane, and records those of other schedules for simulations.
    workflow.try_run("sync", &["train.staleness=0", "train.steps=2"]).unwrap();
    assert_eq!(read_costs(&workflow.path("sync"), &[]).unwrap().lanes.count(), 2);

    // A lane that is ahead waits for the other after the fourth step, so the end has not come when the stop is requested.
    let ending = run_with_delays(&workflow, "stopped", &["train.checkpoint_every=4"], 11, Some(2));
    assert_eq!(ending, RunEnding::Interrupted);
    assert_eq!(resume(&workflow.path("stopped"), &[]).unwrap(), RunEnding::Done);
    assert_same(&workflow, "lockstep", "stopped");
    assert_a_kill_changes_nothing(&workflow, &[]);
}

/// Checks that a run which was killed between two checkpoints ends as the one in `lockstep`.
fn assert_a_kill_changes_nothing(workflow: &Workflow, overrides: &[&str]) {
    let often = [overrides, &["train.checkpoint_every=3", "train.keep_checkpoints=9"]].concat();
    assert_eq!(run_with_delays(workflow, "killed", &often, 3, None), RunEnding::Done);
    std::fs::remove_dir_all(workflow.path("killed/checkpoints/step-00000006")).unwrap();
    assert_eq!(resume(&workflow.path("killed"), &[]).unwrap(), RunEnding::Done);
    assert_same(workflow, "lockstep", "killed");
}

#[test]
fn lanes_may_have_a_staleness_and_a_window_of_their_own() {
    let workflow = Workflow::new("lanes.mas", "");
    let own = ["first.train.staleness=0", "second.train.staleness=3", "second.train.tasks_per_update=6"];
    let lockstep = [&own[..], &["train.checkpoint_every=1", "train.keep_checkpoints=9"]].concat();
    workflow.try_run("lockstep", &lockstep).unwrap();
    assert_eq!(run_with_delays(&workflow, "apart", &own, 5, None), RunEnding::Done);
    assert_same(&workflow, "lockstep", "apart");
    assert_a_kill_changes_nothing(&workflow, &own);
}

/// Whole models replace each other: the weights of a lane do so beside the episodes of the other.
#[test]
fn lanes_of_whole_models_have_the_same_results_at_any_pace() {
    let workflow = Workflow::new("lanes.mas", "");
    let text = std::fs::read_to_string(&workflow.file).unwrap();
    std::fs::write(&workflow.file, text.replace("; lora { rank = 2 }", "")).unwrap();
    let lockstep = ["train.checkpoint_every=1", "train.keep_checkpoints=9", "train.episodes=1"];
    workflow.try_run("lockstep", &lockstep).unwrap();
    assert_eq!(run_with_delays(&workflow, "apart", &[], 5, None), RunEnding::Done);
    for policy in ["first", "second"] {
        let weights = format!("{policy}/model.safetensors");
        assert_same_results(&workflow.path("lockstep"), &workflow.path("apart"), &weights);
    }
}

/// Holds the first learner that begins an update, until the other has begun all of its own.
#[derive(Default)]
struct Held {
    /// Number of updates by the learner's thread, and the thread that is held.
    updates: Mutex<(HashMap<ThreadId, usize>, Option<ThreadId>)>,
    changed: Condvar,
}

impl Progress for Held {
    fn start(&self, activity: Activity<'_>) -> Box<dyn Tracker> {
        if matches!(activity, Activity::Update) {
            let own = std::thread::current().id();
            let mut updates = self.updates.lock().unwrap();
            *updates.0.entry(own).or_default() += 1;
            self.changed.notify_all();
            if *updates.1.get_or_insert(own) == own {
                let waits = |(counts, _): &mut (HashMap<ThreadId, usize>, _)| {
                    !counts.iter().any(|(thread, count)| *thread != own && *count == STEPS)
                };
                let limit = Duration::from_secs(120);
                let waited = self.changed.wait_timeout_while(updates, limit, waits).unwrap();
                assert!(!waited.1.timed_out(), "the other team waits for the learner that is held");
            }
        }
        NoProgress.start(activity)
    }

    fn notice(&self, _: &Notice) {}

    fn metrics(&self, _: &MetricsLine<'_>) {}
}

#[test]
fn a_slow_learner_slows_its_own_team_alone() {
    for overrides in [&[][..], &["train.in_flight=keep"]] {
        let workflow = Workflow::new("lanes.mas", "");
        let host = Host::new(EMBEDDED, Arc::new(Held::default())).unwrap();
        let host = host.with_permissions(Permissions::all());
        let device = select_device(&host, DevicePreference::Cpu).unwrap();
        let checked = CheckedWorkflow::open(&host, &workflow.file, &parse(overrides)).unwrap();
        let options = RunOptions { folder: Some(workflow.path("run")), seed: 1, ..RunOptions::default() };
        let mut run = TrainingRun::start(&host, &checked, device, &options).unwrap();
        assert_eq!(run.train(&StopRequest::default()).unwrap(), RunEnding::Done);

        // A simulation with the costs of the run has both lanes: they don't slow each other down.
        let costs = read_costs(&workflow.path("run"), &[]).unwrap();
        assert_eq!(costs.lanes.count(), 2);
        let both = Simulation::new(STEPS as u64, 2, &costs).seconds;
        let held = (0..2).map(|learner| costs.steps.iter().map(|step| step.train[learner]).sum::<f64>());
        let longest = held.fold(0.0, f64::max);
        let played: f64 = costs.steps.iter().flat_map(|step| &step.episodes).sum();
        assert!((longest..=longest + played).contains(&both), "{both} is not {longest} to {played} more");
    }
}

/// Versions that take over between tokens are recorded for each lane, and repeated.
#[test]
fn a_run_of_lanes_in_flight_is_repeated() {
    let workflow = Workflow::new("lanes.mas", "");
    let overrides = ["train.in_flight=recompute"];
    assert_eq!(run_with_delays(&workflow, "first", &overrides, 3, None), RunEnding::Done);
    for (name, delays) in [("again", 9), ("once more", 21)] {
        let again = try_with_delays(&workflow, name, &overrides, delays, None, Some("first"));
        assert_eq!(again.unwrap(), RunEnding::Done);
        assert_same(&workflow, "first", name);
    }
}
