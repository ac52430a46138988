//! The state that a learner's process begins a run with, on disk until the process leaves the run.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Beginning of the folders' names.
const PREFIX: &str = "pl-host-learner-";

/// Name of the file that the process of a folder holds locked.
const LOCK: &str = "lock";

/// A temporary folder. Dropping this removes it; what a killed process leaves, the next one on the machine removes.
#[derive(Debug)]
pub(super) struct InitialState {
    folder: TempDir,
    /// Closing the file releases the lock.
    _lock: File,
}

impl InitialState {
    /// Creates a folder among the temporary files, and removes those of processes that were killed.
    pub fn create() -> io::Result<InitialState> {
        InitialState::create_in(&std::env::temp_dir())
    }

    fn create_in(parent: &Path) -> io::Result<InitialState> {
        remove_abandoned(parent);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        // It has its name once it is locked: until then, no other process takes the folder for an abandoned one.
        let unlocked = folder.path().join("lock.new");
        let lock = File::create(&unlocked)?;
        lock.lock()?;
        fs::rename(unlocked, folder.path().join(LOCK))?;
        Ok(InitialState { folder, _lock: lock })
    }

    /// Returns the place of the state.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("state")
    }
}

/// Removes this user's folders whose process was killed.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let folder = entry.path();
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_abandoned(&folder) {
            // What can't be removed costs no more than the room that it took before.
            drop(fs::remove_dir_all(folder));
        }
    }
}

fn is_abandoned(folder: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let is_own = folder.symlink_metadata().is_ok_and(|found| found.is_dir() && found.uid() == user);
    is_own && File::open(folder.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_killed_processes_are_removed_and_no_others() {
        let parent = tempfile::tempdir().unwrap();
        let held = InitialState::create_in(parent.path()).unwrap();
        let killed = parent.path().join(format!("{PREFIX}killed"));
        let (foreign, starting) =
            (parent.path().join("foreign"), parent.path().join(format!("{PREFIX}starting")));
        for folder in [&killed, &foreign, &starting] {
            fs::create_dir(folder).unwrap();
        }
        for folder in [&killed, &foreign] {
            fs::write(folder.join(LOCK), "").unwrap();
        }

        let next = InitialState::create_in(parent.path()).unwrap();
        assert!(!killed.exists());
        for left in [held.folder.path(), next.folder.path(), &foreign, &starting] {
            assert!(left.is_dir(), "{left:?}");
        }
        let path = next.folder.path().to_path_buf();
        drop(next);
        assert!(!path.exists());
    }
}
