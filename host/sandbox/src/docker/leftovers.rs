//! Containers that a killed pl-host may have left behind.
//!
//! A supervisor ends with its host, and its container with it. What an engine still keeps, as when it was stopped
//! itself, is found by its label and removed at the next start. The label says whose it is, so that nobody removes the
//! containers of a pl-host that lives.

use std::collections::HashMap;

use bollard::query_parameters::ListContainersOptionsBuilder;

use super::engine::Engine;

/// The label of our containers. Its value is [`owner`].
pub const LABEL: &str = "pl-host.owner";

/// This process, as no other process ever was: machine, boot, process and its start.
pub fn owner() -> String {
    let pid = std::process::id();
    let started = started(pid).unwrap_or_default();
    format!("{} {} {pid} {started}", machine(), boot())
}

/// Removes what dead processes left.
pub async fn remove(engine: &Engine) {
    let Ok(docker) = engine.docker().await else { return };
    let filters = HashMap::from([("label", vec![LABEL])]);
    let options = ListContainersOptionsBuilder::default().all(true).filters(&filters).build();
    let Ok(containers) = docker.list_containers(Some(options)).await else { return };
    let left = containers.into_iter().filter_map(|container| {
        let owner = container.labels?.remove(LABEL)?;
        is_dead(&owner, &machine(), &boot(), started).then_some(container.id?)
    });
    let removals = left.map(|id| async move {
        tracing::info!(endpoint = engine.endpoint(), container = id, "removing what a killed pl-host left");
        engine.remove(&id).await;
    });
    futures::future::join_all(removals).await;
}

/// Whether an owner is known to be gone. Those of other machines are not ours to judge.
fn is_dead(owner: &str, machine: &str, boot: &str, started: impl Fn(u32) -> Option<String>) -> bool {
    let mut parts = owner.split(' ');
    let mut next = || parts.next().unwrap_or_default();
    let (its_machine, its_boot, pid, start) = (next(), next(), next(), next());
    if its_machine != machine {
        return false;
    }
    its_boot != boot || pid.parse().ok().and_then(started).is_none_or(|now| now != start)
}

fn machine() -> String {
    read("/proc/sys/kernel/hostname")
}

fn boot() -> String {
    read("/proc/sys/kernel/random/boot_id")
}

fn read(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().replace(' ', "_")
}

/// When a process that lives was started, in the kernel's ticks.
fn started(pid: u32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, which may hold anything, ends with the last bracket.
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_whitespace().nth(19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_known_to_be_dead_is_removed() {
        let alive = |pid| (pid == 7).then(|| "100".to_owned());
        let dead = |owner| is_dead(owner, "here", "boot-2", alive);
        assert!(!dead("here boot-2 7 100"));
        assert!(dead("here boot-2 7 99"), "another process has its number");
        assert!(dead("here boot-2 8 100"));
        assert!(dead("here boot-1 7 100"), "the machine was restarted");
        assert!(!dead("there boot-1 8 100"), "not our machine");
        assert!(dead("here boot-2"));
        let ours = owner();
        assert!(!is_dead(&ours, &machine(), &boot(), started), "{ours}");
    }
}
