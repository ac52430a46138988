//! The connection to a NATS server, which outlives the server's restarts.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Event};
use backon::{BackoffBuilder, ExponentialBuilder};
use pl_types::{SourcePath, open_file};
use tokio::sync::watch;

use crate::error::Error;
use crate::roles::Role;

/// Longest time that a request waits for a server that is away, or that has no room.
const LONGEST_OUTAGE: Duration = Duration::from_secs(120);

/// Heartbeat interval. Two without an answer are a broken link, and the connection is made again.
const PING_INTERVAL: Duration = Duration::from_secs(10);

/// Time in which the refusal of a request explains that it failed.
const REFUSAL: Duration = Duration::from_secs(10);

/// First pause after a failed request; later ones are twice as long each, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Largest file of credentials, in bytes: a JWT of a user and its seed.
const LARGEST_CREDENTIALS: u64 = 1 << 20;

/// Address of a NATS server, with what it asks for.
#[derive(Debug, Clone, Default)]
pub struct ServerAddress {
    /// `nats://HOST:PORT`, `tls://HOST:PORT`, or several of one cluster separated by commas.
    pub url: String,
    /// File with the seed of an nkey, or with a JWT and such a seed (`.creds`).
    pub credentials: Option<PathBuf>,
    /// Certificates of the authorities that may vouch for the server, besides those of this machine (PEM).
    pub authorities: Option<PathBuf>,
    /// Token of a server on this machine.
    pub token: Option<String>,
}

impl ServerAddress {
    /// Reads the file of the credentials. Returns `None` if the address has none.
    ///
    /// # Errors
    /// [`Error::Credentials`] if it can't be read, or isn't a regular file.
    pub fn read_credentials(&self) -> Result<Option<Vec<u8>>, Error> {
        let Some(path) = &self.credentials else { return Ok(None) };
        let read = SourcePath::from(path).read_at_most(LARGEST_CREDENTIALS);
        read.map(Some).map_err(|source| Error::Credentials { path: path.clone(), source })
    }
}

/// Connection to a NATS server with JetStream.
#[derive(Clone)]
pub struct Connection {
    pub(crate) client: Client,
    pub(crate) context: Context,
    server: String,
    role: Role,
    /// Number of times that the connection was made.
    connects: watch::Receiver<u64>,
    /// Last thing that the server did not allow.
    refusal: watch::Receiver<Option<Refusal>>,
    /// Longest time that a request waits for a server that is away.
    patience: Duration,
}

/// Something that the server did not allow.
#[derive(Debug, Clone)]
struct Refusal {
    reason: String,
    at: Instant,
}

impl Connection {
    /// Connects. A connection that breaks later is made again.
    ///
    /// # Errors
    /// If the credentials or the authorities can't be read, and if the server can't be reached or has no JetStream.
    pub async fn open(address: &ServerAddress, name: &str, role: Role) -> Result<Connection, Error> {
        let (connected, connects) = watch::channel(0);
        let (refused, refusal) = watch::channel(None);
        let events = Arc::new((connected, refused));
        let mut options = ConnectOptions::new()
            .name(name)
            .custom_inbox_prefix(role.inbox())
            .event_callback(move |event| {
                let (connected, refused) = &*events;
                match event {
                    Event::Connected => connected.send_modify(|count| *count += 1),
                    // It says so, and drops the message.
                    Event::ServerError(error) if error.to_string().contains("Permissions Violation") => {
                        let reason = error.to_string();
                        tracing::debug!(reason, "the server refuses a message");
                        refused.send_replace(Some(Refusal { reason, at: Instant::now() }));
                    }
                    _ => {}
                }
                std::future::ready(())
            })
            // Only servers that the user has named.
            .ignore_discovered_servers()
            .ping_interval(PING_INTERVAL)
            .connection_timeout(Duration::from_secs(5))
            .request_timeout(Some(Duration::from_secs(5)))
            .reconnect_delay_callback(|attempts| LONGEST_PAUSE.min(FIRST_PAUSE * attempts.min(100) as u32));
        if let (Some(path), Some(bytes)) = (&address.credentials, address.read_credentials()?) {
            options = with_credentials(options, path, &String::from_utf8_lossy(&bytes))?;
        }
        if let Some(path) = &address.authorities {
            // The client would wait for the writer of a pipe.
            open_file(path).map_err(|source| Error::Authorities { path: path.clone(), source })?;
            options = options.add_root_certificates(path.clone());
        }
        if let Some(token) = &address.token {
            options = options.token(token.clone());
        }
        let server = address.url.clone();
        let urls: Vec<&str> = server.split(',').map(str::trim).collect();
        let failed = |error: async_nats::ConnectError| Error::Connect {
            server: server.clone(),
            reason: error.to_string(),
        };
        let client = options.connect(urls).await.map_err(failed)?;
        let mut context = jetstream::new(client.clone());
        context.set_timeout(Duration::from_secs(5));
        let connection =
            Connection { client, context, server, role, connects, refusal, patience: LONGEST_OUTAGE };
        let action = "tell what it keeps";
        let account = tokio::select! {
            account = connection.context.query_account() => account,
            reason = connection.refused() => return Err(connection.failed(action)(reason)),
        };
        let server = connection.server.clone();
        account.map_err(|error| Error::NoJetStream { server, reason: error.to_string() })?;
        Ok(connection)
    }

