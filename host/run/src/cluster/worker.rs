//! A worker: plays the tasks of runs that other processes coordinate.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use pl_cluster::{Connection, LeaseQueue, LeasedTask, Next, Role, Worker, WorkerStatus};
use pl_dsl::workflow::Evaluation;
use pl_rollout::{Attempt, EpisodeSetup, PlayEpisodes};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::error::Error;
use crate::error::cluster::ClusterError;
use crate::evaluation::of_evaluation;
use crate::host::Host;
use crate::progress::Notice;
use crate::stop_request::StopRequest;

use super::cpu::cpu_kind;
use super::joined_run::{JoinedRun, Part};
use super::options::WorkerOptions;
use super::results;
use super::task::{TaskToPlay, Team};
use super::weights::ModelFormats;
use super::weights_folder::WeightsFolder;
use super::worker_weights::WorkerWeights;

/// Pause before a server is asked again for runs.
const PAUSE: Duration = Duration::from_secs(1);

/// Pause before a task that could not be played here is delivered again.
const GIVE_BACK: Duration = Duration::from_secs(1);

/// Takes part in runs until a stop is requested, or the one that was asked for has ended.
///
/// # Errors
/// If the server is away, this machine differs from the coordinator's, or the workflow needs more than is allowed here.
pub fn work(host: &Host, options: &WorkerOptions, stop: &StopRequest) -> Result<(), Error> {
    let name = format!("pl-host worker {}", options.name);
    let connected = host.block_on(Connection::open(&options.address, &name, Role::Worker));
    let connection = connected.map_err(|error| Error::cluster(error.into()))?;
    while !stop.is_requested() {
        let Some(run) = host.block_on(find(&connection, options))? else {
            std::thread::sleep(PAUSE);
            continue;
        };
        let joined = host.block_on(Worker::join(&connection, &run, LeaseQueue::Workers, &options.name));
        let worker = match joined {
            Ok(worker) => worker,
            // It has ended since it was listed.
            Err(pl_cluster::Error::NoRun { .. }) if options.run.is_none() => continue,
            Err(error) => return Err(Error::cluster(error.into())),
        };
        take_part(host, &worker, options, stop)?;
        if options.run.is_some() {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns the run to take part in.
async fn find(connection: &Connection, options: &WorkerOptions) -> Result<Option<String>, Error> {
    if options.run.is_some() {
        return Ok(options.run.clone());
    }
    let runs = pl_cluster::runs(connection).await.map_err(|error| Error::cluster(error.into()))?;
    Ok(runs.into_iter().next().map(|entry| entry.run))
}

/// Plays tasks of a run until it has ended, or a stop is requested.
fn take_part(host: &Host, worker: &Worker, options: &WorkerOptions, stop: &StopRequest) -> Result<(), Error> {
    let run = &worker.entry().run;
    let JoinedRun { checked, session } = JoinedRun::open(host, worker, &options.participant, Part::Plays)?;
    host.notify(Notice::JoinedRun { run: run.clone() });
    let player = Arc::new(TaskPlayer {
        weights: WorkerWeights::new(
            worker.clone(),
            Arc::clone(&session.router),
            ModelFormats::of(&session.trainer),
            options.participant.weights_folder.as_deref().map(|shared| WeightsFolder::new(shared, run)),
        ),
        setups: session.scenarios.iter().map(|scenario| Arc::clone(&scenario.setup)).collect(),
        evaluations: checked.workflow.evaluations.clone(),
        playing: AtomicU32::new(0),
        played: AtomicU64::new(0),
        unreadable: Mutex::default(),
    });
    let ended = host.block_on(Arc::clone(&player).play_all(worker, options, stop));
    host.notify(Notice::LeftRun { run: run.clone(), played: player.played.load(Ordering::Relaxed) });
    ended
}

/// Plays tasks with the engine of this process.
struct TaskPlayer {
    weights: WorkerWeights,
    /// In the order of the workflow's scenarios.
    setups: Vec<Arc<EpisodeSetup>>,
    evaluations: Vec<Evaluation>,
    playing: AtomicU32,
    played: AtomicU64,
    /// Error of a task that can't be read here, after which this worker leaves the run to others.
    unreadable: Mutex<Option<Error>>,
}

impl TaskPlayer {
    async fn play_all(
        self: Arc<Self>,
        worker: &Worker,
        options: &WorkerOptions,
        stop: &StopRequest,
    ) -> Result<(), Error> {
        let status = {
            let (player, options) = (Arc::clone(&self), options.clone());
            move || WorkerStatus {
                worker: options.name.clone(),
                program: env!("CARGO_PKG_VERSION").to_owned(),
                cpu: cpu_kind(),
                policies: Vec::new(),
                slots: options.slots,
                playing: player.playing.load(Ordering::Relaxed),
                played: player.played.load(Ordering::Relaxed),
            }
        };
        let answering = {
            let worker = worker.clone();
            tokio::spawn(async move { worker.answer_status(status).await })
        };
        let slots = Arc::new(Semaphore::new(options.slots.max(1) as usize));
        let mut running = JoinSet::new();
        let ended = loop {
            if stop.is_requested() {
                break Ok(());
            }
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { break Ok(()) };
            if let Some(error) = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner).take() {
                break Err(error);
            }
            match worker.next().await {
                Ok(Next::Play(task)) => {
                    let player = Arc::clone(&self);
                    running.spawn(async move {
                        player.play(*task).await;
                        drop(slot);
                    });
                }
                Ok(Next::Idle) => {}
                Ok(Next::Ended) => break Ok(()),
                Err(error) => break Err(Error::cluster(error.into())),
            }
            while running.try_join_next().is_some() {}
        };
        // What has begun is finished, so that nobody has to play it again.
        while running.join_next().await.is_some() {}
        answering.abort();
        ended
    }

    async fn play(&self, task: LeasedTask) {
        let name = task.lease.task.clone();
        let to_play = match TaskToPlay::decode(&name, &task.lease.body) {
            Ok(to_play) => to_play,
            Err(error) => {
                task.give_back(GIVE_BACK).await;
                *self.unreadable.lock().unwrap_or_else(PoisonError::into_inner) = Some(Error::cluster(error));
                return;
            }
        };
        self.playing.fetch_add(1, Ordering::Relaxed);
        match self.attempts(&task, to_play).await {
            Ok(result) => match task.finish(result).await {
                Ok(()) => {
                    self.played.fetch_add(1, Ordering::Relaxed);
                    tracing::info!(task = name, "played");
                }
                Err(error) => tracing::warn!(task = name, %error, "a result was not stored"),
            },
            Err(error) => {
                tracing::warn!(task = name, %error, "a task could not be played here");
                task.give_back(GIVE_BACK).await;
            }
        }
        self.playing.fetch_sub(1, Ordering::Relaxed);
    }

    /// Plays a task. Returns its result as bytes.
    async fn attempts(&self, task: &LeasedTask, to_play: TaskToPlay) -> Result<Vec<u8>, Error> {
        let name = task.lease.task.clone();
        let setup = self.setup(&to_play.team).ok_or_else(|| {
            let reason = "the workflow has no such team".to_owned();
            Error::cluster(ClusterError::Result { task: name.clone(), reason })
        })?;
        let weights = self.weights.load(&task.lease.weights).await?;
        let setup = EpisodeSetup { generator: Arc::clone(&weights.generator), ..setup };
        let plan = Arc::new(to_play.plan());
        let episodes = plan.episodes();
        let playing = episodes.iter().map(|(task, sample)| setup.play(&plan, *task, *sample));
        let mut attempts: Vec<Attempt> = Vec::new();
        for played in join_all(playing).await {
            let failed = |error| Error::Rollout { source: Box::new(error), run: None, episode: None };
            attempts.extend(played.map_err(failed)?);
        }
        results::encode(&name, attempts).map_err(Error::cluster)
    }

    fn setup(&self, team: &Team) -> Option<EpisodeSetup> {
        match team {
            Team::Scenario(index) => Some(EpisodeSetup::clone(self.setups.get(*index as usize)?)),
            Team::Evaluation(index) => {
                let evaluation = self.evaluations.get(*index as usize)?;
                let setup = EpisodeSetup::clone(self.setups.get(evaluation.scenario)?);
                Some(of_evaluation(setup, evaluation))
            }
        }
    }
}
