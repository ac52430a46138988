//! The side of a worker or of a learner: leases are taken, played and acknowledged.

use std::path::Path;
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{self, Consumer};
use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind};
use futures::StreamExt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::blobs::Blobs;
use crate::connection::Connection;
use crate::error::Error;
use crate::job_client::JobClient;
use crate::lease::{Lease, LeaseMessage, LeaseQueue, Outcome, ResultMessage};
use crate::names::{Names, worker_name};
use crate::pull::{LeaseHeartbeat, MOST_DELIVERIES, acknowledge, deliveries, is_published, pull};
use crate::registry::{RunEntry, SharedFile, find_run};
use crate::result_log;

/// Time that `pl-host cluster status` waits for answers.
const LONGEST_ANSWER: Duration = Duration::from_millis(500);

/// A process that plays the tasks of a run.
#[derive(Clone)]
pub struct Worker {
    connection: Connection,
    names: Names,
    entry: RunEntry,
    blobs: Blobs,
    queue: LeaseQueue,
    consumer: Consumer<consumer::pull::Config>,
    name: String,
    /// Reason for which the coordinator has excluded it.
    exclusion: watch::Receiver<Option<String>>,
}

/// Next thing to do for a worker.
pub enum Next {
    Play(Box<LeasedTask>),
    /// No lease was free. The worker asks again.
    Idle,
    /// The run has ended.
    Ended,
}

/// A lease that this worker holds. It is kept while the value lives; dropped, it is delivered again after a while.
pub struct LeasedTask {
    pub lease: Lease,
    /// Coordinator that has published it.
    epoch: u64,
    worker: Worker,
    message: Message,
    _heartbeat: LeaseHeartbeat,
}

/// Answer of a worker to `pl-host cluster status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    pub worker: String,
    pub program: String,
    /// Kind of its CPU.
    pub cpu: String,
    /// Policies that it trains. Empty for one that plays.
    pub policies: Vec<String>,
    pub slots: u32,
    /// Tasks that it plays.
    pub playing: u32,
    /// Tasks whose results it has stored.
    pub played: u64,
}

impl Worker {
    /// Joins a run, to take leases of a queue.
    ///
    /// # Errors
    /// [`Error::NoRun`] if it has ended, [`Error::Protocol`] if its coordinator is of another version.
    pub async fn join(
        connection: &Connection,
        run: &str,
        queue: LeaseQueue,
        name: &str,
    ) -> Result<Worker, Error> {
        let (server, names) = (connection.server().to_owned(), Names::new(run));
        let entry = find_run(connection, run).await?;
        let entry = entry.ok_or_else(|| Error::NoRun { server, run: run.to_owned() })?;
        entry.check_protocol()?;
        let blobs = Blobs::open(connection, &names).await?;
        let action = "open the tasks of the run";
        let stream = connection.context.get_stream(names.tasks()).await;
        let stream = stream.map_err(connection.failed(action))?;
        let consumer =
            stream.get_consumer(&Names::consumer(queue)).await.map_err(connection.failed(action))?;
        let name = worker_name(name);
        let (excluder, exclusion) = watch::channel(exclusion_reason(connection, &names, &name).await?);
        let told = connection.client.subscribe(names.aside_subject(&name)).await;
        let mut told = told.map_err(connection.failed("listen for the coordinator"))?;
        tokio::spawn(async move {
            tokio::select! {
                Some(message) = told.next() => {
                    let reason = String::from_utf8_lossy(&message.payload).into_owned();
                    excluder.send_replace(Some(reason));
                }
                // The last clone of the worker is gone.
                () = excluder.closed() => {}
            }
        });
        let connection = connection.clone();
        Ok(Worker { connection, names, entry, blobs, queue, consumer, name, exclusion })
    }

    /// Returns the run's entry.
    pub fn entry(&self) -> &RunEntry {
        &self.entry
    }

    /// Returns the queue of the run's jobs. `None` if this process runs those of its tasks itself.
    ///
    /// # Errors
    /// Those of [`JobClient::open`].
    pub async fn jobs(&self) -> Result<Option<JobClient>, Error> {
        if self.entry.jobs.is_none() {
            return Ok(None);
        }
        let patience = self.consumer.cached_info().config.ack_wait;
        JobClient::open(&self.connection, &self.entry.run, patience).await.map(Some)
    }

