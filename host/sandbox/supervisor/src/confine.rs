//! Restrictions that this process puts on itself before it serves, and the check of the container's
//! isolation.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::confine::filter::Filter;
use crate::error::{Error, Result};

mod filter;

/// Closes this process to other processes of its user and drops everything that no job needs, for itself and
/// so for all jobs.
///
/// # Errors
/// [`Error::Confine`] with the step that the kernel refused. Such a container must not run jobs.
pub fn confine_self() -> Result<()> {
    let failed = |action| Error::Confine { action, source: std::io::Error::last_os_error() };
    // SAFETY: the only memory involved are limits that live through the calls.
    unsafe {
        if libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 {
            return Err(failed("close its memory to others"));
        }
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(failed("rule out new privileges"));
        }
        // A signal without a handler has no effect on PID 1. Rust's runtime handles these two.
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        let files = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
        if libc::setrlimit(libc::RLIMIT_CORE, &none) != 0 || libc::setrlimit(libc::RLIMIT_NOFILE, &files) != 0
        {
            return Err(failed("limit files"));
        }
    }
    Filter::for_jobs().install().map_err(|source| Error::Confine { action: "filter system calls", source })
}

fn read(path: &'static str) -> Result<String> {
    fs::read_to_string(path).map_err(|source| Error::Status { path, source })
}

/// Checks that the engine filters system calls. [`confine_self`] adds a filter after which this can't be told any more.
pub fn check_engine_filter() -> Result<()> {
    match has_filter(&read("/proc/self/status")?) {
        true => Ok(()),
        false => Err(Error::NoFilter),
    }
}

/// Returns true if a process with this `status` has a filter.
fn has_filter(status: &str) -> bool {
    status.lines().filter_map(|line| line.strip_prefix("Seccomp:")).any(|mode| mode.trim() == "2")
}

/// Checks that the container is isolated as it should be.
pub fn check_container(folders: &[PathBuf]) -> Result<()> {
    // SAFETY: no memory is involved.
    if unsafe { libc::getuid() } == 0 {
        return Err(Error::Root);
    }
    let status = read("/proc/self/status")?;
    let has_capabilities = status.lines().any(|line| {
        line.starts_with("Cap")
            && line.split('\t').nth(1).is_none_or(|set| set.contains(|digit| digit != '0'))
    });
    if has_capabilities {
        return Err(Error::Capabilities);
    }
    let interfaces = read("/proc/net/dev")?;
    if interfaces.lines().skip(2).any(|line| !line.trim_start().starts_with("lo:")) {
        return Err(Error::Network);
    }
    match read("/proc/self/mountinfo")?.lines().find_map(|line| writable_mount(line, folders)) {
        Some(path) => Err(Error::Writable(path)),
        None => Ok(()),
    }
}

/// Returns the path of a line of `mountinfo` if jobs could leave something there although it is not one of
/// `folders`.
fn writable_mount(line: &str, folders: &[PathBuf]) -> Option<String> {
    let fields: Vec<&str> = line.split(' ').collect();
    let [path, options] = [fields.get(4)?, fields.get(5)?];
    let kind = fields.iter().skip_while(|field| **field != "-").nth(1)?;
    let read_only = options.split(',').any(|option| option == "ro");
    // These hold no files of jobs.
    let system = ["proc", "sysfs", "cgroup", "cgroup2", "devpts"].contains(kind);
    if read_only || system || folders.iter().any(|folder| folder == Path::new(path)) {
        return None;
    }
    // A folder of a volume may have one below it that is open to all. Below those of the system, only root can write, and the
    // engine's own mounts are files.
    let of_system = ["/dev", "/sys", "/proc"].iter().any(|folder| Path::new(path).starts_with(folder));
    let kind = fs::metadata(path).map(|data| data.file_type());
    let is_folder = kind.as_ref().is_ok_and(|kind| kind.is_dir()) && !of_system;
    let is_device = kind.is_ok_and(|kind| kind.is_char_device());
    let name = std::ffi::CString::new(*path).ok()?;
    // SAFETY: the name ends with a zero.
    let open = is_folder || (!is_device && unsafe { libc::access(name.as_ptr(), libc::W_OK) } == 0);
    open.then(|| (*path).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_filter_is_found() {
        let status = |mode: &str| format!("NoNewPrivs:\t1\nSeccomp:\t{mode}\nSeccomp_filters:\t1\n");
        assert!(has_filter(&status("2")));
        assert!(!has_filter(&status("0")) && !has_filter("NoNewPrivs:\t1\n"));
    }

    #[test]
    fn writable_mounts_are_found() {
        let folders = [PathBuf::from("/work")];
        let writable = |line| writable_mount(line, &folders);
        assert_eq!(writable("72 48 0:39 / / ro,relatime master:2 - overlay overlay rw"), None);
        assert_eq!(writable("72 48 0:39 / / rw,relatime master:2 - overlay overlay rw"), Some("/".into()));
        assert_eq!(writable("89 72 0:48 / /work rw,nosuid - tmpfs tmpfs rw"), None);
        assert_eq!(writable("54 73 0:43 /null /dev/null rw,nosuid - tmpfs tmpfs rw,mode=755"), None);
        assert_eq!(writable("89 72 0:48 / /tmp rw,nosuid - tmpfs tmpfs rw"), Some("/tmp".into()));
        // The root of a volume may be closed and a folder below it open.
        assert_eq!(writable("89 72 0:48 / /usr rw,relatime - ext4 /dev/sda rw"), Some("/usr".into()));
        assert_eq!(writable("89 72 0:48 / /usr ro,relatime - ext4 /dev/sda rw"), None);
        assert_eq!(writable("77 76 0:46 / /sys/fs/cgroup rw - cgroup cgroup rw"), None);
    }
}
