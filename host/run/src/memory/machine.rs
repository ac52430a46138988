//! The machine's memory, within the limits of this process.

use std::path::{Path, PathBuf};

/// Memory of the machine, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineMemory {
    pub total: u64,
    /// Free memory, including reclaimable caches.
    pub free: u64,
}

impl MachineMemory {
    /// Reads the memory of this machine, within the limits of the process's control groups. Returns `None` if
    /// the system has no `/proc/meminfo`.
    pub fn read() -> Option<MachineMemory> {
        MachineMemory::read_from(Path::new("/proc"), Path::new("/sys/fs/cgroup"))
    }

    fn read_from(proc: &Path, groups: &Path) -> Option<MachineMemory> {
        let info = std::fs::read_to_string(proc.join("meminfo")).ok()?;
        let field = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
        };
        let mut memory = MachineMemory { total: field("MemTotal")?, free: field("MemAvailable")? };
        let own = std::fs::read_to_string(proc.join("self/cgroup")).unwrap_or_default();
        for group in own.lines().flat_map(|line| ControlGroup::parse(line, groups)) {
            if let Some((limit, used)) = group.limit_and_usage() {
                memory.total = memory.total.min(limit);
                memory.free = memory.free.min(limit.saturating_sub(used));
            }
        }
        Some(memory)
    }
}

/// Memory of this process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessMemory {
    /// In RAM now.
    pub resident: u64,
    /// Largest amount in RAM so far.
    pub peak: u64,
}

impl ProcessMemory {
    /// Reads the memory of this process. Returns `None` if the system has no `/proc/self/status`.
    pub(crate) fn read() -> Option<ProcessMemory> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
            Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
        };
        Some(ProcessMemory { resident: field("VmRSS")?, peak: field("VmHWM")? })
    }
}

/// Files of a control group. Their names depend on the version of cgroups.
struct ControlGroup {
    folder: PathBuf,
    limit: &'static str,
    usage: &'static str,
    /// Key in `memory.stat` of reclaimable file caches.
    cache: &'static str,
}

impl ControlGroup {
    /// Returns the groups that a line of `/proc/self/cgroup` names: the process's own and its ancestors up to
    /// the root. In a container the path is that of the host, and only the root exists.
    fn parse(line: &str, groups: &Path) -> Vec<ControlGroup> {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return Vec::new() };
        let (root, [limit, usage, cache]) = match controllers {
            "" => (groups.to_path_buf(), ["memory.max", "memory.current", "inactive_file"]),
            _ if controllers.split(',').any(|one| one == "memory") => {
                let files = ["memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"];
                (groups.join("memory"), files)
            }
            _ => return Vec::new(),
        };
        let path = Path::new(path.trim_start_matches('/'));
        path.ancestors().map(|part| ControlGroup { folder: root.join(part), limit, usage, cache }).collect()
    }

    /// Returns the limit and the usage in bytes. Returns `None` if there is no limit.
    fn limit_and_usage(&self) -> Option<(u64, u64)> {
        let read = |name: &str| std::fs::read_to_string(self.folder.join(name)).ok();
        // The word `max` means that there is no limit.
        let limit = read(self.limit)?.trim().parse::<u64>().ok()?;
        let usage = read(self.usage)?.trim().parse::<u64>().ok()?;
        let stat = read("memory.stat").unwrap_or_default();
        let cache = stat.lines().find_map(|line| line.strip_prefix(self.cache)?.trim().parse::<u64>().ok());
        Some((limit, usage.saturating_sub(cache.unwrap_or(0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    const MEMINFO: &str = "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    600 kB\n";

    fn memory(files: &[(&str, &str)]) -> Option<MachineMemory> {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), files);
        MachineMemory::read_from(&folder.path().join("proc"), &folder.path().join("groups"))
    }

    #[test]
    fn without_limits_the_memory_is_that_of_the_machine() {
        let files =
            [("proc/meminfo", MEMINFO), ("proc/self/cgroup", "0::/a\n"), ("groups/a/memory.max", "max\n")];
        assert_eq!(memory(&files), Some(MachineMemory { total: 1000 << 10, free: 600 << 10 }));
        assert_eq!(memory(&[]), None);
    }

    #[test]
    fn the_tightest_limit_of_all_ancestors_counts() {
        let files = [
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/outer/inner\n"),
            ("groups/outer/memory.max", "409600\n"),
            ("groups/outer/memory.current", "307200\n"),
            ("groups/outer/memory.stat", "anon 5\ninactive_file 102400\n"),
            ("groups/outer/inner/memory.max", "max\n"),
        ];
        assert_eq!(memory(&files), Some(MachineMemory { total: 400 << 10, free: 200 << 10 }));
    }

    #[test]
    fn groups_of_the_first_version_and_containers_are_read() {
        let files = [
            ("proc/meminfo", MEMINFO),
            // The path is the host's; in the container only the root exists.
            ("proc/self/cgroup", "7:cpu:/x\n4:memory:/docker/abc\n"),
            ("groups/memory/memory.limit_in_bytes", "204800\n"),
            ("groups/memory/memory.usage_in_bytes", "102400\n"),
        ];
        assert_eq!(memory(&files), Some(MachineMemory { total: 200 << 10, free: 100 << 10 }));
        // A very large number means that there is no limit.
        let large = [files[0], files[1], ("groups/memory/memory.limit_in_bytes", "9223372036854771712\n")];
        assert_eq!(memory(&large), Some(MachineMemory { total: 1000 << 10, free: 600 << 10 }));
    }
}