    /// Returns the object with this hash, verified.
    ///
    /// # Errors
    /// If they are missing or damaged.
    pub async fn blob(&self, hash: &str) -> Result<Vec<u8>, Error> {
        self.blobs.get(hash).await
    }

    /// Returns the bytes of the files of the run, one after the other, skipping those that `has` accepts.
    ///
    /// # Errors
    /// Those of the store, and of `write`.
    pub async fn fetch<E: From<Error>>(
        &self,
        has: impl Fn(&SharedFile) -> bool,
        mut write: impl FnMut(&SharedFile, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for file in self.entry.files.iter().filter(|file| !has(file)) {
            let bytes = self.blob(&file.hash).await?;
            write(file, &bytes)?;
        }
        Ok(())
    }

    /// Waits some seconds for a lease.
    ///
    /// # Errors
    /// [`Error::Excluded`] if the coordinator has refused a result of this worker; [`Error::Unreadable`] if a lease can't be read,
    /// which is left to other workers; if the server is away for minutes.
    pub async fn next(&self) -> Result<Next, Error> {
        if let Some(reason) = self.exclusion.borrow().clone() {
            return Err(Error::Excluded { run: self.names.run.clone(), reason });
        }
        let Some(message) = pull(&self.connection, &self.consumer).await else { return self.idle().await };
        let LeaseMessage { epoch, lease } = match postcard::from_bytes(&message.payload) {
            Ok(own) => own,
            // No coordinator would wait for a result of it.
            Err(_) if !is_published(&message) => {
                tracing::warn!("a message in the queue of tasks is not a lease, and is removed");
                acknowledge(&message, AckKind::Term).await;
                return Ok(Next::Idle);
            }
            Err(error) => {
                acknowledge(&message, AckKind::Nak(None)).await;
                return Err(self.entry.unreadable("a task", &error));
            }
        };
        let is_lost = deliveries(&message) > MOST_DELIVERIES;
        let heartbeat = LeaseHeartbeat::start(message.clone(), &self.consumer);
        let task = LeasedTask { lease, epoch, worker: self.clone(), message, _heartbeat: heartbeat };
        if is_lost {
            let reason = format!(
                "it was delivered {MOST_DELIVERIES} times and no worker has stored a result: it may end the workers \
                 that play it, take more memory than they have, or be of another version of pl-host"
            );
            task.fail(reason).await?;
            return Ok(Next::Idle);
        }
        Ok(Next::Play(Box::new(task)))
    }

    /// Returns true if the run has ended.
    ///
    /// # Errors
    /// If the server is away for minutes.
    pub async fn has_ended(&self) -> Result<bool, Error> {
        Ok(find_run(&self.connection, &self.names.run).await?.is_none())
    }

    async fn idle(&self) -> Result<Next, Error> {
        Ok(if self.has_ended().await? { Next::Ended } else { Next::Idle })
    }

    /// Answers questions for this worker's status until the task is aborted.
    pub async fn answer_status(&self, status: impl Fn() -> WorkerStatus) {
        answer(&self.connection, self.names.status_subject(self.queue), status).await;
    }
}

impl LeasedTask {
    /// Stores the result, and acknowledges the lease after that.
    ///
    /// # Errors
    /// If the server is away for minutes. The lease is delivered again then.
    pub async fn finish(self, result: Vec<u8>) -> Result<(), Error> {
        for outcome in Outcome::messages(&result, self.worker.connection.largest_message()) {
            self.store(outcome).await?;
        }
        acknowledge(&self.message, AckKind::Ack).await;
        Ok(())
    }

    /// Stores that no worker can play the task, which ends the run with this reason.
    ///
    /// # Errors
    /// Those of [`LeasedTask::finish`].
    pub async fn fail(self, reason: String) -> Result<(), Error> {
        self.store(Outcome::Failed { reason }).await?;
        acknowledge(&self.message, AckKind::Ack).await;
        Ok(())
    }

