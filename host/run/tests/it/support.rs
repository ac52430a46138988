//! Workflows of the `letters` plugin, and runs of them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use pl_dsl::Override;
use pl_run::progress::{Activity, MetricsLine, Notice, Tracker};
use pl_run::{
    Access, CheckedWorkflow, DevicePreference, Embedded, Error, Host, NoProgress, Permissions, Progress,
    ResumeOptions, RunEnding, RunOptions, StopRequest, TrainingRun, select_device,
};
use serde_json::Value;
use tempfile::TempDir;

/// The letters plugin needs none of the embedded components.
pub const EMBEDDED: Embedded = Embedded { std_chat: &[], python_worker: &[], worker_arguments: None };

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A workflow file in a folder of its own.
pub struct Workflow {
    pub folder: TempDir,
    pub file: PathBuf,
}

impl Workflow {
    /// Copies a scenario of `tests/scenarios/letters`, made smaller, with `more` at its end.
    pub fn new(scenario: &str, more: &str) -> Workflow {
        // Threads of OpenMP that wait for a tiny matrix product keep the other tests from running.
        tch::set_num_threads(1);
        let plugin = repository().join("target/release/plugins/letters.wasm");
        assert!(plugin.is_file(), "{} is missing: run `cargo xtask setup`", plugin.display());
        let text =
            std::fs::read_to_string(repository().join("tests/scenarios/letters").join(scenario)).unwrap();
        let text = text
            .replace("letters.wasm", &plugin.display().to_string())
            .replace("../../data/tiny", &repository().join("tests/data/tiny").display().to_string())
            .replace("tasks_per_step = 3", "tasks_per_step = 2")
            .replace("limit = 4;", "limit = 2;");
        let text = text + "\ninference { kv_cache = 16MiB; slots = 16; threads = 1 }\n";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("workflow.mas");
        std::fs::write(&file, text + more).unwrap();
        Workflow { folder, file }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a run in the subfolder `run` and plays all of its steps.
    pub fn run(&self, overrides: &[&str]) -> PathBuf {
        self.try_run("run", overrides).unwrap_or_else(|error| panic!("{error}"));
        self.path("run")
    }

    pub fn try_run(&self, name: &str, overrides: &[&str]) -> Result<RunEnding, Error> {
        let host = host();
        let device = select_device(&host, DevicePreference::Cpu)?;
        let checked = CheckedWorkflow::open(&host, &self.file, &parse(overrides))?;
        let options = RunOptions { folder: Some(self.path(name)), seed: 1, ..RunOptions::default() };
        TrainingRun::start(&host, &checked, device, &options)?.train(&StopRequest::default())
    }
}

/// Progress that keeps the texts of all notices.
#[derive(Default)]
pub struct Notices(pub Mutex<Vec<String>>);

impl Progress for Notices {
    fn start(&self, activity: Activity<'_>) -> Box<dyn Tracker> {
        NoProgress.start(activity)
    }

    fn notice(&self, notice: &Notice) {
        self.0.lock().unwrap().push(notice.to_string());
    }

    fn metrics(&self, _: &MetricsLine<'_>) {}
}

/// The workflows name plugins and models of the repository.
pub fn host() -> Host {
    Host::new(EMBEDDED, Arc::new(NoProgress)).unwrap().with_permissions(Permissions::all())
}

/// Returns a host that allows what is listed.
pub fn host_with(allowed: &[Access]) -> Host {
    let host = Host::new(EMBEDDED, Arc::new(NoProgress)).unwrap();
    host.permissions().allow(allowed.iter().cloned());
    host
}

pub fn parse(overrides: &[&str]) -> Vec<Override> {
    overrides.iter().map(|text| text.parse().unwrap()).collect()
}

/// Continues a run until all of its steps are finished.
pub fn resume(run: &Path, overrides: &[&str]) -> Result<RunEnding, Error> {
    let host = host();
    let device = select_device(&host, DevicePreference::Cpu)?;
    let options = ResumeOptions { overrides: parse(overrides), ..ResumeOptions::default() };
    TrainingRun::resume(&host, run, device, &options)?.train(&StopRequest::default())
}

/// Returns the lines of `metrics.jsonl` of one kind.
pub fn metrics(run: &Path, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["kind"] == kind).collect()
}

/// Returns the steps of a run's checkpoints.
pub fn checkpoints(run: &Path) -> Vec<u64> {
    let mut steps: Vec<u64> = std::fs::read_dir(run.join("checkpoints"))
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_prefix("step-")?.parse().ok())
        .collect();
    steps.sort_unstable();
    steps
}
