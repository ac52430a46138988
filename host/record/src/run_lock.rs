//! The lock of a run folder: one process at a time writes into it.
//!
//! It is an advisory lock of the operating system on the file `run.lock`. The system releases it when its
//! process ends, whatever ends it. The content of the file is for messages only.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::lock_holder::LockHolder;

/// Name of the locked file in a run folder.
pub(crate) const RUN_LOCK: &str = "run.lock";

/// Largest content of the file that is read for a message.
const LARGEST_CONTENT: u64 = 4096;

/// The lock of a run folder, held until this value is dropped or the process ends.
#[derive(Debug)]
pub struct RunLock {
    root: PathBuf,
    /// Closing the file releases the lock.
    _file: File,
}

impl RunLock {
    /// Locks a folder without waiting.
    ///
    /// # Errors
    /// [`Error::Locked`] with the holder if another process holds the lock; [`Error::Io`] if the file can't
    /// be opened, or the file system has no locks.
    pub(crate) fn acquire(root: &Path) -> Result<RunLock, Error> {
        let path = root.join(RUN_LOCK);
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            // A link in a folder that somebody sent may lead to any file of the user.
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Locked { path: root.to_path_buf(), holder: read_holder(&file) });
            }
            Err(TryLockError::Error(source)) => {
                return Err(Error::io("lock (the file system may have no locks)", &path)(source));
            }
        }
        // A full disk costs only the names in a message.
        let _ = write_holder(&mut file);
        Ok(RunLock { root: root.to_path_buf(), _file: file })
    }

    /// Returns the locked folder.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

fn write_holder(file: &mut File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.write_all(&serde_json::to_vec(&LockHolder::this_process())?)
}

/// Reads the content of a locked file. Returns `None` if its holder has not written it yet.
fn read_holder(file: &File) -> Option<LockHolder> {
    let mut text = String::new();
    file.take(LARGEST_CONTENT).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

/// Returns the process of this machine that holds the lock of a folder. Trying the lock itself could refuse a
/// run that starts at this moment, so the system's list of locks is read instead.
pub(crate) fn find_holder(root: &Path) -> Option<LockHolder> {
    let path = root.join(RUN_LOCK);
    // A pipe would be waited for, and a link may lead anywhere.
    let inode = path.symlink_metadata().ok().filter(|file| file.is_file())?.ino();
    let holder = read_holder(&File::open(&path).ok()?)?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().any(|line| is_lock_of(line, holder.pid, inode)).then_some(holder)
}

/// Returns true for a line such as `1: FLOCK  ADVISORY  WRITE 708 08:02:13240 0 EOF` with this process and inode.
fn is_lock_of(line: &str, pid: u32, inode: u64) -> bool {
    let mut fields = line.split_whitespace().skip(1);
    let (kind, owner, file) = (fields.next(), fields.nth(2), fields.next());
    let locked = file.and_then(|file| file.rsplit(':').next()?.parse::<u64>().ok());
    kind == Some("FLOCK") && owner.and_then(|owner| owner.parse().ok()) == Some(pid) && locked == Some(inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_lock_is_found_without_taking_it() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(find_holder(folder.path()), None);
        let lock = RunLock::acquire(folder.path()).unwrap();
        assert_eq!(find_holder(folder.path()).map(|holder| holder.pid), Some(std::process::id()));
        drop(lock);
        assert_eq!(find_holder(folder.path()), None, "the file is still there, but not locked");
    }

    #[test]
    fn a_second_holder_is_refused_and_learns_of_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let first = RunLock::acquire(folder.path()).unwrap();
        let message = RunLock::acquire(folder.path()).unwrap_err().to_string();
        let expected = format!("process {} on {}", std::process::id(), LockHolder::this_process().host);
        assert!(message.contains(&expected), "{message}");
        assert!(message.contains(&folder.path().display().to_string()), "{message}");
        drop(first);
        RunLock::acquire(folder.path()).unwrap();
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("precious");
        std::fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink(&file, folder.path().join(RUN_LOCK)).unwrap();
        assert!(matches!(RunLock::acquire(folder.path()), Err(Error::Io { .. })));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
    }
}
