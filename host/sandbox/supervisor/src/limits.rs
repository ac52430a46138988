//! Limits of the container, as its control groups have them.
//!
//! An engine without control groups starts containers all the same, with a warning at most. The supervisor reads the
//! limits, of version 2 or 1, and refuses to serve without them.

use std::fs;
use std::path::Path;

use crate::error::{Error, Result};

/// Folder of control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// Largest difference of a memory limit, which the kernel rounds to pages.
const PAGE: u64 = 64 << 10;

/// Limits that the engine was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory, without any swap.
    pub memory: u64,
    /// Number of processes.
    pub processes: u64,
    /// Thousandths of CPUs.
    pub cpus: u64,
    /// False if control groups may be missing: a runtime with a kernel of its own has its limits outside.
    pub required: bool,
}

impl Limits {
    /// Parses `MEMORY,PROCESSES,CPUS,REQUIRED`, where the last is 0 or 1.
    pub fn parse(text: &str) -> Option<Limits> {
        let numbers: Vec<u64> =
            text.split(',').map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
        let [memory, processes, cpus, required @ (0 | 1)] = numbers[..] else { return None };
        Some(Limits { memory, processes, cpus, required: required == 1 })
    }

    /// Checks that the container has these limits, or narrower ones.
    pub fn check(&self) -> Result<()> {
        let swap = fs::read_to_string("/proc/swaps").unwrap_or_default();
        self.check_in(Path::new(GROUPS), swap.lines().count() > 1)
    }

    fn check_in(&self, groups: &Path, has_swap: bool) -> Result<()> {
        if !self.required && !groups.join("memory.max").exists() && !groups.join("memory").exists() {
            return Ok(());
        }
        let read = |names: [&str; 2]| {
            let text = names.into_iter().find_map(|name| fs::read_to_string(groups.join(name)).ok());
            text.map(|text| text.trim().to_owned())
        };
        let memory = read(["memory.max", "memory/memory.limit_in_bytes"]);
        within("memory", memory, |text| Some(text.parse::<u64>().ok()? <= self.memory + PAGE))?;
        if has_swap {
            // Version 1 counts memory and swap together.
            let together = read(["", "memory/memory.memsw.limit_in_bytes"]);
            let swap =
                fs::read_to_string(groups.join("memory.swap.max")).ok().map(|text| text.trim().to_owned());
            match swap {
                Some(swap) => within("swap", Some(swap), |text| Some(text.parse::<u64>().ok()? <= PAGE))?,
                None => {
                    within("swap", together, |text| Some(text.parse::<u64>().ok()? <= self.memory + PAGE))?
                }
            }
        }
        let processes = read(["pids.max", "pids/pids.max"]);
        within("processes", processes, |text| Some(text.parse::<u64>().ok()? <= self.processes))?;
        let v1 = |name: &str| fs::read_to_string(groups.join("cpu").join(name)).ok();
        let cpu = read(["cpu.max", ""]).or_else(|| {
            let (quota, period) = (v1("cpu.cfs_quota_us")?, v1("cpu.cfs_period_us")?);
            Some(format!("{} {}", quota.trim(), period.trim()))
        });
        within("CPUs", cpu, |text| {
            let (quota, period) = text.split_once(' ')?;
            let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
            // A thousandth may be lost in the rounding of the quota.
            Some(quota.saturating_mul(1000) <= period.saturating_mul(self.cpus + 1))
        })
    }
}

/// Checks a limit. A text that is not a number, such as `max` and `-1`, stands for no limit.
fn within(name: &'static str, text: Option<String>, check: impl Fn(&str) -> Option<bool>) -> Result<()> {
    match text {
        None => Err(Error::NoLimit(name)),
        Some(text) if check(&text) == Some(true) => Ok(()),
        Some(text) => Err(Error::Limit { name, found: text }),
    }
}

