//! The side of a sandbox machine: jobs are taken, run, and answered.

use std::time::Duration;

use async_nats::jetstream::consumer::{self, Consumer};
use async_nats::jetstream::stream::{DirectGetErrorKind, Stream};
use async_nats::jetstream::{AckKind, Message};
use serde::{Deserialize, Serialize};

use crate::connection::Connection;
use crate::error::Error;
use crate::jobs::{JobInput, JobMessage, LARGEST_JOB, VerdictMessage};
use crate::lease::{Outcome, hash_of};
use crate::names::{Names, SANDBOXES, worker_name};
use crate::pull::{LeaseHeartbeat, MOST_DELIVERIES, acknowledge, deliveries, pull};
use crate::registry::{RunEntry, find_run};
use crate::worker::{answer, ask, messages};

/// Pause before a job that could not be read is delivered again.
const PAUSE: Duration = Duration::from_secs(1);

/// A process that runs the jobs of a run.
#[derive(Clone)]
pub struct JobRunner {
    connection: Connection,
    names: Names,
    entry: RunEntry,
    consumer: Consumer<consumer::pull::Config>,
    inputs: Stream<()>,
    name: String,
}

/// Next thing to do for a sandbox machine.
pub enum NextJob {
    Run(Box<TakenJob>),
    /// No job was free. The machine asks again.
    Idle,
    /// The run has ended.
    Ended,
}

/// A job that this machine runs. It is kept while the value lives; dropped, it is delivered again after a while.
pub struct TakenJob {
    /// The job, as it was sent.
    pub job: Vec<u8>,
    key: String,
    requester: String,
    runner: JobRunner,
    message: Message,
    _heartbeat: LeaseHeartbeat,
}

/// Answer of a sandbox machine to `pl-host cluster status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxStatus {
    pub sandbox: String,
    pub program: String,
    /// Jobs that it runs at a time.
    pub slots: u32,
    /// Jobs that it runs.
    pub running: u32,
    /// Jobs that it has answered.
    pub done: u64,
}

impl JobRunner {
    /// Joins a run, to take its jobs.
    ///
    /// # Errors
    /// [`Error::NoRun`] if it has ended, [`Error::NoJobs`] if its workers run their jobs, [`Error::Protocol`] if its coordinator is
    /// of another version.
    pub async fn join(connection: &Connection, run: &str, name: &str) -> Result<JobRunner, Error> {
        let (server, names) = (connection.server().to_owned(), Names::new(run));
        let entry = find_run(connection, run).await?;
        let entry = entry.ok_or_else(|| Error::NoRun { server, run: run.to_owned() })?;
        entry.check_protocol()?;
        if entry.jobs.is_none() {
            return Err(Error::NoJobs { run: entry.run });
        }
        let action = "open the jobs of the run";
        let open = || connection.context.get_consumer_from_stream(SANDBOXES, names.jobs());
        let consumer = connection.persist(action, open).await?;
        // Without a request that the machine may not make.
        let inputs = connection.context.get_stream_no_info(names.inputs()).await;
        let inputs = inputs.map_err(connection.failed(action))?;
        let (connection, name) = (connection.clone(), worker_name(name));
        Ok(JobRunner { connection, names, entry, consumer, inputs, name })
    }

    /// Returns the run's entry.
    pub fn entry(&self) -> &RunEntry {
        &self.entry
    }

    /// Waits some seconds for a job.
    ///
    /// # Errors
    /// If the server is away for minutes.
    pub async fn next(&self) -> Result<NextJob, Error> {
        let Some(message) = pull(&self.connection, &self.consumer).await else { return self.idle().await };
        let own = match postcard::from_bytes::<JobMessage>(&message.payload) {
            Ok(own) => own,
            Err(error) => {
                self.leave_to_others(message, &error).await?;
                return Ok(NextJob::Idle);
            }
        };
        let JobMessage { key, requester, input } = own;
        let is_lost = deliveries(&message) > MOST_DELIVERIES;
        let heartbeat = LeaseHeartbeat::start(message.clone(), &self.consumer);
        let bytes = match input {
            // It is not run, and what it consists of is of no interest.
            _ if is_lost => Some(Vec::new()),
            JobInput::Inline(bytes) => Some(bytes),
            JobInput::Parts(count) => self.parts(&key, count).await?,
        };
        let Some(job) = bytes.filter(|bytes| is_lost || key.starts_with(&hash_of(bytes)[..16])) else {
            // Its requester sends it again.
            tracing::warn!("parts of a job are missing, and it is removed");
            acknowledge(&message, AckKind::Term).await;
            return Ok(NextJob::Idle);
        };
        let task = TakenJob { job, key, requester, runner: self.clone(), message, _heartbeat: heartbeat };
        if is_lost {
            let reason = format!(
                "it was delivered {MOST_DELIVERIES} times and no sandbox machine has answered: it may end the machines that run \
                 it, or take more memory than they have"
            );
            task.answer([Outcome::Failed { reason }]).await?;
            return Ok(NextJob::Idle);
        }
        Ok(NextJob::Run(Box::new(task)))
    }