    /// Gives up requests after this time, instead of two minutes.
    pub fn with_patience(self, patience: Duration) -> Connection {
        Connection { patience, ..self }
    }

    /// Returns the address as it was given.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the numbers of bytes that were received and sent so far.
    pub fn traffic(&self) -> (u64, u64) {
        let statistics = self.client.statistics();
        (statistics.in_bytes.load(Ordering::Relaxed), statistics.out_bytes.load(Ordering::Relaxed))
    }

    /// Returns the largest message that is sent as it is. Larger ones go through the object store.
    pub(crate) fn largest_message(&self) -> usize {
        self.client.server_info().max_payload / 2
    }

    /// Returns the error of a request that is not worth another try.
    pub(crate) fn failed<E: Display>(&self, action: &str) -> impl FnOnce(E) -> Error {
        let (server, action, role) = (self.server.clone(), action.to_owned(), self.role);
        let refusal = self.refusal();
        move |error| match refusal {
            Some(reason) => Error::Refused { server, action, reason, role },
            None => Error::Server { server, action, reason: error.to_string() },
        }
    }

    /// Returns what the server did not allow a short time ago.
    fn refusal(&self) -> Option<String> {
        let last = self.refusal.borrow();
        last.as_ref().filter(|last| last.at.elapsed() < REFUSAL).map(|last| last.reason.clone())
    }

    /// Waits until the server does not allow something. Returns what it says.
    pub(crate) async fn refused(&self) -> String {
        let mut refusal = self.refusal.clone();
        loop {
            if let Some(reason) = self.refusal() {
                return reason;
            }
            if refusal.changed().await.is_err() {
                // The client has ended.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Waits until the connection was made again. What the server was asked before may be lost then.
    pub(crate) async fn reconnected(&self) {
        let mut connects = self.connects.clone();
        connects.mark_unchanged();
        if connects.changed().await.is_err() {
            // The client has ended, and will not connect again.
            std::future::pending::<()>().await;
        }
    }

    /// Repeats a request while the server is away, and when the connection was made again meanwhile. The request must
    /// be idempotent.
    ///
    /// # Errors
    /// The error of the last attempt, if none succeeded for two minutes ([`Connection::with_patience`]); [`Error::Refused`] if the server doesn't allow it.
    pub(crate) async fn persist<T, E: Display, F: Future<Output = Result<T, E>>>(
        &self,
        action: &str,
        mut request: impl FnMut() -> F,
    ) -> Result<T, Error> {
        let started = Instant::now();
        let backoff = ExponentialBuilder::new().with_min_delay(FIRST_PAUSE).with_max_delay(LONGEST_PAUSE);
        let mut pauses = backoff.with_jitter().without_max_times().build();
        loop {
            let answer = tokio::select! {
                answer = request() => answer,
                () = self.reconnected() => continue,
                reason = self.refused() => return Err(self.failed(action)(reason)),
            };
            let error = match answer {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            if started.elapsed() > self.patience {
                return Err(self.failed(action)(error));
            }
            tracing::debug!(server = self.server, action, %error, "trying again");
            tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
        }
    }
}

/// Adds the credentials in the text of a file: the seed of an nkey, or a JWT with such a seed.
fn with_credentials(options: ConnectOptions, path: &Path, text: &str) -> Result<ConnectOptions, Error> {
    if text.contains("NATS USER JWT") {
        let failed = |source| Error::Credentials { path: path.to_path_buf(), source };
        return options.credentials(text).map_err(failed);
    }
    let is_seed = |line: &&str| line.starts_with("SU") && line.chars().all(|c| c.is_ascii_alphanumeric());
    match text.lines().map(str::trim).find(is_seed) {
        Some(seed) if nkeys::KeyPair::from_seed(seed).is_ok() => Ok(options.nkey(seed.to_owned())),
        _ => Err(Error::NoCredentials { path: path.to_path_buf() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_and_authorities_that_are_pipes_are_refused_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for address in [
            ServerAddress { credentials: Some(pipe.clone()), ..ServerAddress::default() },
            ServerAddress { authorities: Some(pipe.clone()), ..ServerAddress::default() },
        ] {
            let opened = runtime.block_on(Connection::open(&address, "test", Role::Worker));
            let refused = opened.err().unwrap().to_string();
            assert!(refused.contains("it is not a file"), "{refused}");
        }
    }
}