#[cfg(test)]
mod kernel_tests;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const ASKED: Limits = Limits { memory: 64 << 20, processes: 20, cpus: 500, required: true };

    fn check(files: &[(&str, &str)], has_swap: bool) -> std::result::Result<(), String> {
        check_limits(ASKED, files, has_swap)
    }

    fn check_limits(
        asked: Limits,
        files: &[(&str, &str)],
        has_swap: bool,
    ) -> std::result::Result<(), String> {
        let folder = std::env::temp_dir().join(format!(
            "limits-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        let _ = fs::remove_dir_all(&folder);
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }
        let checked = asked.check_in(&folder, has_swap).map_err(|error| error.to_string());
        let _ = fs::remove_dir_all(&folder);
        checked
    }

    const V2: [(&str, &str); 4] = [
        ("memory.max", "67108864"),
        ("memory.swap.max", "0"),
        ("pids.max", "20"),
        ("cpu.max", "50000 100000"),
    ];

    const V1: [(&str, &str); 5] = [
        ("memory/memory.limit_in_bytes", "67108864"),
        ("memory/memory.memsw.limit_in_bytes", "67108864"),
        ("pids/pids.max", "20"),
        ("cpu/cpu.cfs_quota_us", "50000"),
        ("cpu/cpu.cfs_period_us", "100000"),
    ];

    #[test]
    fn limits_of_both_versions_are_understood() {
        assert_eq!(check(&V2, true), Ok(()));
        assert_eq!(check(&V1, true), Ok(()));
        // A machine without swap need not count it.
        assert_eq!(check(&[V2[0], V2[2], V2[3]], false), Ok(()));
    }

    #[test]
    fn a_limit_that_is_missing_wider_or_none_is_refused() {
        for (group, wide) in [
            (
                &V2[..],
                [
                    ("memory.max", "max"),
                    ("memory.swap.max", "max"),
                    ("pids.max", "max"),
                    ("cpu.max", "max 100000"),
                ],
            ),
            (
                &V2[..],
                [
                    ("memory.max", "134217728"),
                    ("memory.swap.max", "67108864"),
                    ("pids.max", "21"),
                    ("cpu.max", "60000 100000"),
                ],
            ),
            (
                &V1[..],
                [
                    ("memory/memory.limit_in_bytes", "9223372036854771712"),
                    ("memory/memory.memsw.limit_in_bytes", "134217728"),
                    ("pids/pids.max", "max"),
                    ("cpu/cpu.cfs_quota_us", "-1"),
                ],
            ),
        ] {
            for (name, text) in wide {
                let changed: Vec<_> =
                    group.iter().map(|own| if own.0 == name { (name, text) } else { *own }).collect();
                let refused = check(&changed, true).unwrap_err();
                assert!(refused.contains("limit"), "{name} = {text}: {refused}");
                let missing: Vec<_> = group.iter().filter(|own| own.0 != name).copied().collect();
                assert!(check(&missing, true).is_err(), "{name} is missing");
            }
        }
        assert_eq!(
            check(&[], false),
            Err("it has no limit of memory: the engine has no control groups".to_owned())
        );
    }

    #[test]
    fn a_runtime_of_its_own_may_hide_its_limits_but_not_leave_them_out() {
        let asked = Limits { required: false, ..ASKED };
        assert_eq!(check_limits(asked, &[], true), Ok(()));
        assert_eq!(check_limits(asked, &V1, true), Ok(()));
        assert!(check_limits(asked, &[("memory.max", "max")], false).is_err());
        assert!(check_limits(asked, &V1[..1], false).is_err());
    }

    #[test]
    fn arguments_are_parsed() {
        assert_eq!(Limits::parse("67108864,20,500,1"), Some(ASKED));
        for wrong in ["", "1,2,3", "1,2,3,4", "1,2,3,1,1", "a,2,3,1", "1,-2,3,1"] {
            assert_eq!(Limits::parse(wrong), None, "{wrong}");
        }
    }
}
