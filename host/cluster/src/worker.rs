//! The side of a worker or of a learner: leases are taken, played and acknowledged.

use std::path::Path;
use std::time::Duration;

use async_nats::jetstream::AckKind;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::Message;
use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::blobs::Blobs;
use crate::connection::Connection;
use crate::error::Error;
use crate::lease::{Lease, LeaseMessage, LeaseQueue, Outcome, ResultMessage, hash_of};
use crate::names::{Names, worker_name};
use crate::registry::{PROTOCOL, RunEntry, SharedFile, find_run};
use crate::result_log;

/// Deliveries of a lease after which no worker plays it any more.
const MOST_DELIVERIES: i64 = 5;

/// Time that a request for a lease waits at the server. The end of a run, or of the connection, ends it before. Thousands of
/// workers that ask more often would have the server do nothing else.
const LONGEST_PULL: Duration = Duration::from_secs(30);

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
    consumer: Consumer<pull::Config>,
    name: String,
    /// Reason for which the coordinator has put it aside.
    aside: watch::Receiver<Option<String>>,
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
    worker: Worker,
    message: Message,
    keeper: JoinHandle<()>,
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
        if entry.protocol != PROTOCOL {
            let RunEntry { run, program, protocol, .. } = entry;
            return Err(Error::Protocol { run, program, protocol, own: PROTOCOL });
        }
        let blobs = Blobs::open(connection, &names).await?;
        let action = "open the tasks of the run";
        let stream = connection.context.get_stream(names.tasks()).await;
        let stream = stream.map_err(connection.failed(action))?;
        let consumer =
            stream.get_consumer(&Names::consumer(queue)).await.map_err(connection.failed(action))?;
        let name = worker_name(name);
        let (put_aside, aside) = watch::channel(was_put_aside(connection, &names, &name).await?);
        let told = connection.client.subscribe(names.aside_subject(&name)).await;
        let mut told = told.map_err(connection.failed("listen for the coordinator"))?;
        tokio::spawn(async move {
            tokio::select! {
                Some(message) = told.next() => {
                    let reason = String::from_utf8_lossy(&message.payload).into_owned();
                    put_aside.send_replace(Some(reason));
                }
                // The last clone of the worker is gone.
                () = put_aside.closed() => {}
            }
        });
        let connection = connection.clone();
        Ok(Worker { connection, names, entry, blobs, queue, consumer, name, aside })
    }

    /// Returns the run's entry.
    pub fn entry(&self) -> &RunEntry {
        &self.entry
    }

    /// Returns bytes from the object store, which have the hash that they were asked for by.
    ///
    /// # Errors
    /// If they are missing or damaged.
    pub async fn blob(&self, hash: &str) -> Result<Vec<u8>, Error> {
        self.blobs.get(hash).await
    }

    /// Returns the bytes of the files of the run, one after the other, as far as `has` says that they are not here yet.
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
    /// [`Error::PutAside`] if the coordinator has refused a result of this worker; if the server is away for minutes.
    pub async fn next(&self) -> Result<Next, Error> {
        if let Some(reason) = self.aside.borrow().clone() {
            return Err(Error::PutAside { run: self.names.run.clone(), reason });
        }
        let pulled = self.pull().await;
        let message = match pulled {
            Ok(Some(message)) => message,
            Ok(None) => return self.idle().await,
            Err(error) => {
                tracing::debug!(%error, "no lease was received");
                tokio::time::sleep(Duration::from_millis(500)).await;
                return self.idle().await;
            }
        };
        let Ok(LeaseMessage { lease, .. }) = postcard::from_bytes(&message.payload) else {
            tracing::warn!("a message in the queue of tasks is not a lease, and is removed");
            self.ack(&message, AckKind::Term).await;
            return Ok(Next::Idle);
        };
        let deliveries = message.info().map_or(1, |info| info.delivered);
        let keeper = tokio::spawn(keep(message.clone(), self.progress_interval()));
        let task = LeasedTask { lease, worker: self.clone(), message, keeper };
        if deliveries > MOST_DELIVERIES {
            let reason = format!(
                "it was delivered {MOST_DELIVERIES} times and no worker has stored a result: it may end the workers \
                 that play it, or take more memory than they have"
            );
            task.fail(reason).await?;
            return Ok(Next::Idle);
        }
        Ok(Next::Play(Box::new(task)))
    }

    /// Returns true if the run has ended.
    ///
    /// # Errors
    /// If the server doesn't answer.
    pub async fn has_ended(&self) -> Result<bool, Error> {
        Ok(find_run(&self.connection, &self.names.run).await?.is_none())
    }

    async fn pull(&self) -> Result<Option<Message>, async_nats::Error> {
        let mut batch = self.consumer.batch().max_messages(1).expires(LONGEST_PULL).messages().await?;
        tokio::select! {
            message = batch.next() => message.transpose(),
            () = self.connection.reconnected() => Ok(None),
        }
    }

    async fn idle(&self) -> Result<Next, Error> {
        let find = || find_run(&self.connection, &self.names.run);
        let entry = self.connection.persist("look for the run", find).await?;
        Ok(if entry.is_some() { Next::Idle } else { Next::Ended })
    }

    /// A third of the time after which the server delivers a lease again.
    fn progress_interval(&self) -> Duration {
        let wait = self.consumer.cached_info().config.ack_wait;
        (wait / 3).max(Duration::from_millis(100))
    }

    async fn ack(&self, message: &Message, kind: AckKind) {
        if let Err(error) = message.double_ack_with(kind).await {
            tracing::debug!(%error, "an acknowledgement was lost: the lease may be played again");
        }
    }

    async fn store(&self, lease: &Lease, outcome: Outcome) -> Result<(), Error> {
        let message = ResultMessage {
            key: lease.key(),
            queue: lease.queue,
            task: lease.task.clone(),
            step: lease.step,
            worker: self.name.clone(),
            outcome,
        };
        result_log::append(&self.connection, &self.names, &message).await
    }

    /// Answers questions for this worker's status until the task is aborted.
    pub async fn answer_status(&self, status: impl Fn() -> WorkerStatus) {
        let subject = self.names.status_subject(self.queue);
        let Ok(mut questions) = self.connection.client.subscribe(subject).await else { return };
        while let Some(question) = questions.next().await {
            let Some(reply) = question.reply else { continue };
            if let Ok(answer) = serde_json::to_vec(&status()) {
                drop(self.connection.client.publish(reply, answer.into()).await);
            }
        }
    }
}

