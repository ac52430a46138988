//! A learner in a process of its own: does the updates of a run's policies that another process coordinates.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pl_cluster::{
    Connection, LearnerEntry, LeaseQueue, LeasedTask, Next, Role, RunEntry, ServerAddress, Worker,
    WorkerStatus,
};
use pl_kernels::cpu::affinity;
use pl_trainer::{LearnerUpdate, Trainer, UpdateProgress};
use pl_types::Transition;
use tempfile::TempDir;

use crate::checkpoints::PolicyVersions;
use crate::error::Error;
use crate::error::cluster::ClusterError;
use crate::host::Host;
use crate::progress::{Activity, Notice};
use crate::stop_request::StopRequest;
use crate::update_source::UpdateSource;

use super::cpu::cpu_kind;
use super::joined_run::{JoinedRun, Part, Participant};
use super::ranks::{RankPlace, RankTask, Ranks};
use super::update_task::{
    self, History, LearnerTask, SentWeights, SourceRef, UpdateRef, UpdateResult, Wanted,
};
use super::weights::{self, ModelFormats};
use super::weights_folder::WeightsFolder;

/// Pause before a server is asked again for runs.
const PAUSE: Duration = Duration::from_secs(1);

/// Pause before an update whose inputs could not be fetched is delivered again.
const GIVE_BACK: Duration = Duration::from_secs(1);

/// Time between looks whether the run has ended, while ranks wait for each other.
const LOOK: Duration = Duration::from_secs(2);

/// Options of a learner.
#[derive(Debug, Clone)]
pub struct LearnerOptions {
    pub address: ServerAddress,
    /// Run to take part in. `None` for the newest of the server, and after its end for the next.
    pub run: Option<String>,
    /// One of the policies to train. `None` if the run has one learner in a process of its own.
    pub policy: Option<String>,
    /// Name in messages and in the status. Unique among the processes of a run.
    pub name: String,
    /// Place among the ranks that share the updates. `None` if this process does the shares of all ranks.
    pub place: Option<RankPlace>,
    pub participant: Participant,
}

/// Does updates of runs until a stop is requested, or the run that was asked for has ended.
///
/// # Errors
/// If the server is away, this machine differs from the coordinator's, or the workflow needs more than is allowed here.
pub fn learn(host: &Host, options: &LearnerOptions, stop: &StopRequest) -> Result<(), Error> {
    let name = format!("pl-host learner {}", options.name);
    let failed = |error: pl_cluster::Error| Error::cluster(error.into());
    let connection =
        host.block_on(Connection::open(&options.address, &name, Role::Learner)).map_err(failed)?;
    while !stop.is_requested() {
        let runs = host.block_on(pl_cluster::runs(&connection)).map_err(failed)?;
        let is_wanted = |entry: &RunEntry| options.run.as_ref().is_none_or(|run| *run == entry.run);
        let Some(entry) = runs.into_iter().find(is_wanted) else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let own = learner_of(&entry, options.policy.as_deref())?;
        let queue = LeaseQueue::Learner(own.learner);
        let worker = match host.block_on(Worker::join(&connection, &entry.run, queue, &options.name)) {
            Ok(worker) => worker,
            // It has ended since it was listed.
            Err(pl_cluster::Error::NoRun { .. }) if options.run.is_none() => continue,
            Err(error) => return Err(failed(error)),
        };
        take_part(host, &worker, own, options, stop)?;
        if options.run.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns the learner of a run that trains a policy.
fn learner_of<'e>(entry: &'e RunEntry, policy: Option<&str>) -> Result<&'e LearnerEntry, Error> {
    let known = || entry.learners.iter().flat_map(|own| own.policies.iter().cloned()).collect();
    let refused = |wanted: Option<&str>| {
        let (run, policy) = (entry.run.clone(), wanted.map(str::to_owned));
        Error::cluster(ClusterError::NoSuchLearner { run, policy, known: known() })
    };
    match (policy, entry.learners.as_slice()) {
        (None, [one]) => Ok(one),
        (None, _) => Err(refused(None)),
        (Some(policy), all) => {
            let has_policy = |own: &&LearnerEntry| own.policies.iter().any(|name| name == policy);
            all.iter().find(has_policy).ok_or_else(|| refused(Some(policy)))
        }
    }
}

