//! A connection to one Docker engine, with its health and load.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use bollard::errors::Error as BollardError;
use bollard::query_parameters::{RemoveContainerOptionsBuilder, WaitContainerOptionsBuilder};
use bollard::{API_DEFAULT_VERSION, Docker};
use futures::StreamExt;
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use super::error::DockerError;
use super::settings::DockerSettings;

/// Timeout of a request in seconds. A busy engine takes seconds to create a container.
const REQUEST_TIMEOUT: u64 = 60;

/// Time to wait for a removal that the engine has begun.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which an engine gets no requests after a failure. It doubles with each further failure.
const BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(15);

/// One engine.
pub struct DockerEngine {
    endpoint: String,
    pub settings: DockerSettings,
    docker: OnceCell<Docker>,
    /// Name of the image that contains the supervisor.
    pub supervisor_image: OnceCell<String>,
    health: Mutex<Health>,
    /// Number of containers that run or are being created.
    load: AtomicU32,
}

#[derive(Default)]
struct Health {
    retry_at: Option<Instant>,
    failures: u32,
    last_failure: Option<String>,
}

/// Returns the engines of all endpoints.
pub fn all(settings: &DockerSettings) -> Vec<Arc<DockerEngine>> {
    let engine = |endpoint: &String| DockerEngine {
        endpoint: endpoint.clone(),
        settings: settings.clone(),
        docker: OnceCell::new(),
        supervisor_image: OnceCell::new(),
        health: Mutex::default(),
        load: AtomicU32::new(0),
    };
    settings.endpoints.iter().map(engine).map(Arc::new).collect()
}

impl DockerEngine {
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Returns the connection. It is made at the first call that succeeds.
    pub async fn docker(&self) -> Result<&Docker, DockerError> {
        self.docker.get_or_try_init(|| self.connect()).await
    }

    async fn connect(&self) -> Result<Docker, DockerError> {
        let docker = connect(&self.endpoint, self.settings.certificates.as_deref())?;
        docker.negotiate_version().await.map_err(|source| self.unreachable(source))
    }

    /// Converts an error to one that says that the engine does not answer.
    pub fn unreachable(&self, source: BollardError) -> DockerError {
        DockerError::Unreachable { endpoint: self.endpoint.clone(), source }
    }

    /// Returns a converter of the engine's errors. `action` completes "the engine can't …".
    pub fn request_error(&self, action: &'static str) -> impl Fn(BollardError) -> DockerError + use<> {
        let endpoint = self.endpoint.clone();
        move |source| DockerError::Request { endpoint: endpoint.clone(), action, source }
    }

    /// Returns true if the engine failed recently and gets no requests for the moment.
    pub fn is_backing_off(&self) -> bool {
        self.health.lock().retry_at.is_some_and(|until| Instant::now() < until)
    }

    /// Returns the reason of the last failure. Returns `None` if the engine has worked since.
    pub fn last_failure(&self) -> Option<String> {
        self.health.lock().last_failure.clone()
    }

    /// Records a failure and starts the back-off.
    pub fn record_failure(&self, reason: String) {
        let mut health = self.health.lock();
        health.last_failure = Some(reason);
        let backoff = BACKOFF.saturating_mul(1 << health.failures.min(8)).min(MAX_BACKOFF);
        health.failures += 1;
        health.retry_at = Some(Instant::now() + backoff);
    }

    /// Records a success, which ends the back-off.
    pub fn record_success(&self) {
        *self.health.lock() = Health::default();
    }

    /// Returns the number of containers that run or are being created.
    pub fn load(&self) -> u32 {
        self.load.load(Ordering::Relaxed)
    }

    /// Removes a container. It may be gone already, and one that has ended is being removed by the engine itself.
    pub async fn remove(&self, container: &str) {
        let Ok(docker) = self.docker().await else { return };
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        let Err(error) = docker.remove_container(container, Some(options)).await else { return };
        tracing::debug!(endpoint = self.endpoint, container, %error, "removing a container");
        if let BollardError::DockerResponseServerError { status_code: 409, .. } = error {
            let removed = WaitContainerOptionsBuilder::default().condition("removed").build();
            let mut removal = docker.wait_container(container, Some(removed));
            let _ = tokio::time::timeout(REMOVAL_TIMEOUT, removal.next()).await;
        }
    }
}

fn connect(endpoint: &str, certificates: Option<&Path>) -> Result<Docker, DockerError> {
    let scheme = endpoint.split_once("://").map(|(scheme, _)| scheme);
    let connected = match scheme {
        Some("unix") => Docker::connect_with_unix(endpoint, REQUEST_TIMEOUT, API_DEFAULT_VERSION),
        Some("tcp" | "http") => Docker::connect_with_http(endpoint, REQUEST_TIMEOUT, API_DEFAULT_VERSION),
        Some("https") => {
            let folder = certificates.map(Path::to_path_buf).or_else(default_certificates);
            let folder = folder.ok_or_else(|| DockerError::NoCertificates(endpoint.to_owned()))?;
            let [key, certificate, authority] =
                ["key.pem", "cert.pem", "ca.pem"].map(|file| folder.join(file));
            if let Some(file) = [&key, &certificate, &authority].into_iter().find(|file| !file.is_file()) {
                let (endpoint, file) = (endpoint.to_owned(), file.clone());
                return Err(DockerError::MissingCertificate { endpoint, file });
            }
            Docker::connect_with_ssl(
                endpoint,
                &key,
                &certificate,
                &authority,
                REQUEST_TIMEOUT,
                API_DEFAULT_VERSION,
            )
        }
        _ => return Err(DockerError::InvalidEndpoint(endpoint.to_owned())),
    };
    connected.map_err(|source| DockerError::Unreachable { endpoint: endpoint.to_owned(), source })
}

/// Returns the folder that the `docker` command uses.
fn default_certificates() -> Option<PathBuf> {
    let named = std::env::var_os("DOCKER_CERT_PATH").map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker")))
}

/// Counts one container in its engine's load until it is dropped.
pub struct LoadGuard(Arc<DockerEngine>);

impl LoadGuard {
    pub fn new(engine: Arc<DockerEngine>) -> Self {
        engine.load.fetch_add(1, Ordering::Relaxed);
        Self(engine)
    }
}

impl Drop for LoadGuard {
    fn drop(&mut self) {
        self.0.load.fetch_sub(1, Ordering::Relaxed);
    }
}
