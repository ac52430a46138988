//! A run of another process that this one takes part in.

use std::path::PathBuf;
use std::sync::Arc;

use pl_cluster::Worker;
use pl_record::Lock;
use pl_sandbox::Sandbox;
use tch::Device;

use crate::error::Error;
use crate::error::cluster::ClusterError;
use crate::host::Host;
use crate::lock::{lock_of, start_date};
use crate::permissions::GrantedAccess;
use crate::session::{Session, SessionStart};
use crate::workflow::CheckedWorkflow;

use super::cpu::cpu_kind;
use super::manifest::Manifest;
use super::remote_sandbox::{RemoteSandbox, no_jobs};
use super::worker_files;

/// Device and permissions of a process that takes part in runs.
#[derive(Debug, Clone)]
pub struct Participant {
    pub device: Device,
    /// Allows runs to use the files, hosts and variables of this machine that their workflows name.
    pub trust: bool,
    /// Folder with the weights of runs, which all machines of a run share. `None` for those that the server keeps.
    pub weights_folder: Option<PathBuf>,
    /// Takes part although this CPU is of another kind than the coordinator's. Results are then not bit-reproducible.
    pub mixed_cpus: bool,
}

/// Kind of a process that loads a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JoinedAs {
    Worker,
    /// The coordinator may have another device.
    Learner,
}

/// A run whose workflow is checked and loaded here.
pub(super) struct JoinedRun {
    pub checked: CheckedWorkflow,
    pub session: Session,
}

impl JoinedRun {
    /// Fetches what a run consists of, and loads it.
    ///
    /// # Errors
    /// If the server is away, this machine differs from the coordinator's, or the workflow needs more than is allowed here.
    pub fn open(host: &Host, worker: &Worker, own: &Participant, kind: JoinedAs) -> Result<JoinedRun, Error> {
        let run = &worker.entry().run;
        let manifest = host.block_on(manifest(worker))?;
        check_cpu(run, &manifest.cpu, own)?;
        if manifest.weights_in_folder != own.weights_folder.is_some() {
            let (run, in_folder) = (run.clone(), manifest.weights_in_folder);
            return Err(Error::cluster(ClusterError::WeightsPlace { run, in_folder }));
        }
        let folder: PathBuf = host.block_on(worker_files::fetch(worker))?;
        let stored = manifest.workflow.in_folder(folder.clone())?;
        let mut checked = stored.open(host, &folder, GrantedAccess::new([], &folder))?;
        if let Some(sandbox) = host.block_on(remote_sandbox(worker, kind, checked.workflow.sandbox.output))? {
            checked = checked.with_jobs_in(sandbox);
        }
        if own.trust {
            checked.allow_required_permissions();
        }
        checked.require_permissions()?;
        let start =
            SessionStart { seed: manifest.lock.seed, date: start_date(&manifest.lock), own_weights: false };
        let session = Session::load(host, &checked, &checked.workflow, own.device, start)?;
        let mut now = lock_of(host, &checked, &session)?;
        if kind == JoinedAs::Learner {
            now.device.clone_from(&manifest.lock.device);
        }
        // Programs that other machines run are in their containers.
        if checked.own_containers().is_none() {
            now.images.clone_from(&manifest.lock.images);
        }
        check_lock(run, &manifest.lock, now)?;
        Ok(JoinedRun { checked, session })
    }
}

/// Returns the sandbox of a run whose code other machines run, with an output of `kept` bytes. `None` if this process runs it.
async fn remote_sandbox(
    worker: &Worker,
    kind: JoinedAs,
    kept: u64,
) -> Result<Option<Arc<dyn Sandbox>>, Error> {
    match kind {
        JoinedAs::Learner => Ok(worker.entry().jobs.as_ref().map(|_| no_jobs())),
        JoinedAs::Worker => {
            let jobs = worker.jobs().await.map_err(Error::cluster)?;
            Ok(jobs.map(|jobs| Arc::new(RemoteSandbox::new(jobs, kept)) as Arc<dyn Sandbox>))
        }
    }
}

async fn manifest(worker: &Worker) -> Result<Manifest, Error> {
    let entry = worker.entry();
    let bytes = worker.blob(&entry.manifest).await.map_err(Error::cluster)?;
    serde_json::from_slice(&bytes).map_err(|error| {
        Error::cluster(ClusterError::unreadable(format!("the workflow of run {}", entry.run), error))
    })
}

fn check_cpu(run: &str, coordinator: &str, participant: &Participant) -> Result<(), Error> {
    let own = cpu_kind();
    if own == coordinator {
        return Ok(());
    }
    if participant.mixed_cpus {
        tracing::warn!(own, coordinator, "the CPUs differ: results are not bit-reproducible");
        return Ok(());
    }
    let difference = format!(
        "CPU: the coordinator has {coordinator}, this machine has {own}, so the bits of the run would depend on who plays \
         a task; --mixed-cpus allows it"
    );
    Err(Error::cluster(ClusterError::Differs { run: run.to_owned(), differences: vec![difference] }))
}

/// Checks that this machine has the models, plugins, threads and the version of the coordinator.
fn check_lock(run: &str, coordinator: &Lock, now: Lock) -> Result<(), Error> {
    // Tasks come with the leases, and corpora were fetched by their hashes.
    let now = Lock { data: coordinator.data.clone(), ..now };
    let differences = coordinator.differences(&now);
    if differences.is_empty() {
        return Ok(());
    }
    Err(Error::cluster(ClusterError::Differs { run: run.to_owned(), differences }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_kind_of_cpu_is_refused_unless_the_user_takes_it() {
        let own =
            |mixed_cpus| Participant { device: Device::Cpu, trust: false, weights_folder: None, mixed_cpus };
        check_cpu("run-1", &cpu_kind(), &own(false)).unwrap();
        let message = check_cpu("run-1", "riscv64", &own(false)).unwrap_err().to_string();
        assert!(
            message.contains("the coordinator has riscv64") && message.contains("--mixed-cpus"),
            "{message}"
        );
        check_cpu("run-1", "riscv64", &own(true)).unwrap();
    }
}
