//! The cache folder: downloads and slow builds, shared by all projects and checkouts of a user.
//!
//! Programs in it are run. It must not be writable by others, and a folder in it is used only if it is
//! complete.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Permission bits with which others than the owner may write.
const WRITABLE_BY_OTHERS: u32 = 0o022;

/// Suffix of the list of a folder's files, which is beside it: their sizes by relative path, in JSON.
const FILES: &str = ".files";

/// Variable that names the cache folder.
const VARIABLE: &str = "PL_HOST_CACHE";

/// Permission bits of folders that are created: under some umasks, groups could write into them.
const MODE: u32 = 0o755;

/// Returns `$PL_HOST_CACHE`, or `pl-host` in the user's cache folder. It is created if it is missing and can be. Only its owner
/// can write into it: a folder of the user's choice, which others may share, is never changed for it, but the default one is.
///
/// # Errors
/// [`Error::Input`] if no environment variable names such a folder, if it is not a folder, or if another user may write into it.
pub fn root() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let chosen = variable(VARIABLE);
    let is_chosen = chosen.is_some();
    let root = chosen
        .or_else(|| variable("XDG_CACHE_HOME").map(|p| p.join("pl-host")))
        .or_else(|| variable("HOME").map(|p| p.join(".cache/pl-host")))
        .ok_or_else(|| Error::Input(format!("no cache folder is known: set HOME or {VARIABLE}")))?;
    prepare(&root, is_chosen)?;
    Ok(root)
}

/// Creates the cache folder if it is missing, and checks that only its owner can write into it.
fn prepare(root: &Path, is_chosen: bool) -> Result<()> {
    if !root.exists() {
        // Commands that write into it report a failure.
        let _ = DirBuilder::new().recursive(true).mode(MODE).create(root);
    } else if !root.is_dir() {
        let name =
            if is_chosen { format!("{VARIABLE} ({})", root.display()) } else { root.display().to_string() };
        return Err(Error::Input(format!(
            "{name} is not a folder: set {VARIABLE} to one that you can write to"
        )));
    }
    if is_chosen { check_private(root) } else { make_private(root) }
}

/// Returns a folder of the cache whose files are run as programs, such as compiled components. If it exists,
/// only its owner can write into it afterwards.
///
/// # Errors
/// Those of [`root`].
pub fn private(name: &str) -> Result<PathBuf> {
    let folder = root()?.join(name);
    make_private(&folder)?;
    Ok(folder)
}

/// Takes the permission to write from all but the owner of a folder of this program, if this user owns it.
///
/// # Errors
/// [`Error::Input`] if another user owns it, or may write into it.
fn make_private(folder: &Path) -> Result<()> {
    let Ok(found) = folder.metadata() else { return Ok(()) };
    if found.uid() == rustix::process::geteuid().as_raw() && found.mode() & WRITABLE_BY_OTHERS != 0 {
        let mode = found.mode() & !WRITABLE_BY_OTHERS;
        fs::set_permissions(folder, Permissions::from_mode(mode))
            .map_err(Error::io("change the permissions of", folder))?;
    }
    check_private(folder)
}

/// Checks that only this user, or root, owns a folder and can write into it. A missing one is fine.
///
/// # Errors
/// [`Error::Input`].
fn check_private(folder: &Path) -> Result<()> {
    let Ok(found) = folder.metadata() else { return Ok(()) };
    let user = rustix::process::geteuid();
    let is_trusted = found.uid() == user.as_raw() || found.uid() == 0 || user.is_root();
    if is_trusted && found.mode() & WRITABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    Err(Error::Input(format!(
        "the cache folder {0} can be written by other users, who could change the programs in it; run `chmod go-w {0}` if \
         it is yours, or set {VARIABLE} to a folder that only you can write to",
        folder.display()
    )))
}

/// Returns the folder of a fetched tool.
pub(crate) fn tool(name: &str, version: &str) -> Result<PathBuf> {
    Ok(root()?.join("toolchains").join(format!("{name}-{version}")))
}

/// Creates the folder `path` of the cache with the content that `fill` writes to the folder it receives.
/// `path` appears only if `fill` succeeds, and survives a power loss. Does nothing if `path` exists with all
/// of its files. Of several processes that create it at a time, one does and the others wait for it.
///
/// # Errors
/// Errors of `fill` and of the file system.
pub fn folder<E: From<Error>>(
    path: &Path,
    fill: impl FnOnce(&Path) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    if is_complete(path) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
    }
    let lock = with_suffix(path, ".lock");
    let lock =
        File::create(&lock).and_then(|file| file.lock().map(|()| file)).map_err(Error::io("lock", &lock))?;
    // Another process may have created it meanwhile.
    if !is_complete(path) {
        create_aside(path, fill)?;
    }
    drop(lock);
    Ok(())
}

/// Creates a folder under another name, records its files, and renames it. Replaces an incomplete folder.
fn create_aside<E: From<Error>>(
    path: &Path,
    fill: impl FnOnce(&Path) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    let partial = with_suffix(path, ".partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(Error::io("remove", &partial))?;
    }
    fs::create_dir_all(&partial).map_err(Error::io("create", &partial))?;
    if let Err(error) = fill(&partial) {
        // The next process removes it if this one can't.
        let _ = fs::remove_dir_all(&partial);
        return Err(error);
    }
    let list = with_suffix(path, FILES);
    let files = serde_json::to_vec(&file_sizes(&partial)?)
        .map_err(|error| Error::failed(format!("cannot list the files of {}: {error}", path.display())))?;
    fs::write(&list, files).map_err(Error::io("write", &list))?;
    // One call for all files: some tools have twenty thousand.
    sync_file_system(&partial)?;
    if path.exists() {
        fs::remove_dir_all(path).map_err(Error::io("remove", path))?;
    }
    fs::rename(&partial, path).map_err(Error::io("write", path))?;
    Ok(sync_file_system(path)?)
}

