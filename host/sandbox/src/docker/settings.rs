//! Settings of the Docker backend.

use std::path::PathBuf;

use crate::limits::SandboxLimits;

/// Settings of the Docker backend.
#[derive(Debug, Clone, PartialEq)]
pub struct DockerSettings {
    /// Time, memory and output of a job, and the number of containers.
    pub limits: SandboxLimits,
    /// Image of the containers: `name:tag`.
    pub image: String,
    /// OCI runtime of the containers. `None` for the engine's default.
    pub runtime: Option<String>,
    /// Maximum number of processes and threads of a job.
    pub pids: u32,
    /// CPUs of a job; fractions are allowed.
    pub cpus: f64,
    /// Engines: `unix:///path`, `tcp://host:port`, or `https://host:port` with certificates.
    pub endpoints: Vec<String>,
    /// Folder with `ca.pem`, `cert.pem` and `key.pem` for `https` endpoints.
    pub certificates: Option<PathBuf>,
    /// Number of jobs after which a container is replaced.
    pub jobs_per_worker: u32,
    /// Command line of programs. Empty for that of their language.
    pub run: Vec<String>,
}

/// Default image, which `pl-host sandbox image` makes.
pub const DEFAULT_IMAGE: &str = "pl-host-python";

impl Default for DockerSettings {
    fn default() -> Self {
        Self {
            limits: SandboxLimits::default(),
            image: DEFAULT_IMAGE.to_owned(),
            runtime: None,
            // Python with its threads needs a dozen; more than 64 are a mistake or a fork bomb.
            pids: 64,
            // With one worker per core, all cores are used.
            cpus: 1.0,
            endpoints: vec![default_endpoint()],
            certificates: None,
            // A new container takes half a second: less than a millisecond per job.
            jobs_per_worker: 1000,
            run: Vec::new(),
        }
    }
}

/// Returns the engine that the `docker` command uses.
pub fn default_endpoint() -> String {
    std::env::var("DOCKER_HOST")
        .ok()
        .filter(|host| !host.is_empty())
        .unwrap_or_else(|| "unix:///var/run/docker.sock".to_owned())
}
