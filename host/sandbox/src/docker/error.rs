//! Errors of the Docker backend.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// Reason why containers are not available.
#[derive(Debug, Error)]
pub enum DockerError {
    /// The endpoint is malformed.
    #[error(
        "the endpoint {0:?} is invalid: an endpoint is unix://PATH, tcp://HOST:PORT or https://HOST:PORT"
    )]
    InvalidEndpoint(String),
    /// No folder with certificates is known.
    #[error("{0} needs certificates: set `certificates` to their folder")]
    NoCertificates(String),
    /// A certificate does not exist.
    #[error("{endpoint} needs certificates, and {} is missing", .file.display())]
    MissingCertificate {
        /// The endpoint.
        endpoint: String,
        /// The missing file.
        file: PathBuf,
    },
    /// The engine does not answer.
    #[error(
        "no Docker engine answers at {endpoint} ({source}); start one (`dockerd`), or name another in `endpoints`"
    )]
    Unreachable {
        /// The endpoint.
        endpoint: String,
        /// Reason.
        source: bollard::errors::Error,
    },
    /// The engine runs on another architecture than this program.
    #[error(
        "the engine at {endpoint} runs on {architecture}, but this pl-host has a supervisor for {supported}"
    )]
    Architecture {
        /// The endpoint.
        endpoint: String,
        /// Architecture of the engine.
        architecture: String,
        /// Architecture of this program.
        supported: &'static str,
    },
    /// The engine does not have the image.
    #[error(
        "the engine at {endpoint} has no image {image:?}; make it with `pl-host sandbox image --image {image}`"
    )]
    NoImage {
        /// The endpoint.
        endpoint: String,
        /// The image.
        image: String,
    },
    /// An engine reported no error while it made an image, and has none.
    #[error(
        "the engine at {endpoint} ended before it had made the image {image:?}, without an error; try again, and see \
         the engine's log if this happens twice"
    )]
    NotMade {
        /// The endpoint.
        endpoint: String,
        /// The image.
        image: String,
    },
    /// The supervisor could not be built together with this program.
    #[error("this pl-host was built without the supervisor that containers need")]
    NoSupervisor,
    /// The engine leaves out limits of containers.
    #[error(
        "the engine at {endpoint} does not limit containers ({warning}); enable control groups for it, or use another engine"
    )]
    NoLimits {
        /// The endpoint.
        endpoint: String,
        /// The engine's warning.
        warning: String,
    },
    /// The image has a volume, which outlives jobs.
    #[error(
        "the image {image:?} at {endpoint} declares the volume {path}, in which jobs would find files of earlier jobs; make an \
         image without `VOLUME`"
    )]
    Volume {
        /// The endpoint.
        endpoint: String,
        /// The image in the settings.
        image: String,
        /// Path of the volume.
        path: String,
    },
    /// A request to the engine failed.
    #[error("the engine at {endpoint} can't {action}: {source}")]
    Request {
        /// The endpoint.
        endpoint: String,
        /// The request in words.
        action: &'static str,
        /// Answer of the engine.
        source: bollard::errors::Error,
    },
    /// The archive of an image can't be read.
    #[error("{}: {source}", .path.display())]
    Archive {
        /// The archive.
        path: PathBuf,
        /// Reason.
        source: io::Error,
    },
    /// A new container does not accept jobs.
    #[error("a container at {endpoint} does not start: {source}")]
    Container {
        /// The endpoint.
        endpoint: String,
        /// Reason.
        source: WorkerError,
    },
    /// No endpoint is usable.
    #[error("{0}")]
    NoEndpoint(String),
}

/// Reason why a container was lost or is replaced.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// The supervisor refuses to serve in such a container.
    #[error("the container is not isolated: {0}")]
    NotIsolated(String),
    /// The supervisor can't remove everything that a job left.
    #[error("a job left something: {0}")]
    Unclean(String),
    /// The task does not fit into a frame.
    #[error("the job is too long")]
    TaskTooLong,
    /// The supervisor does not read its task.
    #[error("the supervisor did not accept a job for {} s", .0.as_secs())]
    NotReading(Duration),
    /// The supervisor does not answer.
    #[error("the supervisor did not answer for {} s", .0.as_secs())]
    Silent(Duration),
    /// The supervisor's message does not follow the protocol.
    #[error("the supervisor sent {0}")]
    Protocol(&'static str),
    /// The supervisor wrote to its standard error.
    #[error("{0}")]
    Stderr(String),
    /// The container has ended.
    #[error("the container is gone")]
    Gone,
    /// The connection to the supervisor failed.
    #[error("the connection to the supervisor broke: {0}")]
    Connection(#[from] io::Error),
    /// The engine failed.
    #[error("{0}")]
    Engine(#[from] bollard::errors::Error),
}
