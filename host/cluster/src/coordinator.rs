//! The coordinator's side: leases go out, results come back.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_nats::jetstream::consumer::AckPolicy;
use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::kv::{self, Store};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, RawMessageErrorKind, RetentionPolicy, StorageType, Stream,
};
use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::blobs::Blobs;
use crate::board::Board;
use crate::connection::Connection;
use crate::error::Error;
use crate::jobs;
use crate::lease::{Lease, LeaseId, LeaseMessage, LeaseQueue, Outcome, ResultMessage, WeightsRef, hash_of};
use crate::names::{EPOCH, Names, SANDBOXES};
use crate::registry::{LearnerEntry, PROTOCOL, RunEntry, SharedFile, registry};
use crate::result_log;
use crate::streams::create_stream;

/// Largest number of workers that wait for a lease, and of leases that are played at a time.
const MOST_WORKERS: i64 = 65_536;

/// Unusable results of a task after which the run ends.
const MOST_REFUSALS: u32 = 3;

/// Leases that the server is asked to store at a time. More would wait for its disk until their requests time out, and would be
/// sent again.
const MOST_PUBLISHING: usize = 256;

/// Numbers of messages of a lease after each refused result.
const REISSUES: u32 = 1_000_000;

/// Settings of a coordinator.
#[derive(Debug, Clone)]
pub struct CoordinatorOptions {
    /// Name of the run's streams: letters, digits and `-`.
    pub run: String,
    /// Time after which a lease is delivered again, if its worker doesn't say that it still plays.
    pub lease: Duration,
    /// Learners in processes of their own, below [`MOST_LEARNERS`](crate::MOST_LEARNERS).
    pub learners: Vec<LearnerEntry>,
    /// Settings of sandbox machines. `None` if workers run the jobs of their tasks.
    pub jobs: Option<serde_json::Value>,
}

/// Kind of process that a run needs and that is not there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum MissingProcess {
    /// Plays tasks.
    Worker,
    /// Trains these policies.
    Learner { policies: Vec<String> },
    /// Runs jobs.
    SandboxMachine,
}

impl MissingProcess {
    /// Returns the command that starts it. `nats` is the address of the server.
    pub fn command(&self, nats: &str) -> String {
        match self {
            Self::Worker => format!("pl-host worker --nats {nats}"),
            Self::Learner { policies } => {
                let policy = policies.first().map_or("NAME", String::as_str);
                format!("pl-host learner --nats {nats} --policy {policy}")
            }
            Self::SandboxMachine => format!("pl-host sandbox serve --nats {nats}"),
        }
    }
}

/// The process that hands out the tasks of a run.
pub struct Coordinator {
    shared: Arc<Shared>,
    learners: Vec<LearnerEntry>,
    jobs: Option<serde_json::Value>,
    /// Follows the log of results, looks after leases that the server has lost, and after the queue of jobs.
    background: Vec<JoinHandle<()>>,
}

struct Shared {
    connection: Connection,
    names: Names,
    epoch: u64,
    tasks: Stream,
    results: Stream,
    state: Store,
    blobs: Blobs,
    board: Mutex<Board>,
    publishing: Semaphore,
}

/// Value of [`EPOCH`] in the state of a run.
#[derive(Serialize, Deserialize)]
struct Epoch {
    epoch: u64,
}

/// Newest weights of a learner in the state of a run.
#[derive(Serialize, Deserialize)]
struct Announcement {
    epoch: u64,
    update: u64,
    hash: String,
}

