//! Cores for rollouts and for training: threads stay on theirs, and results don't depend on which they are.

use std::fs;
use std::sync::{Arc, Mutex};

use pl_kernels::cpu::affinity::available_cores;
use pl_run::progress::{Activity, MetricsLine, Notice, Tracker};
use pl_run::{
    CheckedWorkflow, DevicePreference, Host, NoProgress, Permissions, Progress, RunOptions, StopRequest,
    TrainingRun, select_device,
};

use crate::support::{EMBEDDED, Workflow, metrics, parse, resume};

/// Reads the cores of the thread that an update is computed on, and of the engines' threads.
#[derive(Clone, Default)]
struct Watch(Arc<Mutex<Seen>>);

/// Cores of each update's thread, and those of the engines as the system writes them.
type Seen = (Vec<Vec<u32>>, Vec<String>);

impl Progress for Watch {
    fn start(&self, activity: Activity<'_>) -> Box<dyn Tracker> {
        if matches!(activity, Activity::Update) {
            let mut seen = self.0.lock().unwrap();
            seen.0.push(available_cores().unwrap());
            seen.1 = engines();
        }
        NoProgress.start(activity)
    }

    fn notice(&self, _: &Notice) {}

    fn metrics(&self, _: &MetricsLine<'_>) {}
}

/// Returns the cores of each engine's thread, as the system writes them.
fn engines() -> Vec<String> {
    let mut found = Vec::new();
    for thread in fs::read_dir("/proc/self/task").unwrap() {
        // A thread may have ended since.
        let Ok(status) = fs::read_to_string(thread.unwrap().path().join("status")) else { continue };
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
        if field("Name:") == "inference" {
            found.push(field("Cpus_allowed_list:").to_owned());
        }
    }
    found.sort();
    found
}

/// Runs two steps, and returns the cores of updates and of engines.
fn watched(workflow: &Workflow, name: &str, overrides: &[&str]) -> Seen {
    let watch = Watch::default();
    let host = Host::new(EMBEDDED, Arc::new(watch.clone())).unwrap().with_permissions(Permissions::all());
    let device = select_device(&host, DevicePreference::Cpu).unwrap();
    let checked = CheckedWorkflow::open(&host, &workflow.file, &parse(overrides)).unwrap();
    let options = RunOptions { folder: Some(workflow.path(name)), seed: 1, ..RunOptions::default() };
    TrainingRun::start(&host, &checked, device, &options).unwrap().train(&StopRequest::default()).unwrap();
    let seen = watch.0.lock().unwrap();
    seen.clone()
}

/// Returns the metrics, the last transitions and the adapters of a run.
fn results(workflow: &Workflow, name: &str) -> Vec<Vec<u8>> {
    let run = workflow.path(name);
    let files = [
        "metrics.jsonl",
        "steps/000002.parquet",
        "checkpoints/step-00000002/policies/first/adapter_model.safetensors",
        "checkpoints/step-00000002/policies/second/adapter_model.safetensors",
    ];
    files.iter().map(|file| fs::read(run.join(file)).unwrap()).collect()
}

#[test]
fn threads_stay_on_the_cores_of_their_devices() {
    let all = available_cores().unwrap();
    let (first, last) = (all[0], *all.last().unwrap());
    let workflow = Workflow::new("tree-l2.mas", "");
    let [rollout, train] =
        [("rollout", first), ("train", last)].map(|(key, core)| format!("devices.{key}=[\"cpu:{core}\"]"));
    let steps = ["train.steps=2", "train.schedule=one_step_off"];
    let (updates, engines) = watched(&workflow, "apart", &[&steps[..], &[&rollout, &train]].concat());
    assert_eq!(updates, vec![vec![last]; 2]);
    assert_eq!(engines, [first.to_string()]);
    assert_eq!(available_cores().unwrap(), all, "the caller's thread keeps its cores");

    // The engines of two pools, on one core. Threads are as many as before, so bits are the same.
    let pool = format!("second.devices.rollout=cpu:{last}");
    let own = [rollout.as_str(), &train, &pool];
    let (_, engines) = watched(&workflow, "pools", &[&steps[..], &own].concat());
    let expected = if first == last { vec![first] } else { vec![first, last] };
    assert_eq!(engines, expected.iter().map(u32::to_string).collect::<Vec<_>>());
    assert!(results(&workflow, "apart") == results(&workflow, "pools"), "the pools change the results");

    // Another machine has other cores.
    let other = format!("devices.train=cpu:{first}");
    resume(&workflow.path("pools"), &["train.steps=3", &other]).unwrap();
    assert_eq!(metrics(&workflow.path("pools"), "step").len(), 3);
}

#[test]
fn devices_that_are_missing_are_named_with_a_remedy() {
    let workflow = Workflow::new("tree-l2.mas", "");
    let refused = |overrides: &[&str]| workflow.try_run("run", overrides).unwrap_err().to_string();
    let message = refused(&["devices.rollout=cpu:4000"]);
    assert!(
        message.starts_with("devices of policy first: `cpu:4000`: this process may run on cpu:"),
        "{message}"
    );
    let message = refused(&["second.devices.rollout=cuda:1"]);
    assert!(message.starts_with("devices of policy second: `cuda:1`: this run uses the CPU"), "{message}");
    assert!(!workflow.path("run").exists());
}
