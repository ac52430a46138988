//! A NATS server on this machine, for runs on one machine and for tests.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::connection::ServerAddress;
use crate::error::Error;
use crate::roles::Role;
use crate::server_config::ServerConfig;

/// Longest time that the server takes to listen.
const LONGEST_START: Duration = Duration::from_secs(20);

/// A `nats-server` process that listens on this machine alone. It ends when the value is dropped.
pub struct LocalServer {
    process: Child,
    url: String,
    /// Folder of its configuration and of the keys.
    config: PathBuf,
}

impl LocalServer {
    /// Starts a server, whose program is `nats-server`, with its store in `folder`, which may be that of an earlier one. `launch`
    /// starts the command that it gets: the program that starts it decides how long it lives.
    ///
    /// # Errors
    /// If it doesn't start.
    pub fn start(
        nats_server: &Path,
        folder: &Path,
        launch: impl FnOnce(Command) -> Command,
    ) -> Result<LocalServer, Error> {
        let failed = |what: &str, path: &Path, error: std::io::Error| Error::LocalServer {
            reason: format!("cannot {what} {}: {error}", path.display()),
        };
        fs::create_dir_all(folder).map_err(|error| failed("create", folder, error))?;
        let folder = folder.canonicalize().map_err(|error| failed("open", folder, error))?;
        let port = free_port()?;
        // Those of an earlier server are of no use any more.
        let config = folder.join("config");
        if config.exists() {
            fs::remove_dir_all(&config).map_err(|error| failed("replace", &config, error))?;
        }
        let listen = format!("127.0.0.1:{port}");
        let settings = ServerConfig { listen, store: folder.join("store"), tls: None }.write(&config)?;
        let mut command = Command::new(nats_server);
        command.arg("-c").arg(&settings);
        let log = folder.join("nats.log");
        let output = fs::File::create(&log).map_err(|error| failed("write", &log, error))?;
        let errors = output.try_clone().map_err(|error| failed("write", &log, error))?;
        let mut command = launch(command);
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let mut process =
            command.spawn().map_err(|error| Error::LocalServer { reason: error.to_string() })?;
        await_port(&mut process, port, &log)?;
        let url = format!("nats://127.0.0.1:{port}");
        Ok(LocalServer { process, url, config })
    }

    /// Returns the server's address with the credentials of a role.
    pub fn address(&self, role: Role) -> ServerAddress {
        let credentials = Some(self.config.join(role.credentials_file()));
        ServerAddress { url: self.url.clone(), credentials, ..ServerAddress::default() }
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        // It keeps nothing that is not in its files.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Returns a port of this machine that is free.
///
/// # Errors
/// If none is.
pub fn free_port() -> Result<u16, Error> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    listener
        .map(|address| address.port())
        .map_err(|error| Error::LocalServer { reason: format!("no port is free: {error}") })
}

fn await_port(process: &mut Child, port: u16, log: &Path) -> Result<(), Error> {
    let started = Instant::now();
    loop {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Ok(());
        }
        let ended = process.try_wait().ok().flatten();
        if ended.is_some() || started.elapsed() > LONGEST_START {
            let text = fs::read_to_string(log).unwrap_or_default();
            let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it wrote nothing");
            drop(process.kill());
            return Err(Error::LocalServer { reason: format!("it ended: {last}") });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
