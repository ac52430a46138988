//! Owners of containers: a label names the process that created a container, so that the containers of a running
//! pl-host are never removed by another one.

use crate::proc_stat::start_time;

/// Label of the pool's containers. Its value is [`owner`].
pub const LABEL: &str = "pl-host.owner";

/// Place where process ids have a meaning.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Namespace {
    /// Host name and machine id. The id alone is the same in all containers of some images.
    machine: String,
    boot: String,
    /// PID namespace: containers that share a kernel and a host name have one each.
    pids: String,
}

impl Namespace {
    fn own() -> Namespace {
        let pids = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
        Namespace {
            machine: format!("{}/{}", read("/proc/sys/kernel/hostname"), read("/etc/machine-id")),
            boot: read("/proc/sys/kernel/random/boot_id"),
            pids: pids.display().to_string(),
        }
    }
}

/// Returns a name of this process that no other process ever has: machine, boot, PID namespace, process id and start time.
pub fn owner() -> String {
    let pid = std::process::id();
    let started = start_time(pid).unwrap_or_default();
    let Namespace { machine, boot, pids } = Namespace::own();
    format!("{machine} {boot} {pids} {pid} {started}")
}

/// Returns true if an owner is certainly dead. Owners on other machines and in other PID namespaces never are.
pub fn is_dead(owner: &str) -> bool {
    is_dead_in(&Namespace::own(), owner, start_time)
}

fn is_dead_in(own: &Namespace, owner: &str, start_time: impl Fn(u32) -> Option<String>) -> bool {
    let parts: Vec<&str> = owner.split(' ').collect();
    // Earlier versions had another form.
    let [machine, boot, pids, pid, started] = parts[..] else { return false };
    // Machines of one name can only be told apart by their id.
    if machine != own.machine || machine.ends_with('/') {
        return false;
    }
    if boot != own.boot {
        return true;
    }
    pids == own.pids && pid.parse().ok().and_then(start_time).is_none_or(|now| now != started)
}

fn read(path: &str) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().replace(' ', "_")
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    use pl_testing::{Requirement, skip_or_fail};

    use super::*;

    #[test]
    fn only_owners_that_are_certainly_dead_lose_their_containers() {
        let alive = |pid| (pid == 7).then(|| "100".to_owned());
        let namespace = |machine: &str| Namespace {
            machine: machine.to_owned(),
            boot: "boot-2".to_owned(),
            pids: "pid:[1]".to_owned(),
        };
        let dead = |owner| is_dead_in(&namespace("here/5f"), owner, alive);
        assert!(!dead("here/5f boot-2 pid:[1] 7 100"));
        assert!(dead("here/5f boot-2 pid:[1] 7 99"), "another process has its number");
        assert!(dead("here/5f boot-2 pid:[1] 8 100"));
        assert!(dead("here/5f boot-1 pid:[1] 7 100"), "the machine was restarted");
        assert!(!dead("here/5f boot-2 pid:[2] 8 100"), "a container on this machine has other numbers");
        assert!(!dead("here/60 boot-1 pid:[1] 8 100"), "another machine of this name");
        assert!(!dead("there/5f boot-1 pid:[1] 8 100"), "not this machine");
        assert!(
            !is_dead_in(&namespace("localhost/"), "localhost/ boot-1 pid:[1] 8 100", alive),
            "without an id"
        );
        assert!(!dead("here boot-2 7 100") && !dead(""), "another form");
        let own = owner();
        assert!(!is_dead(&own), "{own}");
    }

    #[test]
    #[ignore = "the process that the next test starts"]
    fn a_process_that_prints_its_owner() {
        println!("\nowner={}", owner());
        // It lives until it is judged.
        let _ = std::io::stdin().read_line(&mut String::new());
    }

    #[test]
    fn a_living_process_of_another_pid_namespace_keeps_its_containers() {
        let test = "docker::owner::tests::a_process_that_prints_its_owner";
        let started = Command::new("unshare")
            .args(["--pid", "--fork", "--mount-proc"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let printed = started.ok().and_then(|mut process| {
            let mut lines = BufReader::new(process.stdout.take()?).lines().map_while(Result::ok);
            let owner = lines.find_map(|line| line.strip_prefix("owner=").map(str::to_owned))?;
            Some((process, owner))
        });
        let Some((mut process, other)) = printed else {
            return skip_or_fail(Requirement::Docker, "no PID namespace can be made");
        };
        assert!(!is_dead(&other), "{other}");
        // The control: without its namespace it is taken for dead, as its number means another process here or none.
        let parts: Vec<&str> = other.split(' ').collect();
        let here = Namespace { machine: "here/5f".to_owned(), boot: "boot".to_owned(), ..Namespace::own() };
        let judged = |pids: &str| {
            let owner = format!("here/5f boot {pids} {} {}", parts[3], parts[4]);
            is_dead_in(&here, &owner, start_time)
        };
        assert!(!judged(parts[2]) && judged(&here.pids), "{other}");
        drop(process.stdin.take());
        process.wait().unwrap();
    }
}
