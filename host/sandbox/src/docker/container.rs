//! Creation of containers, with all of their restrictions.

use std::collections::HashMap;

use bollard::errors::Error as BollardError;
use bollard::models::{ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig};
use pl_supervisor::MAX_COMPILED;

use super::engine::DockerEngine;
use super::error::DockerError;
use super::settings::DockerSettings;
use super::{image, owner};

/// Memory of the supervisor besides compiled files and reports.
const SUPERVISOR_MEMORY: u64 = 16 << 20;

/// Folders that jobs may write to, the working folder first.
const FOLDERS: [&str; 4] = ["/work", "/tmp", "/dev/shm", "/dev/mqueue"];

/// Paths that jobs can't read: those that Docker masks itself, and others that describe the machine.
const MASKED: [&str; 26] = [
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
    // Whole: the names of its buses and CPUs (`pci0000:80`, `cpu7/thermal_throttle`) differ from machine to machine.
    "/sys/devices",
    "/sys/firmware",
    "/sys/hypervisor",
    "/sys/kernel",
    "/sys/module",
    "/sys/power",
];

/// Creates a container without starting it, and returns its id.
pub async fn create(engine: &DockerEngine, number: u32) -> Result<String, DockerError> {
    let docker = engine.docker().await?;
    let image = engine.supervisor_image.get_or_try_init(|| image::with_supervisor(docker, engine)).await?;
    let created = match docker.create_container(None, body(&engine.settings, image, number)).await {
        // The image has been removed since it was made.
        Err(BollardError::DockerResponseServerError { status_code: 404, .. }) => {
            let image = image::with_supervisor(docker, engine).await?;
            docker.create_container(None, body(&engine.settings, &image, number)).await
        }
        other => other,
    };
    let created = created.map_err(engine.request_error("create a container"))?;
    let discarded: Vec<String> =
        created.warnings.into_iter().filter(|warning| is_about_limits(warning)).collect();
    if discarded.is_empty() {
        return Ok(created.id);
    }
    engine.remove(&created.id).await;
    Err(DockerError::NoLimits { endpoint: engine.endpoint().to_owned(), warning: discarded.join("; ") })
}

/// Returns true if an engine warns that it leaves out a limit that it was asked for: "Your kernel does not support memory
/// limit capabilities or the cgroup is not mounted. Limitation discarded."
fn is_about_limits(warning: &str) -> bool {
    let warning = warning.to_lowercase();
    ["discarded", "does not support", "without swap", "limit"].iter().any(|word| warning.contains(word))
}

fn body(settings: &DockerSettings, image: &str, number: u32) -> ContainerCreateBody {
    let DockerSettings { limits, runtime, pids, cpus, .. } = settings;
    let memory = i64::try_from(settings.container_memory()).unwrap_or(i64::MAX);
    // Programs may be compiled and executed in the working folder only.
    let folder =
        |more: &str| format!("rw,nosuid,nodev,{more},size={},mode=1777,nr_inodes=16384", limits.memory);
    let tmpfs = [("/work", folder("exec")), ("/tmp", folder("noexec"))];
    let user = user_id(number);
    let host = HostConfig {
        runtime: runtime.clone(),
        memory: Some(memory),
        memory_swap: Some(memory),
        // One more for the supervisor.
        pids_limit: Some(i64::from(*pids) + 1),
        nano_cpus: Some((cpus * 1e9) as i64),
        network_mode: Some("none".to_owned()),
        ipc_mode: Some("private".to_owned()),
        readonly_rootfs: Some(true),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        tmpfs: Some(tmpfs.map(|(path, options)| (path.to_owned(), options)).into()),
        shm_size: Some(i64::try_from(limits.memory).unwrap_or(i64::MAX)),
        masked_paths: Some(MASKED.map(str::to_owned).to_vec()),
        // The supervisor's output is the protocol. A log of it would fill the engine's disk.
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        auto_remove: Some(true),
        ..HostConfig::default()
    };
    ContainerCreateBody {
        image: Some(image.to_owned()),
        user: Some(format!("{user}:{user}")),
        hostname: Some("sandbox".to_owned()),
        // A check of the image would run beside jobs.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
        entrypoint: Some(vec![image::SUPERVISOR_PATH.to_owned()]),
        cmd: Some(supervisor_arguments(settings, memory.unsigned_abs())),
        working_dir: Some("/".to_owned()),
        labels: Some(HashMap::from([(owner::LABEL.to_owned(), owner::owner())])),
        open_stdin: Some(true),
        // The supervisor ends when this process is gone, and its container with it.
        stdin_once: Some(true),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        host_config: Some(host),
        ..ContainerCreateBody::default()
    }
}

impl DockerSettings {
    /// Returns the limit of a container's memory in bytes: that of a job, and what the supervisor may hold beside it. A
    /// container has one control group, so a job may use what the supervisor doesn't.
    pub fn container_memory(&self) -> u64 {
        // A report is in memory twice while it is sent: its values, and their frame.
        let reports = 2 * self.max_message() as u64;
        self.limits.memory + SUPERVISOR_MEMORY + MAX_COMPILED + reports
    }
}

/// Returns the arguments of the supervisor: the limits that it verifies, then the writable folders. A runtime of the user's
/// choice may have no control groups inside, as gVisor's.
fn supervisor_arguments(settings: &DockerSettings, memory: u64) -> Vec<String> {
    let (processes, required) = (settings.pids + 1, u8::from(settings.runtime.is_none()));
    let cpus = (settings.cpus * 1000.0).round() as u64;
    let limits = format!("--limits={memory},{processes},{cpus},{required}");
    std::iter::once(limits).chain(FOLDERS.map(str::to_owned)).collect()
}

/// Returns a separate user id for each container: the kernel counts some resources (pipes, watches) per user
/// across all containers. All ids are within the range of an engine with its own user namespace.
fn user_id(number: u32) -> u32 {
    20_000 + (std::process::id().wrapping_mul(64).wrapping_add(number)) % 40_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SandboxLimits;

    /// Without room for them the kernel would end the supervisor, and its container would be lost.
    #[test]
    fn a_small_job_leaves_room_for_compiled_files_and_reports() {
        let limits = SandboxLimits { memory: 16 << 20, output: 64 << 20, ..SandboxLimits::default() };
        let settings = DockerSettings { limits, ..DockerSettings::default() };
        let body = body(&settings, "image", 0);
        let memory = body.host_config.and_then(|host| host.memory).unwrap();
        // The memory of the job, its compiled files, its two streams as values and as a frame.
        assert!(memory >= (16 + 32 + 2 * 2 * 64) << 20, "{memory}");
        // What the documentation says of the default limits.
        let settings = DockerSettings::default();
        assert_eq!(settings.container_memory() - settings.limits.memory, (66 << 20) + (256 << 10));
        // The supervisor refuses a container whose limit is not the one that it was told.
        assert!(body.cmd.unwrap()[0].starts_with(&format!("--limits={memory},")));
    }

    #[test]
    fn warnings_about_limits_are_told_from_others() {
        for warning in [
            "Your kernel does not support memory limit capabilities or the cgroup is not mounted. Limitation discarded.",
            "Your kernel does not support swap limit capabilities or the cgroup is not mounted. Memory limited without swap.",
            "Your kernel does not support pids limit capabilities or the cgroup is not mounted. PIDs limit discarded.",
            "Your kernel does not support CPU CFS scheduler. CPU period/quota discarded.",
        ] {
            assert!(is_about_limits(warning), "{warning}");
        }
        assert!(!is_about_limits(
            "The requested image's platform (linux/arm64) does not match the detected host platform"
        ));
    }
}