/// Returns true if a folder exists with all files that were recorded when it was created. Folders of earlier
/// versions have no such record.
fn is_complete(path: &Path) -> bool {
    let Ok(recorded) = fs::read(with_suffix(path, FILES)) else { return path.is_dir() };
    let Ok(recorded) = serde_json::from_slice::<BTreeMap<PathBuf, u64>>(&recorded) else { return false };
    path.is_dir()
        && recorded
            .iter()
            .all(|(name, size)| path.join(name).metadata().is_ok_and(|file| file.len() == *size))
}

/// Returns the size of each file below a folder by its relative path. Links are not followed.
fn file_sizes(root: &Path) -> Result<BTreeMap<PathBuf, u64>> {
    let mut sizes = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::io("read", &folder))? {
            let path = entry.map_err(Error::io("read", &folder))?.path();
            let found = path.symlink_metadata().map_err(Error::io("read", &path))?;
            if found.is_dir() {
                folders.push(path);
            } else if found.is_file() {
                sizes.insert(path.strip_prefix(root).unwrap_or(&path).to_path_buf(), found.len());
            }
        }
    }
    Ok(sizes)
}

/// Makes everything that was written to the file system of `path` durable.
fn sync_file_system(path: &Path) -> Result<()> {
    let file = File::open(path).map_err(Error::io("read", path))?;
    rustix::fs::syncfs(file).map_err(|error| Error::io("sync", path)(error.into()))
}

/// Returns the path with a suffix at its name.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn fill(partial: &Path) -> Result<()> {
        fs::create_dir(partial.join("bin")).map_err(Error::io("create", partial))?;
        fs::write(partial.join("bin/tool"), "tool").map_err(Error::io("write", partial))
    }

    #[test]
    fn a_damaged_folder_is_created_again() {
        let cache = tempfile::tempdir().unwrap();
        let path = cache.path().join("tools/tool-1");
        folder(&path, fill).unwrap();
        folder(&path, |_| -> Result<()> { panic!("it is complete") }).unwrap();
        // A power loss without a sync leaves an empty file, a cleaner of old files none.
        fs::write(path.join("bin/tool"), "").unwrap();
        folder(&path, fill).unwrap();
        assert_eq!(fs::read_to_string(path.join("bin/tool")).unwrap(), "tool");
        fs::remove_file(path.join("bin/tool")).unwrap();
        folder(&path, fill).unwrap();
        assert_eq!(fs::read_to_string(path.join("bin/tool")).unwrap(), "tool");
    }

    #[test]
    fn a_failure_leaves_no_folder() {
        let cache = tempfile::tempdir().unwrap();
        let path = cache.path().join("tool-1");
        folder(&path, |_| Err(Error::failed("no network"))).unwrap_err();
        assert!(!path.exists());
        folder(&path, fill).unwrap();
    }

    #[test]
    fn of_several_set_ups_one_creates_the_folder() {
        let cache = tempfile::tempdir().unwrap();
        let path = cache.path().join("tool-1");
        let (filled, busy) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let slow = |partial: &Path| {
                        assert_eq!(busy.fetch_add(1, Ordering::SeqCst), 0, "two fill the same folder");
                        std::thread::sleep(std::time::Duration::from_millis(50));
                        busy.fetch_sub(1, Ordering::SeqCst);
                        filled.fetch_add(1, Ordering::SeqCst);
                        fill(partial)
                    };
                    folder(&path, slow).unwrap();
                });
            }
        });
        assert_eq!(filled.into_inner(), 1);
    }

    #[test]
    fn the_default_cache_is_writable_by_its_owner_alone() {
        let cache = tempfile::tempdir().unwrap();
        let mode = || cache.path().metadata().unwrap().mode() & 0o777;
        fs::set_permissions(cache.path(), Permissions::from_mode(0o777)).unwrap();
        prepare(cache.path(), false).unwrap();
        assert_eq!(mode(), 0o755);
        make_private(&cache.path().join("missing")).unwrap();
        // A folder that everybody shares.
        if Path::new("/tmp").metadata().is_ok_and(|tmp| tmp.uid() != rustix::process::geteuid().as_raw()) {
            assert!(make_private(Path::new("/tmp")).unwrap_err().to_string().contains("PL_HOST_CACHE"));
        }
    }

    #[test]
    fn a_chosen_cache_that_others_may_write_into_is_refused_and_stays_as_it_is() {
        let shared = tempfile::tempdir().unwrap();
        for shared_mode in [0o1777, 0o2775, 0o777] {
            fs::set_permissions(shared.path(), Permissions::from_mode(shared_mode)).unwrap();
            let error = prepare(shared.path(), true).unwrap_err().to_string();
            assert!(error.contains("can be written by other users"), "{error}");
            assert_eq!(shared.path().metadata().unwrap().mode() & 0o7777, shared_mode);
        }
        let missing = shared.path().join("made/cache");
        prepare(&missing, true).unwrap();
        assert_eq!(missing.metadata().unwrap().mode() & WRITABLE_BY_OTHERS, 0);
        let file = shared.path().join("file");
        fs::write(&file, "").unwrap();
        let error = prepare(&file, true).unwrap_err().to_string();
        assert!(error.starts_with("PL_HOST_CACHE (") && error.contains("is not a folder"), "{error}");
    }
}
