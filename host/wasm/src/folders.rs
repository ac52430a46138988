//! Folders of the host that guests may read: taken in once, and then the same to every guest, whatever becomes of
//! the disk.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use thiserror::Error;
use walkdir::WalkDir;

use crate::files::Node;

/// Most bytes of all folders of one grant: they are held in memory.
const MOST_BYTES: u64 = 1 << 30;

/// Folders as they were when they were read. Cheap to clone; clones share the contents.
#[derive(Debug, Clone)]
pub struct Folders {
    root: Node,
    hashes: BTreeMap<String, String>,
}

/// A folder that can't be granted.
#[derive(Debug, Error)]
pub enum FoldersError {
    /// It is not there, or may not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The folder, or what is in it.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
    /// Something other than a file or a folder.
    #[error("{} is a link or a special file, and a plugin reads plain files alone: put the file itself there", path.display())]
    Special {
        /// It.
        path: PathBuf,
    },
    /// It does not fit into the file system that guests see.
    #[error("{}: {reason} (1 GiB and 10,000 files are the most)", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl Folders {
    /// Reads folders, each under a name: a guest finds it at `/NAME`.
    ///
    /// # Errors
    /// The first file or folder that can't be granted.
    pub fn read<'f>(folders: impl IntoIterator<Item = (&'f str, &'f Path)>) -> Result<Self, FoldersError> {
        let root = Node::root(MOST_BYTES);
        let mut hashes = BTreeMap::new();
        for (name, folder) in folders {
            hashes.insert(name.to_owned(), take_in(&root, name, folder)?);
        }
        root.freeze();
        Ok(Self { root, hashes })
    }

    /// BLAKE3 of each folder's paths and contents, in hexadecimal, by its name.
    pub fn hashes(&self) -> &BTreeMap<String, String> {
        &self.hashes
    }

    pub(crate) fn root(&self) -> &Node {
        &self.root
    }
}

/// Puts a folder's files below `/name`. Returns the hash of all of it.
fn take_in(root: &Node, name: &str, folder: &Path) -> Result<String, FoldersError> {
    let mut hasher = blake3::Hasher::new();
    let mut hash = |part: &[u8]| {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    };
    // A link in the folder's own place is its owner's choice; one inside it may lead anywhere.
    let real = folder.canonicalize().map_err(|source| FoldersError::Read { path: folder.into(), source })?;
    for entry in WalkDir::new(&real).sort_by_file_name() {
        let entry = entry.map_err(|error| FoldersError::Read {
            path: error.path().unwrap_or(folder).to_owned(),
            source: error.into(),
        })?;
        let path = entry.path();
        let below = path.strip_prefix(&real).unwrap_or(path);
        let refused = |reason: String| FoldersError::Refused { path: path.to_owned(), reason };
        let text = below.to_str().ok_or_else(|| refused("its name is not UTF-8".to_owned()))?;
        let inside = format!("{name}/{text}");
        if entry.file_type().is_dir() {
            root.create_folder(inside.trim_end_matches('/')).map_err(|e| refused(e.to_string()))?;
        } else if entry.file_type().is_file() {
            let bytes =
                std::fs::read(path).map_err(|source| FoldersError::Read { path: path.to_owned(), source })?;
            hash(text.as_bytes());
            hash(&bytes);
            root.put(&inside, &bytes).map_err(|e| refused(e.to_string()))?;
        } else {
            return Err(FoldersError::Special { path: path.to_owned() });
        }
    }
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Failure;

    #[test]
    fn a_folder_is_read_whole_and_can_not_be_changed() {
        let disk = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(disk.path().join("a/b")).unwrap();
        std::fs::write(disk.path().join("a/b/one.txt"), "1").unwrap();
        std::fs::write(disk.path().join("two.txt"), "22").unwrap();
        let folders = Folders::read([("data", disk.path())]).unwrap();
        let root = folders.root();
        assert_eq!(root.find("/data/a/b/one.txt").unwrap().file().unwrap().read(0, 9), b"1");
        let two = root.find("data/two.txt").unwrap();
        assert_eq!(two.file().unwrap().write(0, b"x"), Err(Failure::ReadOnly));
        assert_eq!(two.file().unwrap().resize(0), Err(Failure::ReadOnly));
        assert_eq!(root.create_file("data/new", false).err(), Some(Failure::ReadOnly));
        assert_eq!(root.create_folder("new").err(), Some(Failure::ReadOnly));
        assert_eq!(root.remove_file("data/two.txt"), Err(Failure::ReadOnly));
        assert_eq!(root.rename("data/two.txt", root, "two.txt"), Err(Failure::ReadOnly));
        // Later changes of the disk are not seen, and the hash tells them.
        std::fs::write(disk.path().join("two.txt"), "23").unwrap();
        assert_eq!(two.file().unwrap().read(0, 9), b"22");
        let again = Folders::read([("data", disk.path())]).unwrap();
        assert_ne!(again.hashes(), folders.hashes());
    }

    #[test]
    fn what_leads_out_of_a_folder_is_refused() {
        let disk = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/etc", disk.path().join("etc")).unwrap();
        let refused = Folders::read([("data", disk.path())]).unwrap_err();
        assert!(matches!(refused, FoldersError::Special { .. }), "{refused}");
        let gone = Folders::read([("data", disk.path().join("gone").as_path())]).unwrap_err();
        assert!(matches!(gone, FoldersError::Read { .. }), "{gone}");
    }
}
