//! One Docker engine: the connection to it, whether it answers, and the containers that it makes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bollard::models::{ContainerCreateBody, HostConfig, HostConfigLogConfig};
use bollard::query_parameters::RemoveContainerOptionsBuilder;
use bollard::{API_DEFAULT_VERSION, Docker};
use tokio::sync::OnceCell;

use super::{DockerSettings, image, leftovers};
use crate::Error;

/// How long an engine may take to answer. A busy one takes seconds to make a container.
const PATIENCE: u64 = 60;

/// An engine that failed is left out for so long, then for twice as long each time it fails again.
const LEFT_OUT: Duration = Duration::from_millis(500);
const LEFT_OUT_AT_MOST: Duration = Duration::from_secs(15);

/// What the supervisor and an interpreter that waits need beside what a job may take.
const OVERHEAD: u64 = 24 << 20;

/// Folders that jobs may write to, the working folder first.
const FOLDERS: [&str; 4] = ["/work", "/tmp", "/dev/shm", "/dev/mqueue"];

/// What jobs may not read: what Docker itself closes, and what else tells of the machine.
const MASKED: [&str; 27] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/config.gz",
    "/proc/diskstats",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/modules",
    "/proc/partitions",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/sysrq-trigger",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/block",
    "/sys/bus",
    "/sys/class",
    "/sys/dev",
    "/sys/devices/virtual",
    "/sys/firmware",
    "/sys/hypervisor",
    "/sys/kernel",
    "/sys/module",
    "/sys/power",
    "/sys/devices/pci0000:00",
];

/// One engine.
pub struct Engine {
    endpoint: String,
    certificates: Option<PathBuf>,
    settings: DockerSettings,
    docker: OnceCell<Docker>,
    /// The image with the supervisor in it.
    ready_image: OnceCell<String>,
    health: Mutex<Health>,
    /// Containers that run or are being made.
    pub load: AtomicU32,
}

#[derive(Default)]
struct Health {
    left_out_until: Option<Instant>,
    failures: u32,
    /// Of the last failure.
    reason: Option<String>,
}

/// What was found at an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// As it was written.
    pub endpoint: String,
    /// The engine's version and machine, where it answers.
    pub engine: Option<String>,
    /// The image with its size, where it is there.
    pub image: Option<String>,
    /// What is missing and what to do about it.
    pub problem: Option<String>,
}

/// The engines of all endpoints.
pub fn all(settings: &DockerSettings) -> Vec<Engine> {
    let engine = |endpoint: &String| Engine {
        endpoint: endpoint.clone(),
        certificates: settings.certificates.clone(),
        settings: settings.clone(),
        docker: OnceCell::new(),
        ready_image: OnceCell::new(),
        health: Mutex::default(),
        load: AtomicU32::new(0),
    };
    settings.endpoints.iter().map(engine).collect()
}

impl Engine {
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The connection, made once it can be.
    pub async fn docker(&self) -> Result<&Docker, String> {
        self.docker.get_or_try_init(|| self.connect()).await
    }

    async fn connect(&self) -> Result<Docker, String> {
        let said = |error: bollard::errors::Error| self.unreachable(&error.to_string());
        let docker =
            connect(&self.endpoint, self.certificates.as_deref()).map_err(|e| self.unreachable(&e))?;
        docker.negotiate_version().await.map_err(said)
    }

    fn unreachable(&self, reason: &str) -> String {
        format!(
            "no Docker engine answers at {} ({reason}); start one (`dockerd`), or name another in `endpoints`",
            self.endpoint
        )
    }

    /// What is there and what is missing.
    pub async fn inspect(&self) -> Inspection {
        let mut found =
            Inspection { endpoint: self.endpoint.clone(), engine: None, image: None, problem: None };
        let docker = match self.docker().await {
            Ok(docker) => docker,
            Err(problem) => return Inspection { problem: Some(problem), ..found },
        };
        let version = match docker.version().await {
            Ok(version) => version,
            Err(error) => {
                return Inspection { problem: Some(self.unreachable(&error.to_string())), ..found };
            }
        };
        let architecture = version.arch.unwrap_or_default();
        found.engine = Some(format!("Docker {} on {architecture}", version.version.unwrap_or_default()));
        if architecture != ours() {
            let problem = format!(
                "the engine at {} is of the kind {architecture}, and this pl-host carries a supervisor for {}",
                self.endpoint,
                ours()
            );
            return Inspection { problem: Some(problem), ..found };
        }
        match image::find(self, docker, &self.settings.image).await {
            Ok(image) => found.image = Some(image),
            Err(problem) => found.problem = Some(problem),
        }
        found
    }

    /// Whether it is worth asking.
    pub fn is_left_out(&self) -> bool {
        self.health().left_out_until.is_some_and(|until| Instant::now() < until)
    }

    /// Why it is left out, where it is.
    pub fn complaint(&self) -> Option<String> {
        self.health().reason.clone()
    }

    /// It failed: it is left out for a while.
    pub fn failed(&self, reason: &str) {
        let mut health = self.health();
        health.reason = Some(reason.to_owned());
        let time = LEFT_OUT.saturating_mul(1 << health.failures.min(8)).min(LEFT_OUT_AT_MOST);
        health.failures += 1;
        health.left_out_until = Some(Instant::now() + time);
    }

    /// It answers.
    pub fn answered(&self) {
        *self.health() = Health::default();
    }

