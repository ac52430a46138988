//! The connection to a NATS server, which outlives the server's restarts.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectOptions, Event};
use tokio::sync::watch;

use crate::error::Error;

/// Longest time that a request waits for a server that is away.
const LONGEST_OUTAGE: Duration = Duration::from_secs(120);

/// First pause after a failed request; later ones are twice as long each, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Address of a NATS server, with what it asks for.
#[derive(Debug, Clone, Default)]
pub struct ServerAddress {
    /// `nats://HOST:PORT`, `tls://HOST:PORT`, or several of one cluster separated by commas.
    pub url: String,
    /// File with a JWT and the seed of an nkey (`.creds`).
    pub credentials: Option<PathBuf>,
    /// Certificates of the authorities that may vouch for the server, besides those of this machine (PEM).
    pub authorities: Option<PathBuf>,
    /// Token of a server on this machine.
    pub token: Option<String>,
}

/// Connection to a NATS server with JetStream.
#[derive(Clone)]
pub struct Connection {
    pub(crate) client: Client,
    pub(crate) context: Context,
    server: String,
    /// Number of times that the connection was made.
    connects: watch::Receiver<u64>,
}

impl Connection {
    /// Connects. A connection that breaks later is made again.
    ///
    /// # Errors
    /// If the server can't be reached or has no JetStream.
    pub async fn open(address: &ServerAddress, name: &str) -> Result<Connection, Error> {
        let (connected, connects) = watch::channel(0);
        let connected = Arc::new(connected);
        let mut options = ConnectOptions::new()
            .name(name)
            .event_callback(move |event| {
                if matches!(event, Event::Connected) {
                    connected.send_modify(|count| *count += 1);
                }
                std::future::ready(())
            })
            // Only servers that the user has named.
            .ignore_discovered_servers()
            .connection_timeout(Duration::from_secs(5))
            .request_timeout(Some(Duration::from_secs(5)))
            .reconnect_delay_callback(|attempts| LONGEST_PAUSE.min(FIRST_PAUSE * attempts.min(100) as u32));
        if let Some(path) = &address.credentials {
            let failed = |source| Error::Credentials { path: path.clone(), source };
            options = options.credentials_file(path).await.map_err(failed)?;
        }
        if let Some(path) = &address.authorities {
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
        let connection = Connection { client, context, server, connects };
        connection.context.query_account().await.map_err(|error| Error::NoJetStream {
            server: connection.server.clone(),
            reason: error.to_string(),
        })?;
        Ok(connection)
    }

    /// Returns the address as it was given.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the largest message that is sent as it is. Larger ones go through the object store.
    pub(crate) fn largest_message(&self) -> usize {
        self.client.server_info().max_payload / 2
    }

    /// Returns the error of a request that is not worth another try.
    pub(crate) fn failed<E: Display>(&self, action: &str) -> impl FnOnce(E) -> Error {
        let (server, action) = (self.server.clone(), action.to_owned());
        move |error| Error::Server { server, action, reason: error.to_string() }
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

    /// Repeats a request while the server is away, and when the connection was made again meanwhile. To repeat it must do no
    /// harm.
    ///
    /// # Errors
    /// The error of the last attempt, if none succeeded for two minutes.
    pub(crate) async fn persist<T, E: Display, F: Future<Output = Result<T, E>>>(
        &self,
        action: &str,
        mut request: impl FnMut() -> F,
    ) -> Result<T, Error> {
        let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            let answer = tokio::select! {
                answer = request() => answer,
                () = self.reconnected() => continue,
            };
            let error = match answer {
                Ok(result) => return Ok(result),
                Err(error) => error,
            };
            if started.elapsed() > LONGEST_OUTAGE {
                return Err(self.failed(action)(error));
            }
            tracing::debug!(server = self.server, action, %error, "trying again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
