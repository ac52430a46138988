//! The side of a process that has jobs: they are sent to sandbox machines, and the first verdict of each counts.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::Subscriber;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{RawMessageErrorKind, Stream};
use bytes::Bytes;
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

use crate::connection::Connection;
use crate::error::Error;
use crate::jobs::{JobInput, JobMessage, LARGEST_JOB, VerdictMessage};
use crate::lease::{Outcome, hash_of};
use crate::names::{Names, random_digits};
use crate::partial_results::PartialResults;
use crate::registry::find_run;

/// Jobs that the server is asked to store at a time.
const MOST_PUBLISHING: usize = 256;

/// Unusable verdicts of a job after which it is given up.
const MOST_REFUSALS: u32 = 3;

/// Messages of a job, besides the first, after which it is given up: each has left the queue without a verdict.
const MOST_REISSUES: u32 = 9;

/// Memory of the parts of all verdicts, in bytes. Jobs of verdicts that are dropped are sent again.
const MOST_BUFFERED: usize = 1 << 30;

/// Time for a verdict that is on its way when its job has left the queue.
const GRACE: Duration = Duration::from_secs(1);

/// Time in which a server says that it refuses a subscription.
const REFUSAL: Duration = Duration::from_millis(200);

/// Sends jobs to the sandbox machines of a run.
pub struct JobClient {
    shared: Arc<Shared>,
    /// Takes verdicts, and looks after jobs that the server has lost.
    background: [JoinHandle<()>; 2],
}

struct Shared {
    connection: Connection,
    names: Names,
    /// Name of this process in the subject of its verdicts.
    requester: String,
    jobs: Stream,
    requests: Mutex<Requests>,
    publishing: Semaphore,
}

/// Jobs whose verdicts are awaited, by key.
#[derive(Default)]
struct Requests {
    waiting: HashMap<String, Waiting>,
    /// Parts of verdicts of these jobs, by machine.
    parts: PartialResults<String>,
}

/// A job whose verdict is awaited.
struct Waiting {
    sender: oneshot::Sender<Result<Vec<u8>, Error>>,
    job: Arc<Vec<u8>>,
    /// Its message in the work queue. 0 before it is there.
    sequence: u64,
    published: Instant,
    /// Number of earlier messages of it.
    reissues: u32,
}

/// Removes a job whose caller has stopped waiting.
struct RemoveOnDrop<'s> {
    shared: &'s Shared,
    key: &'s str,
}

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        self.shared.requests.lock().remove(self.key);
    }
}

impl JobClient {
    /// Opens the queue of a run's jobs. Jobs without a verdict are looked up every `lease`.
    ///
    /// # Errors
    /// [`Error::NoSandboxAccount`] if the server's configuration knows no sandbox machines; if the server fails.
    pub async fn open(connection: &Connection, run: &str, lease: Duration) -> Result<JobClient, Error> {
        let names = Names::new(run);
        let requester = random_digits(16);
        let verdicts = connection.client.subscribe(names.verdict_subject(&requester)).await;
        let verdicts = verdicts.map_err(connection.failed("listen for verdicts"))?;
        // The answer comes after a refusal of the subscription.
        let jobs =
            connection.persist("open the jobs of the run", || connection.context.get_stream(names.jobs()));
        let refused = |reason| Error::NoSandboxAccount { server: connection.server().to_owned(), reason };
        let jobs = jobs.await.map_err(|error| match error {
            Error::Refused { reason, .. } => refused(reason),
            error => error,
        })?;
        if let Ok(reason) = tokio::time::timeout(REFUSAL, connection.refused()).await {
            return Err(refused(reason));
        }
        let publishing = Semaphore::new(MOST_PUBLISHING);
        let (connection, requests) = (connection.clone(), Mutex::default());
        let shared = Arc::new(Shared { connection, names, requester, jobs, requests, publishing });
        let background = [
            tokio::spawn(receive_all(Arc::clone(&shared), verdicts)),
            tokio::spawn(reissue_all(Arc::clone(&shared), lease)),
        ];
        Ok(JobClient { shared, background })
    }

