//! A sandbox machine: runs the code that agents write in runs that other processes coordinate. It loads no model and no plugin.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::join_all;
use pl_cluster::{JobRunner, NextJob, Role, RunEntry, SandboxStatus, TakenJob};
use pl_dsl::workflow::Sandbox as SandboxBlock;
use pl_sandbox::{Ending, Job, Sandbox, Verdict};

use crate::error::Error;
use crate::error::cluster::ClusterError;
use crate::host::Host;
use crate::progress::Notice;
use crate::sandbox::LazyWorkers;
use crate::stop_request::StopRequest;

use super::counters::Counters;
use super::join_runs::{GIVE_BACK, JoinOptions, join_runs};
use super::message;

/// Options of a sandbox machine.
#[derive(Debug, Clone)]
pub struct SandboxMachineOptions {
    pub join: JoinOptions,
    /// Jobs that are run at a time.
    pub slots: u32,
    /// Docker engines for runs with the `docker` backend, in place of those of the run. Empty for that of this machine.
    pub endpoints: Vec<String>,
    /// Folder with the certificates for these engines.
    pub certificates: Option<PathBuf>,
}

/// Runs jobs until a stop is requested, or the run that was asked for has ended.
///
/// # Errors
/// If the server is away, or the sandbox of the run can't be started here.
pub fn run_jobs(host: &Host, options: &SandboxMachineOptions, stop: &StopRequest) -> Result<(), Error> {
    join_runs(host, &options.join, Role::Sandbox, stop, &|connection, entry| {
        let joining = JobRunner::join(connection, &entry.run, &options.join.name);
        take_part(host, &host.block_on(joining).map_err(Error::cluster)?, options, stop)
    })
}

/// Runs jobs of a run until it has ended, or a stop is requested.
fn take_part(
    host: &Host,
    runner: &JobRunner,
    options: &SandboxMachineOptions,
    stop: &StopRequest,
) -> Result<(), Error> {
    let run = runner.entry().run.clone();
    let block = settings(runner.entry(), options)?;
    let sandbox = LazyWorkers::started(host, &block, Path::new(""))?;
    host.notify(Notice::JoinedRun { run: run.clone() });
    let machine = Arc::new(Machine { sandbox, options: options.clone(), counters: Counters::default() });
    let ended = host.block_on(async {
        let answering = {
            let (runner, machine) = (runner.clone(), Arc::clone(&machine));
            tokio::spawn(async move { runner.answer_status(|| machine.status()).await })
        };
        let slots = (0..options.slots.max(1)).map(|_| {
            let (runner, machine, stop) = (runner.clone(), Arc::clone(&machine), stop.clone());
            tokio::spawn(async move { machine.fill_slot(&runner, &stop).await })
        });
        let mut ended = Ok(());
        for slot in join_all(slots.collect::<Vec<_>>()).await {
            ended = ended.and(slot.map_err(Error::from).flatten());
        }
        answering.abort();
        ended
    });
    host.notify(Notice::LeftRun { run, done: machine.counters.done() });
    ended
}

/// Returns the `sandbox` block of a run, with the workers and the engines of this machine.
fn settings(entry: &RunEntry, options: &SandboxMachineOptions) -> Result<SandboxBlock, Error> {
    let jobs = entry.jobs.clone().unwrap_or_default();
    let mut block: SandboxBlock = serde_json::from_value(jobs).map_err(|error| {
        Error::cluster(ClusterError::unreadable(format!("the sandbox of run {}", entry.run), error))
    })?;
    block.workers = options.slots;
    if let Some(docker) = &mut block.docker {
        // The user of this machine decides what it connects to, not a run.
        docker.endpoints.clone_from(&options.endpoints);
        docker.certificates = options.certificates.as_ref().map(|path| path.display().to_string());
    }
    Ok(block)
}

/// The workers of this machine.
struct Machine {
    sandbox: Arc<dyn Sandbox>,
    options: SandboxMachineOptions,
    counters: Counters,
}

impl Machine {
    fn status(&self) -> SandboxStatus {
        SandboxStatus {
            sandbox: self.options.join.name.clone(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            slots: self.options.slots,
            running: self.counters.running(),
            done: self.counters.done(),
        }
    }

    /// Takes and runs one job after the other. One that has begun is finished before a stop.
    async fn fill_slot(&self, runner: &JobRunner, stop: &StopRequest) -> Result<(), Error> {
        loop {
            let next = tokio::select! {
                next = runner.next() => next,
                () = stop.requested() => return Ok(()),
            };
            match next.map_err(Error::cluster)? {
                NextJob::Run(task) => {
                    self.counters.begin();
                    let is_done = self.run(*task).await;
                    self.counters.end(is_done);
                }
                NextJob::Idle => {}
                NextJob::Ended => return Ok(()),
            }
        }
    }

    /// Runs a job. Returns true if its verdict was sent.
    async fn run(&self, task: TakenJob) -> bool {
        let verdict = match message::decode::<Job>("a job", &task.job) {
            Ok(job) => self.sandbox.execute(vec![job]).await.pop(),
            Err(error) => Some(Verdict::from_sandbox(Ending::Error, format!("sandbox: {error}\n"), true)),
        };
        // Another machine may have better luck; the queue counts how often it is tried.
        let is_lost = |verdict: &Verdict| verdict.ending == Ending::LostWorker && !verdict.reproducible;
        let Some(verdict) = verdict.filter(|verdict| !is_lost(verdict)) else {
            tracing::warn!("a job was lost here, and is given back");
            task.give_back(GIVE_BACK).await;
            return false;
        };
        let sent = match message::encode("a verdict", &verdict) {
            Ok(encoded) => task.finish(&encoded).await.map_err(ClusterError::from),
            Err(error) => Err(error),
        };
        sent.inspect_err(|error| tracing::warn!(%error, "a verdict was not sent")).is_ok()
    }
}
