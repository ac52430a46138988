//! Runs that a server has, and what a worker needs to take part in one.

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::{GetStreamError, GetStreamErrorKind, KeyValueError};
use async_nats::jetstream::kv::{self, Store};
use futures::TryStreamExt;
use serde::{Deserialize, Serialize};

use crate::connection::Connection;
use crate::error::Error;
use crate::names::REGISTRY;

/// Version of the messages. Programs of different versions don't share a run.
pub const PROTOCOL: u32 = 4;

/// A run in the registry of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEntry {
    /// Name of the run's streams.
    pub run: String,
    /// [`PROTOCOL`] of the coordinator.
    pub protocol: u32,
    /// Version of the coordinator's program.
    pub program: String,
    /// Seconds since 1970 when the coordinator was started.
    pub started: u64,
    /// Name in the object store of what workers need: the workflow, and hashes of everything that it names.
    pub manifest: String,
    /// Files that workers fetch.
    pub files: Vec<SharedFile>,
    /// Learners in processes of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub learners: Vec<LearnerEntry>,
    /// Settings of the sandbox machines that run the jobs, in the form of the program that runs them. `None` if each worker runs
    /// those of its tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs: Option<serde_json::Value>,
}

impl RunEntry {
    /// Checks that the run's coordinator speaks this protocol.
    ///
    /// # Errors
    /// [`Error::Protocol`].
    pub(crate) fn check_protocol(&self) -> Result<(), Error> {
        if self.protocol == PROTOCOL {
            return Ok(());
        }
        let (run, program, protocol) = (self.run.clone(), self.program.clone(), self.protocol);
        Err(Error::Protocol { run, program, protocol, own: PROTOCOL })
    }

    /// Returns the error of a message of the run that can't be read here.
    pub(crate) fn unreadable(&self, message: &'static str, error: &postcard::Error) -> Error {
        let (run, program, reason) = (self.run.clone(), self.program.clone(), error.to_string());
        Error::Unreadable { run, message, program, reason }
    }
}

/// A learner that another process trains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnerEntry {
    /// Position among the learners of the run.
    pub learner: u32,
    /// Names of its policies.
    pub policies: Vec<String>,
}

/// A file in the object store of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedFile {
    /// Path in the folder of the workflow on a worker.
    pub path: String,
    pub hash: String,
}

/// Lists the runs of a server, the newest first.
///
/// # Errors
/// If the server is away for minutes.
pub async fn runs(connection: &Connection) -> Result<Vec<RunEntry>, Error> {
    let Some(store) = open(connection).await? else { return Ok(Vec::new()) };
    // `Store::keys` would make a consumer, which workers may not.
    let prefix = format!("$KV.{REGISTRY}.");
    let subjects = store.stream.info_with_subjects(format!("{prefix}>")).await;
    let subjects = subjects.map_err(connection.failed("list runs"))?.map_ok(|(subject, _)| subject);
    let subjects: Vec<String> = subjects.try_collect().await.map_err(connection.failed("list runs"))?;
    let keys = subjects.iter().filter_map(|subject| subject.strip_prefix(&prefix));
    let mut entries = Vec::new();
    for key in keys {
        entries.extend(find(connection, &store, key).await?);
    }
    // The server's order: the clocks of coordinators may differ.
    entries.sort_by_key(|(revision, _)| std::cmp::Reverse(*revision));
    Ok(entries.into_iter().map(|(_, entry)| entry).collect())
}

/// Finds a run. Returns `None` if it has ended, or its entry is not one.
///
/// # Errors
/// If the server is away for minutes: a run that can't be looked for has not ended.
pub(crate) async fn find_run(connection: &Connection, run: &str) -> Result<Option<RunEntry>, Error> {
    let Some(store) = open(connection).await? else { return Ok(None) };
    let found = connection.persist("look for the run", || find(connection, &store, run)).await?;
    Ok(found.map(|(_, entry)| entry))
}

/// Opens the registry. Returns `None` if the server says that it has none.
async fn open(connection: &Connection) -> Result<Option<Store>, Error> {
    let open = || async {
        match connection.context.get_key_value(REGISTRY).await {
            Ok(store) => Ok(Some(store)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    };
    connection.persist("open the registry of runs", open).await
}

/// Returns true if the server has answered that a bucket is not there.
fn is_missing(error: &KeyValueError) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<GetStreamError>());
    source.is_some_and(|source| match source.kind() {
        GetStreamErrorKind::JetStream(answer) => answer.error_code() == ErrorCode::STREAM_NOT_FOUND,
        _ => false,
    })
}

/// Returns the entry of a run with its revision.
async fn find(connection: &Connection, store: &Store, run: &str) -> Result<Option<(u64, RunEntry)>, Error> {
    let value = store.entry(run).await.map_err(connection.failed("read the entry of a run"))?;
    let value = value.filter(|value| value.operation == kv::Operation::Put);
    Ok(value.and_then(|value| Some((value.revision, serde_json::from_slice(&value.value).ok()?))))
}

/// Opens the registry, which is made if the server has none.
pub(crate) async fn registry(connection: &Connection) -> Result<Store, Error> {
    if let Some(store) = open(connection).await? {
        return Ok(store);
    }
    let config = || kv::Config { bucket: REGISTRY.to_owned(), history: 1, ..Default::default() };
    connection.persist("create the registry of runs", || connection.context.create_key_value(config())).await
}