    /// Sends a job, and waits for the first verdict that `check` takes. Other verdicts are dropped, and the job is sent again.
    ///
    /// # Errors
    /// [`Error::Job`] if no machine can run it; [`Error::Ended`] if the run ends; if the server is away for minutes.
    pub async fn run<T, E: Display>(
        &self,
        job: Vec<u8>,
        check: impl Fn(&[u8]) -> Result<T, E>,
    ) -> Result<T, Error> {
        if job.len() > LARGEST_JOB {
            let reason = format!("it has {} bytes, and {LARGEST_JOB} are allowed", job.len());
            return Err(Error::Job { reason });
        }
        let job = Arc::new(job);
        let mut refused = 0;
        loop {
            let verdict = self.verdict(&job).await?;
            let reason = match check(&verdict) {
                Ok(verdict) => return Ok(verdict),
                Err(reason) => reason.to_string(),
            };
            tracing::warn!(reason, "a verdict is not usable, and is dropped");
            refused += 1;
            if refused > MOST_REFUSALS {
                return Err(Error::Job {
                    reason: format!("{refused} verdicts are not usable; the last one: {reason}"),
                });
            }
        }
    }

    async fn verdict(&self, job: &Arc<Vec<u8>>) -> Result<Vec<u8>, Error> {
        let shared = &*self.shared;
        let mut hash = hash_of(job);
        hash.truncate(16);
        let key = format!("{hash}-{}", random_digits(16));
        let (sender, receiver) = oneshot::channel();
        let published = Instant::now();
        let waiting = Waiting { sender, job: Arc::clone(job), sequence: 0, published, reissues: 0 };
        shared.requests.lock().waiting.insert(key.clone(), waiting);
        // If the caller is cancelled.
        let _removal = RemoveOnDrop { shared, key: &key };
        shared.publish(&key, job, 0).await?;
        receiver.await.map_err(|_| Error::Ended { run: shared.names.run.clone() })?
    }
}

impl Drop for JobClient {
    fn drop(&mut self) {
        self.background.iter().for_each(JoinHandle::abort);
    }
}

impl Requests {
    fn remove(&mut self, key: &str) -> Option<Waiting> {
        let waiting = self.waiting.remove(key)?;
        self.parts.remove_all(&key.to_owned());
        Some(waiting)
    }

    /// Takes over a verdict, or a part of it. Of several of a job, the first counts.
    fn receive(&mut self, message: VerdictMessage) {
        let VerdictMessage { key, machine, outcome } = message;
        if !self.waiting.contains_key(&key) {
            tracing::debug!(key, machine, "a verdict is late, and is dropped");
            return;
        }
        let whole = match outcome {
            Outcome::Part { index, bytes } => {
                self.parts.add(key, machine, index, bytes);
                if self.parts.size() > MOST_BUFFERED {
                    tracing::warn!("the parts of verdicts are dropped: they take too much memory");
                    self.parts.retain(|_| false);
                }
                return;
            }
            Outcome::Parts { count, hash } => {
                let joined = self.parts.join(key.clone(), machine.clone(), count);
                joined.filter(|bytes| hash_of(bytes) == hash).map(Ok)
            }
            Outcome::Inline { hash, bytes } => Some(bytes).filter(|bytes| hash_of(bytes) == hash).map(Ok),
            Outcome::Failed { reason } => Some(Err(Error::Job { reason })),
            Outcome::Unreadable { reason } => {
                Some(Err(Error::UnreadableVerdict { machine: machine.clone(), reason }))
            }
        };
        // A job whose verdict is dropped is published again after a while.
        let Some(result) = whole else {
            tracing::warn!(machine, "a verdict is not whole or differs from its hash, and is dropped");
            return;
        };
        if let Some(waiting) = self.remove(&key) {
            // The receiver may be gone.
            drop(waiting.sender.send(result));
        }
    }
}

