//! Limits as a kernel with control groups has them, of each version that this machine has.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use pl_testing::{Requirement, skip_or_fail};

use super::Limits;

const ASKED: Limits = Limits { memory: 64 << 20, processes: 20, cpus: 500, required: true };

/// Control groups of this test, removed when dropped.
struct Groups {
    /// Folder with the layout of a container's `/sys/fs/cgroup`.
    seen: PathBuf,
    groups: Vec<PathBuf>,
    _folder: tempfile::TempDir,
}

impl Drop for Groups {
    fn drop(&mut self) {
        // The last process may not be gone yet.
        for group in &self.groups {
            for _ in 0..100 {
                if fs::remove_dir(group).is_ok() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}

/// Returns the folder where a controller of a version 1 hierarchy, or the hierarchy of version 2, is mounted.
fn mounted(kind: &str, option: &str) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    mounts.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let [_, folder, of, options, ..] = fields[..] else { return None };
        let is_it = of == kind && (option.is_empty() || options.split(',').any(|own| own == option));
        is_it.then(|| PathBuf::from(folder))
    })
}

fn name() -> String {
    format!("pl-host-test-{}", std::process::id())
}

/// Creates a group of version 2 with the controllers of the limits.
fn second_version() -> Result<Groups, String> {
    let root = mounted("cgroup2", "").ok_or("no control groups of version 2 are mounted")?;
    let controllers = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    for controller in ["memory", "pids", "cpu"] {
        if !controllers.split_whitespace().any(|own| own == controller) {
            return Err(format!(
                "{} has no controller {controller} (it has {:?})",
                root.display(),
                controllers.trim()
            ));
        }
    }
    fs::write(root.join("cgroup.subtree_control"), "+memory +pids +cpu")
        .map_err(|error| error.to_string())?;
    let group = root.join(name());
    fs::create_dir(&group).map_err(|error| format!("{} can't be created: {error}", group.display()))?;
    keep_out_of_swap(&group.join("memory.swap.max"));
    Ok(Groups { seen: group.clone(), groups: vec![group], _folder: tempfile::tempdir().unwrap() })
}

/// Creates a group of version 1 for each controller of the limits.
fn first_version() -> Result<Groups, String> {
    let folder = tempfile::tempdir().unwrap();
    let mut made = Groups { seen: folder.path().to_path_buf(), groups: Vec::new(), _folder: folder };
    for controller in ["memory", "pids", "cpu"] {
        let root = mounted("cgroup", controller)
            .ok_or_else(|| format!("the controller {controller} has no hierarchy of version 1"))?;
        let group = root.join(name());
        fs::create_dir(&group).map_err(|error| format!("{} can't be created: {error}", group.display()))?;
        symlink(&group, made.seen.join(controller)).unwrap();
        made.groups.push(group);
    }
    keep_out_of_swap(&made.seen.join("memory/memory.swappiness"));
    Ok(made)
}

/// Keeps a group from moving memory beyond its limit to the machine's swap space, if this file exists.
fn keep_out_of_swap(file: &Path) {
    if file.exists() {
        fs::write(file, "0").unwrap();
    }
}

/// Sets each limit, with a control that it is missed without, and runs a process that exceeds the limit of memory.
fn check(groups: &Groups, limits: &[(&str, &str, &str)]) {
    let set = |file: &str, value: &str| fs::write(groups.seen.join(file), value).unwrap();
    let checked = || ASKED.check_in(&groups.seen, false).map_err(|error| error.to_string());
    assert!(checked().is_err(), "a new group has no limits");
    let greedy = |limited: bool| run_in(if limited { &groups.groups } else { &[] });
    // The control: the process itself works.
    assert_eq!(greedy(false), (None, "100000000\n".to_owned()));
    for (file, own, _) in limits {
        set(file, own);
    }
    assert_eq!(checked(), Ok(()));
    assert_eq!(greedy(true).0, Some(libc::SIGKILL), "the kernel holds the limit");
    for (file, own, none) in limits {
        set(file, none);
        let refused = checked().unwrap_err();
        assert!(refused.contains("limit"), "{file} = {none}: {refused}");
        set(file, own);
    }
    assert_eq!(checked(), Ok(()));
}

/// Runs a shell that holds a text of 100 MB, in groups. Returns the signal that ended it, and its output.
fn run_in(groups: &[PathBuf]) -> (Option<i32>, String) {
    let join: String = groups
        .iter()
        .map(|group: &PathBuf| format!("echo $$ > {}; ", path(&group.join("cgroup.procs"))))
        .collect();
    let script = format!("{join}x=$(head -c 100000000 /dev/zero | tr '\\0' a); echo ${{#x}}");
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    (output.status.signal(), String::from_utf8(output.stdout).unwrap())
}

fn path(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn a_kernel_with_version_2_has_the_limits() {
    match second_version() {
        Err(reason) => skip_or_fail(Requirement::CgroupsV2, &reason),
        Ok(groups) => check(
            &groups,
            &[
                ("memory.max", "67108864", "max"),
                ("pids.max", "20", "max"),
                ("cpu.max", "50000 100000", "max 100000"),
            ],
        ),
    }
}

#[test]
fn a_kernel_with_version_1_has_the_limits() {
    match first_version() {
        Err(reason) => skip_or_fail(Requirement::CgroupsV1, &reason),
        Ok(groups) => check(
            &groups,
            &[
                ("memory/memory.limit_in_bytes", "67108864", "-1"),
                ("pids/pids.max", "20", "max"),
                ("cpu/cpu.cfs_quota_us", "50000", "-1"),
            ],
        ),
    }
}
