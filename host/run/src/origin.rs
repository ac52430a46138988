//! Origin of a run folder: this user on this machine, or somebody else.
//!
//! A user has chosen the workflow file of a new run. A run folder may come from anywhere. Its `workflow.json` names
//! components to load, folders to read and hosts to send requests to, and so does its `workflow.mas`, which is checked again
//! when settings change; `lock.json` has what the user allowed. The file `workflow.json.mac` has their keyed BLAKE3 under a
//! key that each user has. Without it, or if it differs, resuming and replaying ask for consent.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use pl_record::RunFolder;
use walkdir::WalkDir;

use crate::error::Error;
use crate::permissions::PermissionRequest;
use crate::workflow::CheckedWorkflow;

/// Files that decide what a run may use.
const MARKED: [&str; 3] = ["workflow.json", "workflow.mas", "lock.json"];
const MAC: &str = "workflow.json.mac";
/// Links to the best checkpoint, among the checkpoints.
const BEST: [&str; 2] = ["best", "best.new"];
const KEY: &str = "run-folders.key";
const KEY_LENGTH: usize = 32;

/// Reason for which a run folder can't be marked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MarkError {
    /// The user has no folder for the program's state.
    #[error(
        "HOME and XDG_STATE_HOME are not set: the key of this user is kept in the folder that one of them names"
    )]
    NoStateFolder,
    /// The user's key can't be read or written.
    #[error("{}: {source}", path.display())]
    Key { path: PathBuf, source: io::Error },
    /// A file has another length than a key.
    #[error("{} is not a key of this program: remove it, and a new one is made", path.display())]
    NoKey { path: PathBuf },
    /// A file of the run folder can't be read.
    #[error("{}: {source}", path.display())]
    RunFolder { path: PathBuf, source: io::Error },
    /// The mark can't be written. The message names it.
    #[error(transparent)]
    Record(#[from] pl_record::Error),
}

/// Marks a run folder as made by this user.
///
/// # Errors
/// If the user's key or the mark can't be written.
pub(crate) fn mark_as_own(root: &Path) -> Result<(), MarkError> {
    let key = own_key(&state_folder().ok_or(MarkError::NoStateFolder)?)?;
    let mac = mac_of(root, &key)?;
    Ok(pl_record::write_atomically(&root.join(MAC), mac.to_hex().as_bytes())?)
}

/// Returns true if this user made the run folder on this machine, and its workflow and permissions are unchanged.
pub(crate) fn is_own(root: &Path) -> bool {
    let key = state_folder().map(|folder| read_key(&folder.join(KEY)));
    let Some(Ok(Some(key))) = key else { return false };
    let Ok(recorded) = RunFolder::read_text(root, MAC) else { return false };
    let (Ok(recorded), Ok(mac)) = (blake3::Hash::from_hex(recorded), mac_of(root, &key)) else {
        return false;
    };
    // The comparison takes the same time whatever differs.
    recorded == mac
}

/// Checks that a run of somebody else uses nothing beyond its run folder, or only what the user has allowed.
///
/// # Errors
/// [`Error::ForeignRun`] with everything else that the run would use.
pub(crate) fn require_trust(root: &Path, checked: &CheckedWorkflow) -> Result<(), Error> {
    let opens: Vec<String> = checked.refused_permissions().iter().map(PermissionRequest::to_string).collect();
    if opens.is_empty() { Ok(()) } else { Err(Error::ForeignRun { path: root.to_path_buf(), opens }) }
}

/// Checks that the folder of a run has no links, which a resume would write through. The mark of an own run says nothing about
/// them: it may have been somewhere else meanwhile.
///
/// # Errors
/// [`Error::LinkInRun`] with the first one.
pub(crate) fn refuse_links(root: &Path) -> Result<(), Error> {
    let is_link = |entry: &walkdir::DirEntry| entry.path_is_symlink() && entry.depth() > 0;
    // Points from one checkpoint's name to another's folder beside it, which the user may have moved away. A run that was killed
    // leaves a new one.
    let checkpoints = RunFolder::checkpoints(root);
    let is_best = |entry: &walkdir::DirEntry| {
        let target = fs::read_link(entry.path()).unwrap_or_default();
        let mut parts = target.components();
        let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
        let is_other =
            entry.path().with_file_name(&target).symlink_metadata().is_ok_and(|found| !found.is_dir());
        BEST.iter().any(|best| entry.path() == checkpoints.join(best)) && is_name && !is_other
    };
    let mut entries = WalkDir::new(root).into_iter().filter_map(Result::ok);
    match entries.find(|entry| is_link(entry) && !is_best(entry)) {
        Some(link) => Err(Error::LinkInRun { path: root.to_path_buf(), link: link.into_path() }),
        None => Ok(()),
    }
}

fn mac_of(root: &Path, key: &[u8; KEY_LENGTH]) -> Result<blake3::Hash, MarkError> {
    let mut hasher = blake3::Hasher::new_keyed(key);
    for name in MARKED {
        // Hashes have one length, so that no byte passes from one file to the next.
        let mut bytes = blake3::Hasher::new();
        let path = root.join(name);
        let read = File::open(&path).and_then(|file| bytes.update_reader(file).map(drop));
        read.map_err(|source| MarkError::RunFolder { path, source })?;
        hasher.update(bytes.finalize().as_bytes());
    }
    Ok(hasher.finalize())
}

/// Returns the user's key in a folder. Creates it when it is first needed.
fn own_key(folder: &Path) -> Result<[u8; KEY_LENGTH], MarkError> {
    let path = folder.join(KEY);
    let failed = |source| MarkError::Key { path: path.clone(), source };
    if let Some(key) = read_key(&path).map_err(failed)? {
        return Ok(key);
    }
    match write_key(folder, &path).map_err(failed)? {
        Some(key) => Ok(key),
        // Another process was faster.
        None => read_key(&path).map_err(failed)?.ok_or_else(|| MarkError::NoKey { path: path.clone() }),
    }
}

/// Creates a key in a folder. Returns `None` if there is a file.
fn write_key(folder: &Path, path: &Path) -> io::Result<Option<[u8; KEY_LENGTH]>> {
    fs::create_dir_all(folder)?;
    let mut key = [0; KEY_LENGTH];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    // Readable by the user alone, the default of `tempfile`; `write_atomically` would leave it to the umask.
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&key)?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(path) {
        Ok(_) => Ok(Some(key)),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(error.error),
    }
}

/// Reads a key. Returns `None` if there is none.
fn read_key(path: &Path) -> io::Result<Option<[u8; KEY_LENGTH]>> {
    match fs::read(path) {
        Ok(bytes) => Ok(bytes.try_into().ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the folder of the program's state: `pl-host` in `$XDG_STATE_HOME` or in `~/.local/state`. `None` if neither is set.
fn state_folder() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
    Some(base?.join("pl-host"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_key_is_made_once_and_readable_by_its_user_alone() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("pl-host");
        let key = own_key(&folder).unwrap();
        assert_eq!(own_key(&folder).unwrap(), key);
        assert_eq!(fs::metadata(folder.join(KEY)).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(folder.join(KEY), b"short").unwrap();
        let error = own_key(&folder).unwrap_err();
        assert!(matches!(&error, MarkError::NoKey { path } if *path == folder.join(KEY)), "{error}");
    }
}