impl Shared {
    /// Stores a job in the queue, its parts first if it is larger than a message may be.
    async fn publish(&self, key: &str, job: &[u8], reissue: u32) -> Result<(), Error> {
        let largest = self.connection.largest_message();
        let input = if job.len() > largest {
            let mut count = 0;
            for part in job.chunks(largest) {
                let subject = self.names.input_subject(key, count);
                self.store(subject, part.to_vec().into(), format!("{key}-{reissue}-{count}")).await?;
                count += 1;
            }
            JobInput::Parts(count)
        } else {
            JobInput::Inline(job.to_vec())
        };
        let message = JobMessage { key: key.to_owned(), requester: self.requester.clone(), input };
        let encoded = postcard::to_allocvec(&message).map_err(self.connection.failed("encode a job"))?;
        let sequence =
            self.store(self.names.job_subject(), encoded.into(), format!("{key}-{reissue}")).await?;
        if let Some(waiting) = self.requests.lock().waiting.get_mut(key) {
            (waiting.sequence, waiting.published, waiting.reissues) = (sequence, Instant::now(), reissue);
        }
        Ok(())
    }

    /// Stores a message. Returns its place in the stream.
    async fn store(&self, subject: String, payload: Bytes, id: String) -> Result<u64, Error> {
        let publish = || async {
            let message = PublishMessage::build().payload(payload.clone()).message_id(&id);
            self.connection.context.send_publish(subject.clone(), message).await?.await
        };
        let _turn = self.publishing.acquire().await;
        Ok(self.connection.persist("publish a job", publish).await?.sequence)
    }

    /// Publishes jobs again that have left the queue without a verdict: the server has lost them, or their verdicts.
    async fn reissue(&self, older_than: Duration) {
        let is_old = |waiting: &Waiting| waiting.sequence > 0 && waiting.published.elapsed() >= older_than;
        let old: Vec<(String, u64)> = {
            let requests = self.requests.lock();
            let old = requests.waiting.iter().filter(|(_, waiting)| is_old(waiting));
            old.map(|(key, waiting)| (key.clone(), waiting.sequence)).collect()
        };
        let mut lost = Vec::new();
        for (key, sequence) in old {
            match self.is_queued(&key, sequence).await {
                Some(false) => lost.push(key),
                Some(true) => {}
                // It can't tell. If the run has ended, no verdict will come.
                None => return self.end_with_run().await,
            }
        }
        if lost.is_empty() {
            return;
        }
        tokio::time::sleep(GRACE).await;
        for key in lost {
            let again =
                self.requests.lock().waiting.get(&key).map(|own| (Arc::clone(&own.job), own.reissues));
            let Some((job, reissues)) = again else { continue };
            if reissues >= MOST_REISSUES {
                let given_up = self.requests.lock().remove(&key);
                // The receiver may be gone.
                drop(given_up.map(|own| own.sender.send(Err(Error::NoVerdict { times: reissues + 1 }))));
                continue;
            }
            tracing::warn!(key, "a job has left the queue without a verdict, and is sent again");
            if let Err(error) = self.publish(&key, &job, reissues + 1).await {
                tracing::warn!(%error, "a lost job was not sent again");
            }
        }
    }

    /// Returns true if the queue has a job, false if not. `None` if the server doesn't say.
    async fn is_queued(&self, key: &str, sequence: u64) -> Option<bool> {
        match self.jobs.get_raw_message(sequence).await {
            // A queue that was made again after a restart of the server has other jobs at the same places.
            Ok(message) => {
                let own = postcard::from_bytes::<JobMessage>(&message.payload);
                Some(own.is_ok_and(|own| own.key == key))
            }
            Err(error) if error.kind() == RawMessageErrorKind::NoMessageFound => Some(false),
            Err(_) => None,
        }
    }

    /// Ends all requests if the run has ended.
    async fn end_with_run(&self) {
        if let Ok(None) = find_run(&self.connection, &self.names.run).await {
            // Dropped senders tell their receivers.
            *self.requests.lock() = Requests::default();
        }
    }
}

