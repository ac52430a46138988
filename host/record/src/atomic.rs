//! Durable changes: files are written aside, synced and renamed; folders are synced after each change of
//! their entries.

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::error::Error;

/// Suffix of temporary files. Their names are `.NAME.RANDOM.partial`.
const PARTIAL: &str = ".partial";

/// Writes `bytes` to `path` atomically: a reader, also after a crash, sees the old file or the new one. Its permissions are
/// those of [`create_partial`].
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut file = create_partial(path).map_err(Error::io("write a temporary file next to", path))?;
    file.write_all(bytes).map_err(Error::io("write", path))?;
    file.as_file().sync_all().map_err(Error::io("sync", path))?;
    file.persist(path).map_err(|e| Error::io("rename to", path)(e.error))?;
    sync_folder(parent(path))
}

/// Creates the temporary file, next to `path`, that is to be renamed to it. A new file has the permissions that the user's mask
/// leaves, as those of all other writers have; one that is replaced keeps its own, except for the bits that set a user or a
/// group.
///
/// # Errors
/// If the path has no file name, or no file can be created in its folder.
pub fn create_partial(path: &Path) -> io::Result<NamedTempFile> {
    let name = path.file_name().ok_or(ErrorKind::InvalidInput)?.to_string_lossy();
    let older = path.metadata().ok().map(|older| Permissions::from_mode(older.permissions().mode() & 0o777));
    let file = tempfile::Builder::new()
        .prefix(&format!(".{name}."))
        .suffix(PARTIAL)
        .permissions(older.clone().unwrap_or(Permissions::from_mode(0o666)))
        .tempfile_in(parent(path))?;
    if let Some(older) = older {
        // The mask does not apply to permissions that the user has set.
        file.as_file().set_permissions(older)?;
    }
    Ok(file)
}

/// Returns the name of the file that a temporary file was to become. Returns `None` for other files.
pub(crate) fn partial_target(name: &str) -> Option<&str> {
    let (target, _random) = name.strip_prefix('.')?.strip_suffix(PARTIAL)?.rsplit_once('.')?;
    Some(target)
}

/// Creates a folder and those above it, durably.
pub(crate) fn create_folder(path: &Path) -> Result<(), Error> {
    if path.is_dir() {
        return Ok(());
    }
    create_folder(parent(path))?;
    match fs::create_dir(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
        created => created.map_err(Error::io("create the folder", path))?,
    }
    sync_folder(parent(path))
}

/// Makes changes of the entries of `folder` durable.
pub fn sync_folder(folder: &Path) -> Result<(), Error> {
    File::open(folder).and_then(|f| f.sync_all()).map_err(Error::io("sync", folder))
}

pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_a_file_and_leaves_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        write_atomically(&path, b"one").unwrap();
        write_atomically(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_new_file_is_as_open_as_others_and_a_replaced_one_as_before() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("a"), folder.path().join("other"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        fs::write(&other, b"by the mask").unwrap();
        write_atomically(&path, b"one").unwrap();
        assert_eq!(mode(&path), mode(&other));
        for (own, kept) in [(0o600, 0o600), (0o666, 0o666), (0o4755, 0o755)] {
            fs::set_permissions(&path, Permissions::from_mode(own)).unwrap();
            write_atomically(&path, b"two").unwrap();
            assert_eq!(mode(&path), kept);
        }
    }

    #[test]
    fn temporary_files_tell_their_target() {
        assert_eq!(partial_target(".000001.jsonl.zst.aB3xYz.partial"), Some("000001.jsonl.zst"));
        for other in ["000001.jsonl.zst", ".hidden", "a.b.partial", ".partial"] {
            assert_eq!(partial_target(other), None, "{other}");
        }
    }
}
