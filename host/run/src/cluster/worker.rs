//! A worker: plays the tasks of runs that other processes coordinate.

use std::sync::Arc;

use futures::future::join_all;
use parking_lot::Mutex;
use pl_cluster::{LeaseQueue, LeasedTask, Next, Role, Worker};
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

use super::counters::Counters;
use super::join_runs::{GIVE_BACK, join_runs};
use super::joined_run::{JoinedAs, JoinedRun};
use super::options::WorkerOptions;
use super::results;
use super::task::{TaskToPlay, TeamRef};
use super::weights::ModelFormats;
use super::weights_folder::WeightsFolder;
use super::worker_weights::WorkerWeights;

/// Takes part in runs until a stop is requested, or the one that was asked for has ended.
///
/// # Errors
/// If the server is away, this machine differs from the coordinator's, or the workflow needs more than is allowed here.
pub fn work(host: &Host, options: &WorkerOptions, stop: &StopRequest) -> Result<(), Error> {
    join_runs(host, &options.join, Role::Worker, stop, &|connection, entry| {
        let joining = Worker::join(connection, &entry.run, LeaseQueue::Workers, &options.join.name);
        let worker = host.block_on(joining).map_err(Error::cluster)?;
        take_part(host, &worker, options, stop)
    })
}

/// Plays tasks of a run until it has ended, or a stop is requested.
fn take_part(host: &Host, worker: &Worker, options: &WorkerOptions, stop: &StopRequest) -> Result<(), Error> {
    let run = &worker.entry().run;
    let JoinedRun { checked, session } =
        JoinedRun::open(host, worker, &options.participant, JoinedAs::Worker)?;
    host.notify(Notice::JoinedRun { run: run.clone() });
    let counters = Arc::new(Counters::default());
    let player = Arc::new(TaskPlayer {
        weights: WorkerWeights::new(
            worker.clone(),
            Arc::clone(&session.router),
            ModelFormats::of(&session.trainer),
            options.participant.weights_folder.as_deref().map(|shared| WeightsFolder::new(shared, run)),
        ),
        setups: session.scenarios.iter().map(|scenario| Arc::clone(&scenario.setup)).collect(),
        evaluations: checked.workflow.evaluations.clone(),
        counters: Arc::clone(&counters),
        unreadable: Mutex::default(),
    });
    let answering = counters.answer_status(host, worker, &options.join.name, &[], options.slots);
    let ended = host.block_on(player.play_all(worker, options.slots, stop));
    answering.abort();
    host.notify(Notice::LeftRun { run: run.clone(), done: counters.done() });
    ended
}

/// Plays tasks with the engine of this process.
struct TaskPlayer {
    weights: WorkerWeights,
    /// In the order of the workflow's scenarios.
    setups: Vec<Arc<EpisodeSetup>>,
    evaluations: Vec<Evaluation>,
    counters: Arc<Counters>,
    /// Error of a task that can't be read here, after which this worker leaves the run to others.
    unreadable: Mutex<Option<Error>>,
}

impl TaskPlayer {
    async fn play_all(self: Arc<Self>, worker: &Worker, slots: u32, stop: &StopRequest) -> Result<(), Error> {
        let slots = Arc::new(Semaphore::new(slots.max(1) as usize));
        let mut running = JoinSet::new();
        let ended = loop {
            if stop.is_requested() {
                break Ok(());
            }
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { break Ok(()) };
            if let Some(error) = self.unreadable.lock().take() {
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
                Err(error) => break Err(Error::cluster(error)),
            }
            while running.try_join_next().is_some() {}
        };
        // What has begun is finished, so that nobody has to play it again.
        while running.join_next().await.is_some() {}
        ended
    }

    async fn play(&self, task: LeasedTask) {
        let name = task.lease.task.clone();
        let to_play = match TaskToPlay::decode(&name, &task.lease.body) {
            Ok(to_play) => to_play,
            Err(error) => {
                task.give_back(GIVE_BACK).await;
                *self.unreadable.lock() = Some(Error::cluster(error));
                return;
            }
        };
        self.counters.begin();
        let is_done = match self.attempts(&task, to_play).await {
            Ok(result) => {
                let finished = task.finish(result).await;
                finished
                    .inspect_err(|error| tracing::warn!(task = name, %error, "a result was not stored"))
                    .is_ok()
            }
            Err(error) => {
                tracing::warn!(task = name, %error, "a task could not be played here");
                task.give_back(GIVE_BACK).await;
                false
            }
        };
        if is_done {
            tracing::info!(task = name, "played");
        }
        self.counters.end(is_done);
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
            attempts.extend(played.map_err(Error::rollout)?);
        }
        results::encode(&name, attempts).map_err(Error::cluster)
    }

    fn setup(&self, team: &TeamRef) -> Option<EpisodeSetup> {
        match team {
            TeamRef::Scenario(index) => Some(EpisodeSetup::clone(self.setups.get(*index as usize)?)),
            TeamRef::Evaluation(index) => {
                let evaluation = self.evaluations.get(*index as usize)?;
                let setup = EpisodeSetup::clone(self.setups.get(evaluation.scenario)?);
                Some(of_evaluation(setup, evaluation))
            }
        }
    }
}