/// Does updates of a run until it has ended, or a stop is requested.
fn take_part(
    host: &Host,
    worker: &Worker,
    own: &LearnerEntry,
    options: &LearnerOptions,
    stop: &StopRequest,
) -> Result<(), Error> {
    let JoinedRun { session, checked } = JoinedRun::open(host, worker, &options.participant, Part::Trains)?;
    let run = worker.entry().run.clone();
    host.notify(Notice::JoinedRun { run: run.clone() });
    let learner = own.learner as usize;
    let cores = session.learner_cores.get(learner).map_or(0, Vec::len);
    if cores > 0 {
        // The number of threads is part of what the bits depend on.
        affinity::limit_libtorch_threads(cores);
    }
    let counters = Arc::new(Counters::default());
    let status = {
        let (counters, options, policies) = (Arc::clone(&counters), options.clone(), own.policies.clone());
        move || WorkerStatus {
            worker: options.name.clone(),
            program: env!("CARGO_PKG_VERSION").to_owned(),
            cpu: cpu_kind(),
            policies: policies.clone(),
            slots: 1,
            playing: counters.updating.load(Ordering::Relaxed),
            played: counters.done.load(Ordering::Relaxed),
        }
    };
    let answering = {
        let worker = worker.clone();
        host.handle().spawn(async move { worker.answer_status(status).await })
    };
    let count = checked.workflow.train.as_ref().map_or(1, |train| train.data_parallel);
    let ranks = options.place.as_ref().map(|place| {
        let name = format!("learner {learner} of run {run}");
        Ranks::new(place, (name, count), &options.address, options.participant.device)
    });
    let ranks = ranks.transpose()?;
    let folder = options.participant.weights_folder.as_deref();
    let folder = folder.map(|shared| WeightsFolder::new(shared, &run));
    let mut process = LearnerProcess::new(host, worker.clone(), session.trainer, learner, ranks, folder)?;
    let ended = match &options.place {
        Some(place) if place.rank > 0 => process.follow(&counters, stop),
        _ => process.take_leases(&counters, stop),
    };
    answering.abort();
    host.notify(Notice::LeftRun { run, played: counters.done.load(Ordering::Relaxed) });
    ended
}

/// Numbers of updates, for the status.
#[derive(Default)]
struct Counters {
    updating: AtomicU32,
    done: AtomicU64,
}

impl Counters {
    /// Counts an update while it runs, and afterwards if it is done.
    fn count<T, E>(&self, update: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.updating.store(1, Ordering::Relaxed);
        let result = update();
        self.updating.store(0, Ordering::Relaxed);
        self.done.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
        result
    }
}

/// State of the process.
struct LearnerProcess<'h> {
    host: &'h Host,
    worker: Worker,
    trainer: Trainer,
    /// Position among the learners.
    learner: usize,
    formats: ModelFormats,
    /// State that the workflow begins with.
    start: TempDir,
    /// Updates that the state includes. `None` if it is not known.
    held: Option<History>,
    /// Result of the last update.
    result: Option<Vec<u8>>,
    /// The ranks that share the updates. `None` if this process does them alone.
    ranks: Option<Ranks>,
    /// `None` if weights are sent with the results.
    weights_folder: Option<WeightsFolder>,
}