    fn health(&self) -> std::sync::MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a container that is not started yet, and returns its id.
    pub async fn create(&self, number: u32) -> Result<String, String> {
        let docker = self.docker().await?;
        let image =
            self.ready_image.get_or_try_init(|| image::with_supervisor(docker, self, &self.settings)).await?;
        let created = docker.create_container(None, self.container(image, number)).await;
        let created = match created {
            // Somebody removed our image meanwhile.
            Err(bollard::errors::Error::DockerResponseServerError { status_code: 404, .. }) => {
                let image = image::with_supervisor(docker, self, &self.settings).await?;
                docker.create_container(None, self.container(&image, number)).await
            }
            other => other,
        };
        Ok(created.map_err(|error| format!("{} makes no container: {error}", self.endpoint))?.id)
    }

    fn container(&self, image: &str, number: u32) -> ContainerCreateBody {
        let DockerSettings { limits, pids, cpus, .. } = &self.settings;
        let memory = i64::try_from(limits.memory + 2 * limits.output + OVERHEAD).unwrap_or(i64::MAX);
        // Programs may be compiled in the working folder, and nowhere else.
        let folder =
            |more: &str| format!("rw,nosuid,nodev,{more},size={},mode=1777,nr_inodes=16384", limits.memory);
        let tmpfs = [("/work", folder("exec")), ("/tmp", folder("noexec"))];
        let user = user(number);
        let host = HostConfig {
            memory: Some(memory),
            memory_swap: Some(memory),
            // The supervisor is one, and an interpreter that waits another.
            pids_limit: Some(i64::from(*pids) + 2),
            nano_cpus: Some((cpus * 1e9) as i64),
            network_mode: Some("none".to_owned()),
            ipc_mode: Some("private".to_owned()),
            readonly_rootfs: Some(true),
            cap_drop: Some(vec!["ALL".to_owned()]),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            tmpfs: Some(tmpfs.map(|(place, options)| (place.to_owned(), options)).into()),
            shm_size: Some(i64::try_from(limits.memory).unwrap_or(i64::MAX)),
            masked_paths: Some(MASKED.map(str::to_owned).to_vec()),
            // What it says is for us alone, and would fill the engine's disk.
            log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
            auto_remove: Some(true),
            ..HostConfig::default()
        };
        ContainerCreateBody {
            image: Some(image.to_owned()),
            user: Some(format!("{user}:{user}")),
            hostname: Some("sandbox".to_owned()),
            entrypoint: Some(vec![image::SUPERVISOR_PATH.to_owned()]),
            cmd: Some(FOLDERS.map(str::to_owned).to_vec()),
            working_dir: Some("/".to_owned()),
            labels: Some(HashMap::from([(leftovers::LABEL.to_owned(), leftovers::owner())])),
            open_stdin: Some(true),
            // The supervisor ends when we are gone, and its container with it.
            stdin_once: Some(true),
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            host_config: Some(host),
            ..ContainerCreateBody::default()
        }
    }

    /// Removes a container. One that is gone already is fine.
    pub async fn remove(&self, container: &str) {
        let Ok(docker) = self.docker().await else { return };
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        if let Err(error) = docker.remove_container(container, Some(options)).await {
            tracing::debug!(endpoint = self.endpoint, container, %error, "removing a container");
        }
    }

    /// As an error of the library.
    pub fn error(&self, reason: impl ToString) -> Error {
        Error::Docker { reason: reason.to_string() }
    }
}

fn connect(endpoint: &str, certificates: Option<&Path>) -> Result<Docker, String> {
    let scheme = endpoint.split_once("://").map(|(scheme, _)| scheme);
    let connected = match scheme {
        Some("unix") => Docker::connect_with_unix(endpoint, PATIENCE, API_DEFAULT_VERSION),
        Some("tcp" | "http") => Docker::connect_with_http(endpoint, PATIENCE, API_DEFAULT_VERSION),
        Some("https") => {
            let folder = certificates.map(Path::to_path_buf).or_else(usual_certificates);
            let folder = folder.ok_or("no folder of certificates is known: set `certificates`")?;
            let [key, certificate, authority] =
                ["key.pem", "cert.pem", "ca.pem"].map(|file| folder.join(file));
            for file in [&key, &certificate, &authority] {
                if !file.is_file() {
                    return Err(format!("{} is missing", file.display()));
                }
            }
            Docker::connect_with_ssl(endpoint, &key, &certificate, &authority, PATIENCE, API_DEFAULT_VERSION)
        }
        _ => return Err("an endpoint is unix://PATH, tcp://HOST:PORT or https://HOST:PORT".to_owned()),
    };
    connected.map_err(|error| error.to_string())
}

/// Where the `docker` command looks.
fn usual_certificates() -> Option<PathBuf> {
    let named = std::env::var_os("DOCKER_CERT_PATH").map(PathBuf::from);
    named.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".docker")))
}

/// What engines call the machine that this program is built for.
fn ours() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// A user of its own for each container: the kernel counts some things (pipes, watches) per user, whatever container it
/// is in. All are within what an engine with its own user namespace has.
fn user(number: u32) -> u32 {
    20_000 + (std::process::id().wrapping_mul(64).wrapping_add(number)) % 40_000
}

/// Keeps an engine's load right.
pub struct Place<'a>(&'a Engine);

impl<'a> Place<'a> {
    pub fn on(engine: &'a Engine) -> Self {
        engine.load.fetch_add(1, Ordering::Relaxed);
        Self(engine)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.load.fetch_sub(1, Ordering::Relaxed);
    }
}