impl Coordinator {
    /// Takes a run over, or begins it: creates what is missing on the server, raises the epoch, and drops the leases of the
    /// coordinator before. Its results stay.
    ///
    /// # Errors
    /// If the server fails, or another coordinator is started at the same time.
    pub async fn start(connection: &Connection, options: &CoordinatorOptions) -> Result<Coordinator, Error> {
        let names = Names::new(&options.run);
        let state_config = || kv::Config { bucket: names.state(), history: 8, ..Default::default() };
        let state = match connection.context.get_key_value(names.state()).await {
            Ok(state) => state,
            Err(_) => {
                let create = || connection.context.create_key_value(state_config());
                connection.persist("create the state of the run", create).await?
            }
        };
        let epoch = raise_epoch(connection, &state, &names.run).await?;
        let blobs = Blobs::create(connection, &names).await?;
        let results = result_log::create(connection, &names).await?;
        let config = Config {
            name: names.tasks(),
            subjects: names.lease_subjects(),
            retention: RetentionPolicy::WorkQueue,
            storage: StorageType::File,
            discard: DiscardPolicy::New,
            ..Config::default()
        };
        let tasks = create_stream(connection, "create the stream of tasks", config).await?;
        tasks.purge().await.map_err(connection.failed("drop old leases"))?;
        let learners = options.learners.iter().map(|own| LeaseQueue::Learner(own.learner));
        for queue in learners.chain([LeaseQueue::Workers]) {
            let consumer = pull::Config {
                durable_name: Some(Names::consumer(queue)),
                filter_subject: names.lease_subject(queue),
                ack_policy: AckPolicy::Explicit,
                ack_wait: options.lease,
                max_ack_pending: MOST_WORKERS,
                max_waiting: MOST_WORKERS,
                ..pull::Config::default()
            };
            let create = || tasks.create_consumer(consumer.clone());
            connection.persist("create a consumer of leases", create).await?;
        }
        if options.jobs.is_some() {
            jobs::create_queue(connection, &names, options.lease).await?;
        }
        let (connection, board) = (connection.clone(), Mutex::default());
        let publishing = Semaphore::new(MOST_PUBLISHING);
        let shared = Shared { connection, names, epoch, tasks, results, state, blobs, board, publishing };
        let shared = Arc::new(shared);
        let (reader, watcher, every) = (Arc::clone(&shared), Arc::clone(&shared), options.lease);
        let mut background = vec![
            tokio::spawn(async move {
                let (connection, names) = (reader.connection.clone(), reader.names.clone());
                let log = reader.results.clone();
                let receive = |result| reader.board.lock().receive(result);
                result_log::follow(connection, names, log, reader.epoch, receive).await;
            }),
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(every).await;
                    watcher.reissue_lost(every).await;
                }
            }),
        ];
        if options.jobs.is_some() {
            let (connection, names) = (shared.connection.clone(), shared.names.clone());
            background.push(tokio::spawn(jobs::keep_queue(connection, names, every)));
        }
        let (learners, jobs) = (options.learners.clone(), options.jobs.clone());
        Ok(Coordinator { shared, learners, jobs, background })
    }

    /// Lets workers and learners join: lists the run in the registry of the server.
    ///
    /// # Errors
    /// If the server fails.
    pub async fn open_to_workers(
        &self,
        program: &str,
        manifest: &[u8],
        files: Vec<SharedFile>,
    ) -> Result<(), Error> {
        let Shared { connection, names, .. } = &*self.shared;
        let entry = RunEntry {
            run: names.run.clone(),
            protocol: PROTOCOL,
            program: program.to_owned(),
            started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            manifest: self.put_blob(manifest).await?,
            files,
            learners: self.learners.clone(),
            jobs: self.jobs.clone(),
        };
        let registry = registry(connection).await?;
        let value: Bytes =
            serde_json::to_vec(&entry).map_err(connection.failed("encode the entry of the run"))?.into();
        let put = || registry.put(&names.run, value.clone());
        connection.persist("list the run", put).await?;
        Ok(())
    }

    /// Stores bytes under their hash. Returns the hash.
    ///
    /// # Errors
    /// If the server fails.
    pub async fn put_blob(&self, bytes: &[u8]) -> Result<String, Error> {
        self.shared.blobs.put(bytes).await
    }

    /// Removes bytes that no later lease names.
    pub async fn remove_blob(&self, hash: &str) {
        self.shared.blobs.remove(hash).await;
    }

    /// Announces the newest weights of a learner, by compare-and-set.
    ///
    /// # Errors
    /// [`Error::Fenced`] if another coordinator has taken the run over.
    pub async fn announce(&self, weights: &WeightsRef) -> Result<(), Error> {
        let Shared { connection, state, epoch, .. } = &*self.shared;
        let key = Names::learner(weights.learner);
        let value = Announcement { epoch: *epoch, update: weights.update, hash: weights.hash.clone() };
        let value: Bytes = serde_json::to_vec(&value).map_err(connection.failed("encode weights"))?.into();
        loop {
            let read = || state.entry(&key);
            let entry = connection.persist("read the weights of a learner", read).await?;
            self.shared.check_epoch().await?;
            // A coordinator that starts between these two lines raises the epoch before it writes here, and then the
            // revision differs.
            let revision = entry.map_or(0, |entry| entry.revision);
            match state.update(&key, value.clone(), revision).await {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == kv::UpdateErrorKind::WrongLastRevision => {}
                Err(error) => {
                    tracing::debug!(%error, "weights are announced again");
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        }
    }

    /// Publishes a lease and waits for its result, which may be there already. A worker whose result `check` refuses is
    /// excluded, and the lease is played by others.
    ///
    /// # Errors
    /// If no worker can play it, or the server is away for minutes.
    pub async fn play<T, E: std::error::Error>(
        &self,
        lease: Lease,
        check: impl Fn(&[u8]) -> Result<T, E>,
    ) -> Result<T, Error> {
        let id = lease.id();
        let failed = |reason: String| Error::Task { task: lease.task.clone(), reason };
        let check = |bytes: &[u8]| check(bytes).map_err(|error| error.to_string());
        let mut refused = 0;
        loop {
            let result = self.result(&id, &lease, refused).await?;
            let worker = result.worker;
            let checked = match result.outcome {
                Outcome::Inline { hash, bytes } if hash_of(&bytes) == hash => check(&bytes),
                Outcome::Inline { .. } => Err("a result differs from its hash".to_owned()),
                Outcome::Part { .. } | Outcome::Parts { .. } => {
                    Err("parts of a result are missing".to_owned())
                }
                Outcome::Unreadable { reason } => Err(format!(
                    "its result can't be read ({reason}); it is probably another version of pl-host: start the coordinator's there"
                )),
                Outcome::Failed { reason } => return Err(failed(format!("worker {worker}: {reason}"))),
            };
            let reason = match checked {
                Ok(result) => return Ok(result),
                Err(reason) => reason,
            };
            refused += 1;
            if refused > MOST_REFUSALS {
                let reason = format!(
                    "the results of {refused} workers are not usable; the last one, of {worker}: {reason}"
                );
                return Err(failed(reason));
            }
            self.exclude_worker(&worker, &lease.task, &reason).await?;
        }
    }

    /// Publishes the lease if it has no result. Returns its next result. `refused`: number of results refused so far.
    async fn result(&self, id: &LeaseId, lease: &Lease, refused: u32) -> Result<ResultMessage, Error> {
        // Leases that are published again because they were lost have numbers of their own.
        let reissues = refused * REISSUES;
        let (receiver, has_to_be_published) = self.shared.board.lock().await_result(id, lease, reissues);
        if has_to_be_published {
            self.shared.publish(id, lease, reissues).await?;
        }
        receiver.await.map_err(|_| Error::Ended { run: self.shared.names.run.clone() })
    }

    /// Lets a worker play no more, and drops its later results.
    async fn exclude_worker(&self, worker: &str, task: &str, reason: &str) -> Result<(), Error> {
        let Shared { connection, names, state, .. } = &*self.shared;
        let reason = format!("task {task}: {reason}");
        tracing::warn!(worker, reason, "a worker is excluded");
        self.shared.board.lock().exclude(worker);
        let key = Names::aside_key(worker);
        let put = || state.put(&key, reason.clone().into());
        connection.persist("exclude a worker", put).await?;
        let told = connection.client.publish(names.aside_subject(worker), reason.clone().into()).await;
        told.map_err(connection.failed("tell a worker"))
    }

    /// Returns the kinds of processes that work waits for although there are none, with the number of tasks, updates or jobs that
    /// wait: `None` for a kind that the server could not be asked about.
    pub async fn missing_processes(&self) -> Vec<(MissingProcess, Option<u64>)> {
        let names = &self.shared.names;
        let learner = |own: &LearnerEntry| {
            let queue = LeaseQueue::Learner(own.learner);
            let missing = MissingProcess::Learner { policies: own.policies.clone() };
            (missing, names.tasks(), Names::consumer(queue))
        };
        let workers = (MissingProcess::Worker, names.tasks(), Names::consumer(LeaseQueue::Workers));
        let machines = (MissingProcess::SandboxMachine, names.jobs(), SANDBOXES.to_owned());
        let queues = std::iter::once(workers).chain(self.learners.iter().map(learner));
        let mut missing = Vec::new();
        for (process, stream, consumer) in queues.chain(self.jobs.as_ref().map(|_| machines)) {
            match self.shared.unserved(&stream, &consumer).await {
                Some(0) => {}
                waiting => missing.push((process, waiting)),
            }
        }
        missing
    }

    /// Removes the results of steps up to `last`, which a checkpoint includes.
    pub async fn forget(&self, steps: std::ops::RangeInclusive<u64>) {
        let Shared { results, names, .. } = &*self.shared;
        let last = *steps.end();
        for step in steps {
            for queue in [LeaseQueue::Workers, LeaseQueue::Learner(0)] {
                if let Err(error) = results.purge().filter(names.result_subject(queue, step)).await {
                    tracing::debug!(step, %error, "old results were not removed");
                }
            }
        }
        self.shared.board.lock().forget(last);
    }

    /// Ends the run on the server: workers leave it, and its streams are removed.
    pub async fn end(&self) {
        let Shared { connection, names, .. } = &*self.shared;
        let context = &connection.context;
        let removing = async {
            if let Ok(registry) = registry(connection).await {
                registry.purge(&names.run).await.map_err(|error| error.to_string())?;
            }
            let failed = |error: async_nats::jetstream::context::DeleteStreamError| error.to_string();
            context.delete_stream(names.tasks()).await.map_err(failed)?;
            context.delete_stream(names.results()).await.map_err(failed)?;
            if self.jobs.is_some() {
                context.delete_stream(names.jobs()).await.map_err(failed)?;
                context.delete_stream(names.inputs()).await.map_err(failed)?;
            }
            context.delete_key_value(names.state()).await.map_err(|error| error.to_string())?;
            context.delete_object_store(names.blobs()).await.map_err(|error| error.to_string())
        };
        if let Err(error) = removing.await {
            tracing::warn!(run = names.run, error, "the streams of the run were not removed from the server");
        }
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.background.iter().for_each(JoinHandle::abort);
    }
}

impl Shared {
    async fn publish(&self, id: &LeaseId, lease: &Lease, reissue: u32) -> Result<(), Error> {
        let message = LeaseMessage { epoch: self.epoch, lease: lease.clone() };
        let connection = &self.connection;
        let encoded: Bytes =
            postcard::to_allocvec(&message).map_err(connection.failed("encode a lease"))?.into();
        let message_id = format!("{}-{}-{reissue}", id.key, self.epoch);
        let subject = self.names.lease_subject(lease.queue);
        let publish = || async {
            let message = PublishMessage::build().payload(encoded.clone()).message_id(&message_id);
            connection.context.send_publish(subject.clone(), message).await?.await
        };
        let turn = self.publishing.acquire().await;
        let ack = connection.persist("publish a task", publish).await?;
        drop(turn);
        self.board.lock().set_published(id, ack.sequence, reissue);
        Ok(())
    }

    /// Returns the number of messages of a consumer that wait although no process takes any: 0 if a process is there. `None` if
    /// the server could not be asked.
    async fn unserved(&self, stream: &str, consumer: &str) -> Option<u64> {
        let found = self.connection.context.get_consumer_from_stream::<pull::Config, _, _>(consumer, stream);
        let found = found.await.ok()?;
        let info = found.cached_info();
        let is_served = info.num_waiting > 0 || info.num_ack_pending > 0;
        Some(if is_served { 0 } else { info.num_pending })
    }

    /// Publishes leases again that the server has lost: neither in the work queue nor with a result. A server that
    /// acknowledges before it writes may lose some when its machine does.
    async fn reissue_lost(&self, older_than: Duration) {
        let old: Vec<(LeaseId, Lease, u64, u32)> = self
            .board
            .lock()
            .unanswered(older_than)
            .map(|(id, waiting)| (id.clone(), waiting.lease.clone(), waiting.sequence, waiting.reissues))
            .collect();
        for (id, lease, sequence, reissues) in old {
            match self.tasks.get_raw_message(sequence).await {
                Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => {}
                _ => continue,
            }
            // Its result is in the log before its message leaves the queue, so it may be on the way.
            tokio::time::sleep(Duration::from_secs(1)).await;
            if self.board.lock().is_waiting(&id) {
                tracing::warn!(task = lease.task, "the server has lost a lease, which is published again");
                if let Err(error) = self.publish(&id, &lease, reissues + 1).await {
                    tracing::warn!(task = lease.task, %error, "a lost lease was not published again");
                }
            }
        }
    }

    async fn check_epoch(&self) -> Result<(), Error> {
        let read = || self.state.get(EPOCH);
        let value = self.connection.persist("read the epoch", read).await?;
        let newer = value.and_then(|bytes| serde_json::from_slice::<Epoch>(&bytes).ok());
        match newer.map_or(0, |epoch| epoch.epoch) {
            newer if newer == self.epoch => Ok(()),
            newer => Err(Error::Fenced { run: self.names.run.clone(), own: self.epoch, newer }),
        }
    }
}

/// Raises the epoch of a run by compare-and-set. Returns the new one.
async fn raise_epoch(connection: &Connection, state: &Store, run: &str) -> Result<u64, Error> {
    let entry = connection.persist("read the epoch", || state.entry(EPOCH)).await?;
    let before = entry.as_ref().and_then(|entry| serde_json::from_slice::<Epoch>(&entry.value).ok());
    let before = before.map_or(0, |epoch| epoch.epoch);
    let epoch = before + 1;
    let value: Bytes =
        serde_json::to_vec(&Epoch { epoch }).map_err(connection.failed("encode the epoch"))?.into();
    let revision = entry.map_or(0, |entry| entry.revision);
    state.update(EPOCH, value, revision).await.map_err(|error| match error.kind() {
        kv::UpdateErrorKind::WrongLastRevision => {
            Error::Fenced { run: run.to_owned(), own: before, newer: epoch }
        }
        _ => connection.failed("raise the epoch")(error),
    })?;
    Ok(epoch)
}