    async fn store(&self, outcome: Outcome) -> Result<(), Error> {
        let LeasedTask { lease, epoch, worker, .. } = self;
        let message = ResultMessage {
            key: lease.key(),
            queue: lease.queue,
            task: lease.task.clone(),
            step: lease.step,
            worker: worker.name.clone(),
            outcome,
        };
        result_log::append(&worker.connection, &worker.names, *epoch, &message).await
    }

    /// Gives the lease back, to be delivered again after a pause.
    pub async fn give_back(self, pause: Duration) {
        acknowledge(&self.message, AckKind::Nak(Some(pause))).await;
    }
}

/// Returns the reason for which the coordinator has excluded a worker of this name. `None` if it has not.
async fn exclusion_reason(
    connection: &Connection,
    names: &Names,
    name: &str,
) -> Result<Option<String>, Error> {
    let state = connection.context.get_key_value(names.state()).await;
    let state = state.map_err(connection.failed("open the state of the run"))?;
    let reason = state.get(Names::aside_key(name)).await;
    let reason = reason.map_err(connection.failed("read the state of the run"))?;
    Ok(reason.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Returns the number of tasks of a run that wait or are played. `None` if the run has ended since it was listed.
///
/// # Errors
/// If the server doesn't answer.
pub async fn queued(connection: &Connection, run: &str) -> Result<Option<u64>, Error> {
    messages(connection, Names::new(run).tasks(), "count the tasks of the run").await
}

/// Returns the number of messages of a stream. `None` if there is no such stream.
pub(crate) async fn messages(
    connection: &Connection,
    stream: String,
    action: &str,
) -> Result<Option<u64>, Error> {
    match connection.context.get_stream(stream).await {
        Ok(stream) => Ok(Some(stream.cached_info().state.messages)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(connection.failed(action)(error)),
    }
}

/// Returns true if there is no such stream.
fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// Asks the workers and the learners of a run for their status.
///
/// # Errors
/// If the server doesn't answer.
pub async fn workers(connection: &Connection, run: &str) -> Result<Vec<WorkerStatus>, Error> {
    let subjects =
        [LeaseQueue::Workers, LeaseQueue::Learner(0)].map(|queue| Names::new(run).status_subject(queue));
    let mut workers: Vec<WorkerStatus> = ask(connection, &subjects).await?;
    workers.sort_by(|a, b| a.worker.cmp(&b.worker));
    Ok(workers)
}

/// Asks for what processes answer on subjects, in half a second.
pub(crate) async fn ask<T: DeserializeOwned>(
    connection: &Connection,
    subjects: &[String],
) -> Result<Vec<T>, Error> {
    let client = &connection.client;
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await.map_err(connection.failed("ask the workers"))?;
    for subject in subjects {
        let asked = client.publish_with_reply(subject.clone(), inbox.clone(), Vec::new().into()).await;
        asked.map_err(connection.failed("ask the workers"))?;
    }
    let mut all = Vec::new();
    let collecting = async {
        while let Some(answer) = answers.next().await {
            all.extend(serde_json::from_slice::<T>(&answer.payload).ok());
        }
    };
    // No answer says that it is the last.
    drop(tokio::time::timeout(LONGEST_ANSWER, collecting).await);
    Ok(all)
}

/// Answers questions on a subject until the task is aborted.
pub(crate) async fn answer<T: Serialize>(connection: &Connection, subject: String, status: impl Fn() -> T) {
    let Ok(mut questions) = connection.client.subscribe(subject).await else { return };
    while let Some(question) = questions.next().await {
        let Some(reply) = question.reply else { continue };
        if let Ok(answer) = serde_json::to_vec(&status()) {
            drop(connection.client.publish(reply, answer.into()).await);
        }
    }
}

impl SharedFile {
    /// Returns true if a path leads into the folder that it is relative to: no part of it is `..`, and it is not absolute.
    pub fn is_inside(&self) -> bool {
        let normal = |part| matches!(part, std::path::Component::Normal(_));
        !self.path.is_empty() && Path::new(&self.path).components().all(normal)
    }
}
