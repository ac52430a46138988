//! A learner in a process of its own: does the updates of a run's policies that another process coordinates.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pl_cluster::{LearnerEntry, LeaseQueue, LeasedTask, Next, Role, RunEntry, Worker};
use pl_kernels::cpu::affinity;
use pl_trainer::{LearnerUpdate, Trainer, UpdateProgress};
use pl_types::Transition;

use crate::checkpoints::PolicyVersions;
use crate::error::Error;
use crate::error::cluster::ClusterError;
use crate::host::Host;
use crate::progress::{Activity, Notice};
use crate::stop_request::StopRequest;
use crate::update_source::UpdateSource;

use super::counters::Counters;
use super::initial_state::InitialState;
use super::join_runs::{GIVE_BACK, JoinOptions, join_runs};
use super::joined_run::{JoinedAs, JoinedRun, Participant};
use super::message;
use super::options::learner_id;
use super::ranks::{RankPlace, RankTask, Ranks};
use super::update_task::{
    self, History, LARGEST, LearnerTask, LeaseKind, SentWeights, SourceRef, UpdateRef, UpdateResult,
};
use super::weights::{self, ModelFormats};
use super::weights_folder::WeightsFolder;

/// Time between looks whether the run has ended, while ranks wait for each other.
const LOOK: Duration = Duration::from_secs(2);

/// Options of a learner.
#[derive(Debug, Clone)]
pub struct LearnerOptions {
    pub join: JoinOptions,
    /// One of the policies to train. `None` if the run has one learner in a process of its own.
    pub policy: Option<String>,
    /// Place among the ranks that share the updates. `None` if this process does the shares of all ranks.
    pub place: Option<RankPlace>,
    pub participant: Participant,
}