async fn receive_all(shared: Arc<Shared>, mut verdicts: Subscriber) {
    while let Some(message) = verdicts.next().await {
        match postcard::from_bytes::<VerdictMessage>(&message.payload) {
            Ok(verdict) => shared.requests.lock().receive(verdict),
            Err(error) => match unreadable(&message.payload, error.to_string()) {
                Some(verdict) => shared.requests.lock().receive(verdict),
                None => tracing::warn!(%error, "a message is not a verdict, and is dropped"),
            },
        }
    }
}

/// Returns a verdict whose outcome can't be read, if its job and its machine can: its machine has acknowledged the job, and no
/// other verdict would come.
fn unreadable(payload: &[u8], reason: String) -> Option<VerdictMessage> {
    let ((key, machine), _) = postcard::take_from_bytes::<(String, String)>(payload).ok()?;
    Some(VerdictMessage { key, machine, outcome: Outcome::Unreadable { reason } })
}

async fn reissue_all(shared: Arc<Shared>, lease: Duration) {
    loop {
        let older_than = tokio::select! {
            // A server that was started again has lost all of them.
            () = shared.connection.reconnected() => Duration::ZERO,
            () = tokio::time::sleep(lease) => lease,
        };
        shared.reissue(older_than).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> (Waiting, oneshot::Receiver<Result<Vec<u8>, Error>>) {
        let (sender, receiver) = oneshot::channel();
        let (job, published) = (Arc::default(), Instant::now());
        (Waiting { sender, job, sequence: 1, published, reissues: 0 }, receiver)
    }

    fn verdict(key: &str, machine: &str, outcome: Outcome) -> VerdictMessage {
        VerdictMessage { key: key.to_owned(), machine: machine.to_owned(), outcome }
    }

    #[test]
    fn a_verdict_that_can_not_be_read_ends_its_job_with_the_name_of_the_machine() {
        let mut requests = Requests::default();
        let (own, mut receiver) = waiting();
        requests.waiting.insert("x".to_owned(), own);
        // An outcome that this version doesn't have.
        let payload = postcard::to_allocvec(&("x", "box-7", 99_u32)).unwrap();
        let error = postcard::from_bytes::<VerdictMessage>(&payload).unwrap_err();
        requests.receive(unreadable(&payload, error.to_string()).unwrap());
        let error = receiver.try_recv().unwrap().unwrap_err().to_string();
        assert!(error.contains("box-7") && error.contains("another version of pl-host"), "{error}");
        assert!(unreadable(b"\xff", String::new()).is_none());
    }

    #[test]
    fn parts_of_verdicts_are_kept_until_their_job_ends() {
        let mut requests = Requests::default();
        let (own, mut receiver) = waiting();
        requests.waiting.insert("x".to_owned(), own);
        let part = |bytes: &[u8]| Outcome::Part { index: 0, bytes: bytes.to_vec() };
        requests.receive(verdict("unknown", "a", part(b"1")));
        assert_eq!(requests.parts.size(), 0);
        for machine in ["a", "invented", "another"] {
            requests.receive(verdict("x", machine, part(b"1")));
        }
        // Parts without bytes take memory too.
        let size = requests.parts.size();
        requests.receive(verdict("x", "empty", part(b"")));
        assert!(requests.parts.size() > size);
        requests.receive(verdict("x", "a", Outcome::Parts { count: 1, hash: hash_of(b"1") }));
        assert_eq!(receiver.try_recv().unwrap().unwrap(), b"1");
        assert!(requests.waiting.is_empty());
        assert_eq!(requests.parts.size(), 0);
    }

    #[test]
    fn parts_of_all_machines_have_one_limit() {
        let mut requests = Requests::default();
        let (own, mut receiver) = waiting();
        requests.waiting.insert("x".to_owned(), own);
        for number in 0..5 {
            let part = Outcome::Part { index: 0, bytes: vec![0; MOST_BUFFERED / 4] };
            requests.receive(verdict("x", &format!("machine {number}"), part));
            assert!(requests.parts.size() <= MOST_BUFFERED, "part {number}");
        }
        assert!(receiver.try_recv().is_err());
    }
}
