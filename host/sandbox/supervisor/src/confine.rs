//! What this process gives up before it serves, and the check that the container holds what it promises.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::confine::filter::Filter;

pub mod filter;

/// Closes this process to others of its user and takes from itself, and so from all jobs, what no job needs.
///
/// # Errors
/// What the kernel refused. A container without it must not run jobs.
pub fn this_process() -> Result<(), String> {
    let failed = |what: &str| format!("{what}: {}", std::io::Error::last_os_error());
    // SAFETY: the only memory involved are limits that live through the calls.
    unsafe {
        if libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) != 0 {
            return Err(failed("it can't close its memory to others"));
        }
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(failed("it can't rule out new privileges"));
        }
        // A signal without a handler does nothing to PID 1. Rust's runtime handles these two.
        libc::signal(libc::SIGSEGV, libc::SIG_DFL);
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        let files = libc::rlimit { rlim_cur: 1024, rlim_max: 1024 };
        if libc::setrlimit(libc::RLIMIT_CORE, &none) != 0 || libc::setrlimit(libc::RLIMIT_NOFILE, &files) != 0
        {
            return Err(failed("it can't limit files"));
        }
    }
    Filter::of_jobs().install().map_err(|error| format!("it can't filter system calls: {error}"))
}

/// Whether the container is as closed as it should be; the error says where it is not.
pub fn check(folders: &[PathBuf]) -> Result<(), String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
    // SAFETY: no memory is involved.
    if unsafe { libc::getuid() } == 0 {
        return Err("it runs as root".to_owned());
    }
    let status = read("/proc/self/status")?;
    let capable = status.lines().any(|line| {
        line.starts_with("Cap")
            && line.split('\t').nth(1).is_none_or(|set| set.contains(|digit| digit != '0'))
    });
    if capable {
        return Err("it has capabilities".to_owned());
    }
    let interfaces = read("/proc/net/dev")?;
    if interfaces.lines().skip(2).any(|line| !line.trim_start().starts_with("lo:")) {
        return Err("it has a network".to_owned());
    }
    match read("/proc/self/mountinfo")?.lines().find_map(|line| writable(line, folders)) {
        Some(place) => Err(format!("{place} is writable")),
        None => Ok(()),
    }
}

/// The place of a mount that jobs could leave something in, though it is none of the folders.
fn writable(line: &str, folders: &[PathBuf]) -> Option<String> {
    let fields: Vec<&str> = line.split(' ').collect();
    let [place, options] = [fields.get(4)?, fields.get(5)?];
    let kind = fields.iter().skip_while(|field| **field != "-").nth(1)?;
    let closed = options.split(',').any(|option| option == "ro");
    // These hold no files of jobs.
    let system = ["proc", "sysfs", "cgroup", "cgroup2", "devpts"].contains(kind);
    if closed || system || folders.iter().any(|folder| folder == Path::new(place)) {
        return None;
    }
    let device = fs::metadata(place).is_ok_and(|data| data.file_type().is_char_device());
    let name = std::ffi::CString::new(*place).ok()?;
    // SAFETY: the name ends with a zero.
    let open = *place == "/" || (!device && unsafe { libc::access(name.as_ptr(), libc::W_OK) } == 0);
    open.then(|| (*place).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writable_mounts_are_found() {
        let folders = [PathBuf::from("/work")];
        let at = |line| writable(line, &folders);
        assert_eq!(at("72 48 0:39 / / ro,relatime master:2 - overlay overlay rw"), None);
        assert_eq!(at("72 48 0:39 / / rw,relatime master:2 - overlay overlay rw"), Some("/".into()));
        assert_eq!(at("89 72 0:48 / /work rw,nosuid - tmpfs tmpfs rw"), None);
        assert_eq!(at("54 73 0:43 /null /dev/null rw,nosuid - tmpfs tmpfs rw,mode=755"), None);
        assert_eq!(at("89 72 0:48 / /tmp rw,nosuid - tmpfs tmpfs rw"), Some("/tmp".into()));
        assert_eq!(at("77 76 0:46 / /sys/fs/cgroup rw - cgroup cgroup rw"), None);
    }
}