    /// Gives a job back that can't be read here. If it comes too often, its requester learns that, if at least its name can be read.
    async fn leave_to_others(&self, message: Message, error: &postcard::Error) -> Result<(), Error> {
        let Ok(((key, requester), _)) = postcard::take_from_bytes::<(String, String)>(&message.payload)
        else {
            tracing::warn!("a message in the queue of jobs is not a job, and is removed");
            acknowledge(&message, AckKind::Term).await;
            return Ok(());
        };
        let error = self.entry.unreadable("a job", error);
        tracing::warn!(%error, "a job is left to other machines");
        if deliveries(&message) < MOST_DELIVERIES {
            acknowledge(&message, AckKind::Nak(Some(PAUSE))).await;
            return Ok(());
        }
        let heartbeat = LeaseHeartbeat::start(message.clone(), &self.consumer);
        let task = TakenJob {
            job: Vec::new(),
            key,
            requester,
            runner: self.clone(),
            message,
            _heartbeat: heartbeat,
        };
        task.answer([Outcome::Failed { reason: format!("sandbox machine {}: {error}", self.name) }]).await
    }

    /// Returns a job that came in parts. `None` if one is missing.
    async fn parts(&self, key: &str, count: u32) -> Result<Option<Vec<u8>>, Error> {
        let mut bytes = Vec::new();
        for index in 0..count {
            let subject = self.names.input_subject(key, index);
            let read = || async {
                match self.inputs.direct_get_last_for_subject(subject.as_str()).await {
                    Ok(part) => Ok(Some(part)),
                    Err(error) if error.kind() == DirectGetErrorKind::NotFound => Ok(None),
                    Err(error) => Err(error),
                }
            };
            let Some(part) = self.connection.persist("read a part of a job", read).await? else {
                return Ok(None);
            };
            bytes.extend_from_slice(&part.payload);
            if bytes.len() > LARGEST_JOB {
                return Ok(None);
            }
        }
        Ok(Some(bytes))
    }

    async fn idle(&self) -> Result<NextJob, Error> {
        let entry = find_run(&self.connection, &self.names.run).await?;
        Ok(if entry.is_some() { NextJob::Idle } else { NextJob::Ended })
    }

    /// Answers questions for this machine's status until the task is aborted.
    pub async fn answer_status(&self, status: impl Fn() -> SandboxStatus) {
        answer(&self.connection, self.names.sandboxes_subject(), status).await;
    }
}

impl TakenJob {
    /// Sends the verdict to the process that waits for it, and acknowledges the job after that.
    ///
    /// # Errors
    /// If the connection has ended.
    pub async fn finish(self, verdict: &[u8]) -> Result<(), Error> {
        let outcomes = Outcome::messages(verdict, self.runner.connection.largest_message());
        self.answer(outcomes).await
    }

    /// Gives the job back, to be delivered again after a pause.
    pub async fn give_back(self, pause: Duration) {
        acknowledge(&self.message, AckKind::Nak(Some(pause))).await;
    }

    async fn answer(&self, outcomes: impl IntoIterator<Item = Outcome>) -> Result<(), Error> {
        let JobRunner { connection, names, name, .. } = &self.runner;
        // It comes from a message, and must not be a wildcard.
        let subject = names.verdict_subject(&worker_name(&self.requester));
        for outcome in outcomes {
            let message = VerdictMessage { key: self.key.clone(), machine: name.clone(), outcome };
            let encoded = postcard::to_allocvec(&message).map_err(connection.failed("encode a verdict"))?;
            let sent = connection.client.publish(subject.clone(), encoded.into()).await;
            sent.map_err(connection.failed("send a verdict"))?;
        }
        // On the same connection, so that the verdict is there before. The server's answer is not waited for: a job that is
        // delivered again has the same verdict, and the second one is dropped.
        if let Err(error) = self.message.ack_with(AckKind::Ack).await {
            tracing::debug!(%error, "an acknowledgement was lost: the job may be run again");
        }
        // A client that is dropped doesn't send what it has not yet written.
        connection.client.flush().await.map_err(connection.failed("send a verdict"))?;
        Ok(())
    }
}

/// Returns the number of jobs of a run that wait or are run. `None` if the run has no queue of jobs.
///
/// # Errors
/// If the server doesn't answer.
pub async fn queued_jobs(connection: &Connection, run: &str) -> Result<Option<u64>, Error> {
    messages(connection, Names::new(run).jobs(), "count the jobs of the run").await
}

/// Asks the sandbox machines of a run for their status.
///
/// # Errors
/// If the server doesn't answer.
pub async fn sandboxes(connection: &Connection, run: &str) -> Result<Vec<SandboxStatus>, Error> {
    let mut all: Vec<SandboxStatus> = ask(connection, &[Names::new(run).sandboxes_subject()]).await?;
    all.sort_by(|a, b| a.sandbox.cmp(&b.sandbox));
    Ok(all)
}