impl LeasedTask {
    /// Stores the result, and acknowledges the lease after that.
    ///
    /// # Errors
    /// If the server is away for minutes. The lease is delivered again then.
    pub async fn finish(self, result: Vec<u8>) -> Result<(), Error> {
        let (hash, largest) = (hash_of(&result), self.worker.connection.largest_message());
        let outcome = if result.len() > largest {
            let mut count = 0;
            for bytes in result.chunks(largest) {
                let part = Outcome::Part { index: count, bytes: bytes.to_vec() };
                self.worker.store(&self.lease, part).await?;
                count += 1;
            }
            Outcome::Parts { count, hash }
        } else {
            Outcome::Inline { hash, bytes: result }
        };
        self.worker.store(&self.lease, outcome).await?;
        self.worker.ack(&self.message, AckKind::Ack).await;
        Ok(())
    }

    /// Stores that no worker can play the task, which ends the run with this reason.
    ///
    /// # Errors
    /// Those of [`LeasedTask::finish`].
    pub async fn fail(self, reason: String) -> Result<(), Error> {
        self.worker.store(&self.lease, Outcome::Failed { reason }).await?;
        self.worker.ack(&self.message, AckKind::Ack).await;
        Ok(())
    }

    /// Gives the lease back, to be delivered again after a pause.
    pub async fn give_back(self, pause: Duration) {
        self.worker.ack(&self.message, AckKind::Nak(Some(pause))).await;
    }
}

impl Drop for LeasedTask {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// Returns the reason for which the coordinator has put a worker of this name aside. `None` if it has not.
async fn was_put_aside(connection: &Connection, names: &Names, name: &str) -> Result<Option<String>, Error> {
    let state = connection.context.get_key_value(names.state()).await;
    let state = state.map_err(connection.failed("open the state of the run"))?;
    let reason = state.get(Names::aside_key(name)).await;
    let reason = reason.map_err(connection.failed("read the state of the run"))?;
    Ok(reason.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Tells the server again and again that a lease is still played.
async fn keep(message: Message, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        if let Err(error) = message.ack_with(AckKind::Progress).await {
            tracing::debug!(%error, "the server did not learn that a lease is still played");
        }
    }
}

/// Returns the number of tasks of a run that wait or are played. `None` if the run has ended since it was listed.
///
/// # Errors
/// If the server doesn't answer.
pub async fn queued(connection: &Connection, run: &str) -> Result<Option<u64>, Error> {
    match connection.context.get_stream(Names::new(run).tasks()).await {
        Ok(stream) => Ok(Some(stream.cached_info().state.messages)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(connection.failed("count the tasks of the run")(error)),
    }
}

/// Returns true if there is no such stream.
fn is_missing(error: &GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// Asks the workers of a run for their status.
///
/// # Errors
/// If the server doesn't answer.
pub async fn workers(connection: &Connection, run: &str) -> Result<Vec<WorkerStatus>, Error> {
    let client = &connection.client;
    let inbox = client.new_inbox();
    let mut answers = client.subscribe(inbox.clone()).await.map_err(connection.failed("ask the workers"))?;
    for queue in [LeaseQueue::Workers, LeaseQueue::Learner(0)] {
        let subject = Names::new(run).status_subject(queue);
        let asked = client.publish_with_reply(subject, inbox.clone(), Vec::new().into()).await;
        asked.map_err(connection.failed("ask the workers"))?;
    }
    let mut workers: Vec<WorkerStatus> = Vec::new();
    let collecting = async {
        while let Some(answer) = answers.next().await {
            workers.extend(serde_json::from_slice::<WorkerStatus>(&answer.payload).ok());
        }
    };
    // No answer says that it is the last.
    drop(tokio::time::timeout(LONGEST_ANSWER, collecting).await);
    workers.sort_by(|a, b| a.worker.cmp(&b.worker));
    Ok(workers)
}

impl SharedFile {
    /// Returns true if a path leads into the folder that it is relative to: no part of it is `..`, and it is not absolute.
    pub fn is_inside(&self) -> bool {
        let normal = |part| matches!(part, std::path::Component::Normal(_));
        !self.path.is_empty() && Path::new(&self.path).components().all(normal)
    }
}
