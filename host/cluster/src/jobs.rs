//! The queue of jobs: the code that models write, on its way to sandbox machines, and its verdicts on their way back.
//!
//! Jobs are a work queue in the server's memory, which a restart of the server empties: a process that waits for a verdict publishes
//! its job again. Verdicts are messages that are stored nowhere.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, pull};
use async_nats::jetstream::stream::{Config, DiscardPolicy, RetentionPolicy, StorageType};
use serde::{Deserialize, Serialize};

use crate::connection::Connection;
use crate::error::Error;
use crate::lease::Outcome;
use crate::names::{Names, SANDBOXES};
use crate::streams::create_stream;

/// Largest number of requests for a job that wait, and of jobs that are run at a time.
const MOST_RUNNING: i64 = 65_536;

/// Age at which the server drops a job. A process that still waits for its verdict has published it again, so that only jobs of
/// processes that are gone are dropped.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// Age at which the server drops the parts of a large job. They are published again with it.
const LONGEST_INPUT: Duration = Duration::from_secs(600);

/// Bytes of the parts of large jobs at a time. The oldest are dropped first.
const INPUTS: i64 = 256 << 20;

/// Largest job in bytes, so that the parts of several find room.
pub(crate) const LARGEST_JOB: usize = 64 << 20;

/// A job as the work queue has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JobMessage {
    /// Hash of the job, and a number that no other request has.
    pub key: String,
    /// Process that waits for the verdict.
    pub requester: String,
    pub input: JobInput,
}

/// Bytes of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum JobInput {
    Inline(Vec<u8>),
    /// Number of its parts in the stream of inputs.
    Parts(u32),
}

/// Verdict of a job, or a part of it, for the process that waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VerdictMessage {
    /// [`JobMessage::key`].
    pub key: String,
    /// Machine that has run it.
    pub machine: String,
    pub outcome: Outcome,
}

/// Creates the streams of jobs with their consumer, or those of them that are missing.
pub(crate) async fn create_queue(
    connection: &Connection,
    names: &Names,
    lease: Duration,
) -> Result<(), Error> {
    let config = Config {
        name: names.jobs(),
        subjects: vec![names.job_subject()],
        retention: RetentionPolicy::WorkQueue,
        storage: StorageType::Memory,
        discard: DiscardPolicy::New,
        max_age: LONGEST_WAIT,
        ..Config::default()
    };
    let jobs = create_stream(connection, "create the stream of jobs", config).await?;
    let consumer = pull::Config {
        durable_name: Some(SANDBOXES.to_owned()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: lease,
        max_ack_pending: MOST_RUNNING,
        max_waiting: MOST_RUNNING,
        ..pull::Config::default()
    };
    let create = || jobs.create_consumer(consumer.clone());
    connection.persist("create a consumer of jobs", create).await?;
    let config = Config {
        name: names.inputs(),
        subjects: vec![names.input_subjects()],
        retention: RetentionPolicy::Limits,
        storage: StorageType::Memory,
        discard: DiscardPolicy::Old,
        max_age: LONGEST_INPUT,
        max_bytes: INPUTS,
        allow_direct: true,
        ..Config::default()
    };
    create_stream(connection, "create the stream of large jobs", config).await?;
    Ok(())
}

/// Creates the queue again whenever the server has lost it, until the task is aborted.
pub(crate) async fn keep_queue(connection: Connection, names: Names, lease: Duration) {
    loop {
        tokio::select! {
            () = connection.reconnected() => {}
            () = tokio::time::sleep(lease) => {}
        }
        if let Err(error) = create_queue(&connection, &names, lease).await {
            tracing::warn!(%error, "the queue of jobs was not created again");
        }
    }
}
