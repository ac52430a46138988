//! Owners of containers: a label names the process that created a container, so that the containers of a running
//! pl-host are never removed by another one.

/// Label of the pool's containers. Its value is [`owner`].
pub const LABEL: &str = "pl-host.owner";

/// Returns a name of this process that no other process ever has: machine, boot, process id and start time.
pub fn owner() -> String {
    let pid = std::process::id();
    let started = start_time(pid).unwrap_or_default();
    format!("{} {} {pid} {started}", machine(), boot())
}

/// Returns true if an owner is certainly dead. Owners on other machines never are.
pub fn is_dead(owner: &str) -> bool {
    is_dead_on(owner, &machine(), &boot(), start_time)
}

fn is_dead_on(owner: &str, machine: &str, boot: &str, start_time: impl Fn(u32) -> Option<String>) -> bool {
    let mut parts = owner.split(' ');
    let mut next = || parts.next().unwrap_or_default();
    let (owner_machine, owner_boot, pid, started) = (next(), next(), next(), next());
    if owner_machine != machine {
        return false;
    }
    owner_boot != boot || pid.parse().ok().and_then(start_time).is_none_or(|now| now != started)
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

/// Returns the start time of a living process in clock ticks since boot.
fn start_time(pid: u32) -> Option<String> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name, which may contain anything, ends with the last bracket.
    let (_, fields) = text.rsplit_once(')')?;
    fields.split_whitespace().nth(19).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_owners_that_are_certainly_dead_lose_their_containers() {
        let alive = |pid| (pid == 7).then(|| "100".to_owned());
        let dead = |owner| is_dead_on(owner, "here", "boot-2", alive);
        assert!(!dead("here boot-2 7 100"));
        assert!(dead("here boot-2 7 99"), "another process has its number");
        assert!(dead("here boot-2 8 100"));
        assert!(dead("here boot-1 7 100"), "the machine was restarted");
        assert!(!dead("there boot-1 8 100"), "not this machine");
        assert!(dead("here boot-2"));
        let own = owner();
        assert!(!is_dead(&own), "{own}");
    }
}
