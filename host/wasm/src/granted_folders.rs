//! Folders of the host that guests may read. They are read into memory once, so that every guest sees the same content,
//! whatever changes on disk.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use pl_types::{PartHasher, open_file};
use thiserror::Error;
use walkdir::WalkDir;

use crate::memory_budget::MemoryBudget;
use crate::memory_fs::Node;

/// Maximum size of all folders of one grant, in bytes: they are held in memory.
const MAX_BYTES: u64 = 1 << 30;

/// Contents of folders at the time of reading. Cheap to clone; clones share the contents.
#[derive(Debug, Clone)]
pub struct Folders {
    root: Node,
    hashes: BTreeMap<String, String>,
    /// Folders that were read, without links.
    sources: Vec<PathBuf>,
}

/// A folder that can't be granted.
#[derive(Debug, Error)]
pub enum FoldersError {
    /// Missing or unreadable.
    #[error("{}: {source}", path.display())]
    Read {
        /// The folder, or a file in it.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A link or another special file.
    #[error("{} is a link or a special file, and a plugin can only read plain files: replace it by the file itself", path.display())]
    Special {
        /// Path of the special file.
        path: PathBuf,
    },
    /// It exceeds a limit of the guests' file system.
    #[error("{}: {reason} (the maximum is 1 GiB and 10,000 files)", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// The exceeded limit.
        reason: String,
    },
}

impl Folders {
    /// Reads folders, each with a name: a guest finds it at `/NAME`.
    ///
    /// # Errors
    /// The first file or folder that can't be granted.
    pub fn read<'f>(folders: impl IntoIterator<Item = (&'f str, &'f Path)>) -> Result<Self, FoldersError> {
        let root = Node::root(MemoryBudget::new(MAX_BYTES))
            .map_err(|error| FoldersError::Refused { path: PathBuf::new(), reason: error.to_string() })?;
        let (mut hashes, mut sources) = (BTreeMap::new(), Vec::new());
        for (name, folder) in folders {
            // A link instead of the folder itself is the user's choice; one inside it may lead anywhere.
            let real =
                folder.canonicalize().map_err(|source| FoldersError::Read { path: folder.into(), source })?;
            hashes.insert(name.to_owned(), copy_folder(&root, name, &real)?);
            sources.push(real);
        }
        root.freeze();
        Ok(Self { root, hashes, sources })
    }

    /// Returns the folders that were read, absolute and without links. A folder that was checked before may have become a
    /// link to another one since.
    pub fn sources(&self) -> &[PathBuf] {
        &self.sources
    }

    /// BLAKE3 of each folder's paths and contents in hexadecimal, by name.
    pub fn hashes(&self) -> &BTreeMap<String, String> {
        &self.hashes
    }

    pub(crate) fn root(&self) -> &Node {
        &self.root
    }
}

/// Copies a folder's files to `/name` and returns the hash of all of them. Its path has no links.
fn copy_folder(root: &Node, name: &str, folder: &Path) -> Result<String, FoldersError> {
    let mut hasher = PartHasher::content();
    for entry in WalkDir::new(folder).sort_by_file_name() {
        let entry = entry.map_err(|error| FoldersError::Read {
            path: error.path().unwrap_or(folder).to_owned(),
            source: error.into(),
        })?;
        let path = entry.path();
        let below = path.strip_prefix(folder).unwrap_or(path);
        let refused = |reason: String| FoldersError::Refused { path: path.to_owned(), reason };
        let text = below.to_str().ok_or_else(|| refused("its name is not UTF-8".to_owned()))?;
        let inside = format!("{name}/{text}");
        if entry.file_type().is_dir() {
            root.create_folder(inside.trim_end_matches('/')).map_err(|e| refused(e.to_string()))?;
        } else if entry.file_type().is_file() {
            let bytes = read_in_place(path)?;
            hasher = hasher.text(text).bytes(&bytes);
            root.put(&inside, &bytes).map_err(|e| refused(e.to_string()))?;
        } else {
            return Err(FoldersError::Special { path: path.to_owned() });
        }
    }
    Ok(hasher.hex())
}

/// Reads a file whose path has no links. It, or a folder on the way to it, may have become one since.
fn read_in_place(path: &Path) -> Result<Vec<u8>, FoldersError> {
    let failed = |source| FoldersError::Read { path: path.to_owned(), source };
    let mut file = open_file(path).map_err(failed)?;
    if opened_path(&file).map_err(failed)? != path {
        return Err(FoldersError::Special { path: path.to_owned() });
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Returns the path of an open file, without links: what was opened, whatever the path that it was opened by leads to now.
///
/// # Errors
/// If `/proc` is not mounted.
pub fn opened_path(file: &File) -> io::Result<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_fs::FsError;

    #[test]
    fn a_folder_is_read_completely_and_is_read_only() {
        let disk = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(disk.path().join("a/b")).unwrap();
        std::fs::write(disk.path().join("a/b/one.txt"), "1").unwrap();
        std::fs::write(disk.path().join("two.txt"), "22").unwrap();
        let folders = Folders::read([("data", disk.path())]).unwrap();
        let root = folders.root();
        assert_eq!(root.find("/data/a/b/one.txt").unwrap().file().unwrap().read(0, 9), b"1");
        let two = root.find("data/two.txt").unwrap();
        assert_eq!(two.file().unwrap().write(0, b"x"), Err(FsError::ReadOnly));
        assert_eq!(two.file().unwrap().resize(0), Err(FsError::ReadOnly));
        assert_eq!(root.create_file("data/new", false).err(), Some(FsError::ReadOnly));
        assert_eq!(root.create_folder("new").err(), Some(FsError::ReadOnly));
        assert_eq!(root.remove_file("data/two.txt"), Err(FsError::ReadOnly));
        assert_eq!(root.rename("data/two.txt", root, "two.txt"), Err(FsError::ReadOnly));
        // Later changes on disk are invisible, and change the hash.
        std::fs::write(disk.path().join("two.txt"), "23").unwrap();
        assert_eq!(two.file().unwrap().read(0, 9), b"22");
        let again = Folders::read([("data", disk.path())]).unwrap();
        assert_ne!(again.hashes(), folders.hashes());
    }

    #[test]
    fn links_out_of_a_folder_are_refused() {
        let disk = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", disk.path().join("etc")).unwrap();
        let refused = Folders::read([("data", disk.path())]).unwrap_err();
        assert!(matches!(refused, FoldersError::Special { .. }), "{refused}");
        // One that comes between the list of the folder and the reading.
        let path = disk.path().canonicalize().unwrap().join("a/b");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("passwd"), "own").unwrap();
        assert_eq!(read_in_place(&path.join("passwd")).unwrap(), b"own");
        std::fs::remove_dir_all(&path).unwrap();
        std::os::unix::fs::symlink("/etc", &path).unwrap();
        assert!(std::fs::read(path.join("passwd")).is_ok(), "without the check, it is read");
        let refused = read_in_place(&path.join("passwd")).unwrap_err();
        assert!(matches!(refused, FoldersError::Special { .. }), "{refused}");
        let gone = Folders::read([("data", disk.path().join("gone").as_path())]).unwrap_err();
        assert!(matches!(gone, FoldersError::Read { .. }), "{gone}");
    }
}