/// Does updates of runs until a stop is requested, or the run that was asked for has ended.
///
/// # Errors
/// If the server is away, this machine differs from the coordinator's, or the workflow needs more than is allowed here.
pub fn learn(host: &Host, options: &LearnerOptions, stop: &StopRequest) -> Result<(), Error> {
    join_runs(host, &options.join, Role::Learner, stop, &|connection, entry| {
        let own = learner_of(entry, options.policy.as_deref())?;
        let queue = LeaseQueue::Learner(own.learner);
        let joining = Worker::join(connection, &entry.run, queue, &options.join.name);
        let worker = host.block_on(joining).map_err(Error::cluster)?;
        take_part(host, &worker, own, options, stop)
    })
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
    let JoinedRun { session, checked } =
        JoinedRun::open(host, worker, &options.participant, JoinedAs::Learner)?;
    let run = worker.entry().run.clone();
    host.notify(Notice::JoinedRun { run: run.clone() });
    let learner = own.learner as usize;
    let cores = session.learner_cores.get(learner).map_or(0, Vec::len);
    if cores > 0 {
        // The number of threads is part of what the bits depend on.
        affinity::limit_libtorch_threads(cores);
    }
    let counters = Arc::new(Counters::default());
    let answering = counters.answer_status(host, worker, &options.join.name, &own.policies, 1);
    let count = checked.workflow.train.as_ref().map_or(1, |train| train.data_parallel);
    let ranks = options.place.as_ref().map(|place| {
        let name = format!("learner {learner} of run {run}");
        Ranks::new(place, (name, count), &options.join.address, options.participant.device)
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
    host.notify(Notice::LeftRun { run, done: counters.done() });
    ended
}

/// State of the process.
struct LearnerProcess<'h> {
    host: &'h Host,
    worker: Worker,
    trainer: Trainer,
    /// Position among the learners.
    learner: usize,
    formats: ModelFormats,
    initial: InitialState,
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
        let initial = InitialState::create().map_err(ClusterError::file(&std::env::temp_dir()));
        let initial = initial.map_err(Error::cluster)?;
        trainer.save_learner(&initial.path(), learner, 0).map_err(Error::setup)?;
        let formats = ModelFormats::of(&trainer);
        let held = Some(History::default());
        Ok(LearnerProcess {
            host,
            worker,
            trainer,
            learner,
            formats,
            initial,
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
                Err(error) => return Err(Error::cluster(error)),
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
                Ok(Some(Some(RankTask::CatchUp { history, anew }))) => {
                    if let Err(error) = counters.count(|| self.catch_up(&history, anew)) {
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
        match self.result_of(&task) {
            Ok(result) => self.host.block_on(task.finish(result)).map_err(Error::cluster),
            Err(error) if fails_everywhere(&error) => {
                self.disconnect_ranks();
                self.host.block_on(task.fail(error.to_string())).map_err(Error::cluster)
            }
            Err(error) => {
                self.disconnect_ranks();
                self.host.block_on(task.give_back(GIVE_BACK));
                Err(error)
            }
        }
    }

    fn result_of(&mut self, task: &LeasedTask) -> Result<Vec<u8>, Error> {
        let LearnerTask { history, kind } =
            message::unpack("an update", &task.lease.body, LARGEST).map_err(Error::cluster)?;
        let is_repeated = self.held.as_ref() == Some(&history) && kind == LeaseKind::Update;
        if let (true, Some(result)) = (is_repeated, &self.result) {
            return Ok(result.clone());
        }
        if let Some(ranks) = &self.ranks {
            ranks.announce(&RankTask::CatchUp { history: history.clone(), anew: is_repeated })?;
        }
        let update = self.catch_up(&history, is_repeated)?;
        let step = history.updates.last().map_or(task.lease.step, |update| update.step);
        match (kind, update) {
            (LeaseKind::State, _) => {
                update_task::state_of(&self.trainer, self.learner, step).map_err(Error::cluster)
            }
            (LeaseKind::Update, Some(update)) => {
                let result = UpdateResult { update, weights: self.weights(step)? };
                let result = result.encode().map_err(Error::cluster)?;
                self.result = Some(result.clone());
                Ok(result)
            }
            (LeaseKind::Update, None) => {
                let (name, reason) = (task.lease.task.clone(), "it names no update".to_owned());
                Err(Error::cluster(ClusterError::Result { task: name, reason }))
            }
        }
    }

    /// Applies the missing updates of `history`; with `anew`, from its saved state. Returns the result of the last one. `None`
    /// if none was missing.
    fn catch_up(&mut self, history: &History, anew: bool) -> Result<Option<LearnerUpdate>, Error> {
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
                self.trainer.load_learner(&self.initial.path(), self.learner).map(drop).map_err(Error::setup)
            }
        }
    }

    fn update(&mut self, update: &UpdateRef) -> Result<LearnerUpdate, Error> {
        let mut sources = Vec::new();
        for SourceRef { step, transitions, left_out } in &update.sources {
            let bytes = self.blob(transitions)?;
            let transitions = message::unpack("transitions", &bytes, LARGEST).map_err(Error::cluster)?;
            sources.push(UpdateSource {
                step: *step,
                transitions: Arc::new(transitions),
                left_out: left_out.clone(),
            });
        }
        let mut learners = self.trainer.learners_to_train()?;
        let Some(own) = learners.get_mut(self.learner) else {
            let reason = format!("the workflow has no learner {}", self.learner);
            return Err(Error::cluster(ClusterError::unreadable("an update", reason)));
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
        let learner = learner_id(self.learner);
        let bytes = weights::encode(learner, step, &versions, &self.formats).map_err(Error::cluster)?;
        let Some(folder) = &self.weights_folder else { return Ok(Some(SentWeights::Inline(bytes))) };
        folder.put(learner, &bytes).map(|hash| Some(SentWeights::InFolder(hash))).map_err(Error::cluster)
    }

    fn blob(&self, hash: &str) -> Result<Vec<u8>, Error> {
        self.host.block_on(self.worker.blob(hash)).map_err(Error::cluster)
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