impl<'h> LearnerProcess<'h> {
    fn new(
        host: &'h Host,
        worker: Worker,
        trainer: Trainer,
        learner: usize,
        ranks: Option<Ranks>,
        weights_folder: Option<WeightsFolder>,
    ) -> Result<LearnerProcess<'h>, Error> {
        let failed = |source| Error::cluster(ClusterError::File { path: std::env::temp_dir(), source });
        let start = tempfile::Builder::new().prefix("pl-host-learner-").tempdir().map_err(failed)?;
        trainer.save_learner(&start.path().join("state"), learner, 0).map_err(Error::setup)?;
        let formats = ModelFormats::of(&trainer);
        let held = Some(History::default());
        Ok(LearnerProcess {
            host,
            worker,
            trainer,
            learner,
            formats,
            start,
            held,
            result: None,
            ranks,
            weights_folder,
        })
    }

    /// Does the updates of leases, as rank 0 if there are several, until the run has ended or a stop is requested.
    fn take_leases(&mut self, counters: &Counters, stop: &StopRequest) -> Result<(), Error> {
        while !stop.is_requested() {
            if !self.connect_ranks(stop)? {
                continue;
            }
            match self.host.block_on(self.worker.next()) {
                Ok(Next::Play(task)) => {
                    let name = task.lease.task.clone();
                    match counters.count(|| self.finish(*task)) {
                        Ok(()) => tracing::info!(task = name, "done"),
                        Err(error) => tracing::warn!(task = name, %error, "an update was not stored"),
                    }
                }
                Ok(Next::Idle) => {}
                Ok(Next::Ended) => {
                    // Ranks that don't hear it look for the run themselves.
                    self.ranks.iter().for_each(|ranks| drop(ranks.announce(&RankTask::Leave)));
                    return Ok(());
                }
                Err(error) => return Err(Error::cluster(error.into())),
            }
        }
        Ok(())
    }

    /// Does what rank 0 has all ranks do, until the run has ended or a stop is requested.
    fn follow(&mut self, counters: &Counters, stop: &StopRequest) -> Result<(), Error> {
        let run = RunWatch::new(self.host, &self.worker, stop);
        while !run.is_over() {
            if !self.connect_ranks(stop)? {
                continue;
            }
            match self.ranks.as_ref().map(|ranks| ranks.next(&|| run.is_over())).transpose() {
                Ok(Some(Some(RankTask::Reach { history, anew }))) => {
                    if let Err(error) = counters.count(|| self.reach(&history, anew)) {
                        tracing::warn!(%error, "an update was not done");
                        self.disconnect_ranks();
                    }
                }
                Ok(Some(Some(RankTask::Leave))) => return Ok(()),
                Ok(_) => {}
                Err(error) => {
                    tracing::info!(%error, "looking for rank 0");
                    self.disconnect_ranks();
                }
            }
        }
        Ok(())
    }

    /// Waits for the other ranks, if there are some and one is away. Returns false if the run ends before they are there.
    fn connect_ranks(&mut self, stop: &StopRequest) -> Result<bool, Error> {
        let run = RunWatch::new(self.host, &self.worker, stop);
        let Some(ranks) = self.ranks.as_mut().filter(|ranks| !ranks.are_connected()) else { return Ok(true) };
        let Some(collective) = ranks.connect(self.host, &|| run.is_over())? else {
            // A lease that can't be had any more tells the caller that the run has ended.
            return Ok(!stop.is_requested());
        };
        self.trainer.set_collective(self.learner, Some(collective));
        // All ranks begin at the same state.
        (self.held, self.result) = (None, None);
        Ok(true)
    }

    /// Gives the group of ranks up after a failure, so that a new one is formed.
    fn disconnect_ranks(&mut self) {
        self.trainer.set_collective(self.learner, None);
        self.ranks.iter_mut().for_each(Ranks::disconnect);
        self.held = None;
    }

    /// Does what a lease asks for, and stores the result. A lease whose inputs can't be fetched is delivered again; an update
    /// that fails ends the run, since it would fail everywhere.
    fn finish(&mut self, task: LeasedTask) -> Result<(), Error> {
        let connection = |error: pl_cluster::Error| Error::cluster(error.into());
        match self.result_of(&task) {
            Ok(result) => self.host.block_on(task.finish(result)).map_err(connection),
            Err(error) if fails_everywhere(&error) => {
                self.disconnect_ranks();
                self.host.block_on(task.fail(error.to_string())).map_err(connection)
            }
            Err(error) => {
                self.disconnect_ranks();
                self.host.block_on(task.give_back(GIVE_BACK));
                Err(error)
            }
        }
    }

    fn result_of(&mut self, task: &LeasedTask) -> Result<Vec<u8>, Error> {
        let LearnerTask { history, wanted } =
            update_task::decode(&task.lease.body).map_err(Error::cluster)?;
        let is_repeated = self.held.as_ref() == Some(&history) && wanted == Wanted::Update;
        if let (true, Some(result)) = (is_repeated, &self.result) {
            return Ok(result.clone());
        }
        if let Some(ranks) = &self.ranks {
            ranks.announce(&RankTask::Reach { history: history.clone(), anew: is_repeated })?;
        }
        let update = self.reach(&history, is_repeated)?;
        let step = history.updates.last().map_or(task.lease.step, |update| update.step);
        match (wanted, update) {
            (Wanted::State, _) => {
                update_task::state_of(&self.trainer, self.learner, step).map_err(Error::cluster)
            }
            (Wanted::Update, Some(update)) => {
                let result = UpdateResult { update, weights: self.weights(step)? };
                let result = result.encode().map_err(Error::cluster)?;
                self.result = Some(result.clone());
                Ok(result)
            }
            (Wanted::Update, None) => {
                let (name, reason) = (task.lease.task.clone(), "it names no update".to_owned());
                Err(Error::cluster(ClusterError::Result { task: name, reason }))
            }
        }
    }

    /// Applies the missing updates of `history`; with `anew`, from its saved state. Returns the result of the last one. `None`
    /// if none was missing.
    fn reach(&mut self, history: &History, anew: bool) -> Result<Option<LearnerUpdate>, Error> {
        let is_part =
            |held: &History| held.saved == history.saved && history.updates.starts_with(&held.updates);
        let done = match self.held.take().filter(|held| !anew && is_part(held)) {
            Some(held) => held.updates.len(),
            None => {
                self.load(history.saved.as_deref())?;
                0
            }
        };
        let mut last = None;
        for update in history.updates.iter().skip(done) {
            last = Some(self.update(update)?);
        }
        self.held = Some(history.clone());
        Ok(last)
    }

    /// Loads a saved state, or that of the start.
    fn load(&mut self, saved: Option<&str>) -> Result<(), Error> {
        match saved {
            Some(hash) => {
                let bytes = self.blob(hash)?;
                update_task::restore(&mut self.trainer, self.learner, &bytes).map_err(Error::cluster)
            }
            None => {
                let state: &Path = &self.start.path().join("state");
                self.trainer.load_learner(state, self.learner).map(drop).map_err(Error::setup)
            }
        }
    }

    fn update(&mut self, update: &UpdateRef) -> Result<LearnerUpdate, Error> {
        let mut sources = Vec::new();
        for SourceRef { step, transitions, left_out } in &update.sources {
            let bytes = self.blob(transitions)?;
            let transitions = Arc::new(update_task::decode(&bytes).map_err(Error::cluster)?);
            sources.push(UpdateSource { step: *step, transitions, left_out: left_out.clone() });
        }
        let mut learners = self.trainer.learners_to_train()?;
        let Some(own) = learners.get_mut(self.learner) else {
            let reason = format!("the workflow has no learner {}", self.learner);
            let what = "an update".to_owned();
            return Err(Error::cluster(ClusterError::Unreadable { what, reason }));
        };
        let trained: Vec<&Transition> =
            sources.iter().flat_map(|source| source.trained(&*own, update.step)).collect();
        let mut tracker = self.host.progress().start(Activity::Update);
        let mut progress = |progress: UpdateProgress| tracker.update(progress.done, progress.total);
        Ok(own.update(update.step, trained, update.shuffle, &mut progress)?)
    }

    /// Returns the weights after the update of a step. `None` if it left them as they were.
    fn weights(&mut self, step: u64) -> Result<Option<SentWeights>, Error> {
        let learners = self.trainer.learners_to_train()?;
        let Some(own) = learners.get(self.learner).filter(|own| own.is_due(step)) else { return Ok(None) };
        let versions = PolicyVersions::new(own.served(false));
        let learner = u32::try_from(self.learner).unwrap_or(u32::MAX);
        let bytes = weights::encode(learner, step, &versions, &self.formats).map_err(Error::cluster)?;
        let Some(folder) = &self.weights_folder else { return Ok(Some(SentWeights::Inline(bytes))) };
        folder.put(learner, &bytes).map(|hash| Some(SentWeights::InFolder(hash))).map_err(Error::cluster)
    }

    fn blob(&self, hash: &str) -> Result<Vec<u8>, Error> {
        self.host.block_on(self.worker.blob(hash)).map_err(|error| Error::cluster(error.into()))
    }
}

/// Returns true if an update fails in every process that tries it.
fn fails_everywhere(error: &Error) -> bool {
    match error {
        Error::Trainer(error) => !matches!(**error, pl_trainer::Error::Collective { .. }),
        Error::Setup(_) => true,
        _ => false,
    }
}

/// Periodic check whether a run has ended, or a stop is requested.
struct RunWatch<'w> {
    host: &'w Host,
    worker: Worker,
    stop: &'w StopRequest,
    looked: Cell<Instant>,
}

impl<'w> RunWatch<'w> {
    fn new(host: &'w Host, worker: &Worker, stop: &'w StopRequest) -> Self {
        Self { host, worker: worker.clone(), stop, looked: Cell::new(Instant::now()) }
    }

    fn is_over(&self) -> bool {
        if self.stop.is_requested() {
            return true;
        }
        if self.looked.get().elapsed() < LOOK {
            return false;
        }
        self.looked.set(Instant::now());
        // A server that is away says nothing about the run.
        self.host.block_on(self.worker.has_ended()).unwrap_or(false)
    }
}
