//! A guest's file system in memory.
//!
//! It never touches the host's disk, counts against a limit, and is dropped with the guest. Names are listed in order and
//! ids are assigned in order, so that equal programs see equal file systems.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use thiserror::Error;

/// Errors of file operations: the subset of POSIX that can occur here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum FsError {
    #[error("it already exists")]
    Exists,
    #[error("the path is invalid")]
    Invalid,
    #[error("it is a folder")]
    IsFolder,
    #[error("there is no such file or folder")]
    NoEntry,
    #[error("the limit on the size or number of files is reached")]
    NoSpace,
    #[error("a part of the path is a file")]
    NotFolder,
    #[error("the folder is not empty")]
    NotEmpty,
    #[error("the path leads out of its folder")]
    Outside,
    #[error("it is read-only")]
    ReadOnly,
}

/// Maximum number of files and folders: each costs host memory in addition to its content.
const MAX_NODES: u64 = 10_000;

/// Limits and counters that all nodes of a file system share.
#[derive(Debug)]
struct Budget {
    /// Maximum size of all files together, in bytes.
    limit: u64,
    used: AtomicU64,
    nodes: AtomicU64,
    next_id: AtomicU64,
    /// True if the file system is read-only.
    frozen: AtomicBool,
}

/// A file or folder. Clones refer to the same node.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    File(Arc<File>),
    Folder(Arc<Folder>),
}

#[derive(Debug)]
pub(crate) struct File {
    id: u64,
    bytes: Mutex<Vec<u8>>,
    budget: Arc<Budget>,
}

#[derive(Debug)]
pub(crate) struct Folder {
    id: u64,
    entries: Mutex<BTreeMap<String, Node>>,
    budget: Arc<Budget>,
}

impl Budget {
    fn writable(&self) -> Result<(), FsError> {
        if self.frozen.load(Ordering::Relaxed) { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    fn id(&self) -> Result<u64, FsError> {
        if self.nodes.fetch_add(1, Ordering::Relaxed) >= MAX_NODES {
            self.nodes.fetch_sub(1, Ordering::Relaxed);
            return Err(FsError::NoSpace);
        }
        Ok(self.next_id.fetch_add(1, Ordering::Relaxed))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let size = lock(&self.bytes).len() as u64;
        self.budget.used.fetch_sub(size, Ordering::Relaxed);
        self.budget.nodes.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Folder {
    /// Drops the tree below in a loop, because a guest may nest folders more deeply than the host's stack allows.
    fn drop(&mut self) {
        self.budget.nodes.fetch_sub(1, Ordering::Relaxed);
        let mut open: Vec<Node> = self.take_entries().collect();
        while let Some(node) = open.pop() {
            if let Node::Folder(folder) = node
                && let Some(last) = Arc::into_inner(folder)
            {
                open.extend(last.take_entries());
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    /// Creates an empty file system of at most `limit` bytes and returns its root.
    pub(crate) fn root(limit: u64) -> Self {
        let budget = Budget {
            limit,
            used: AtomicU64::new(0),
            nodes: AtomicU64::new(1),
            next_id: AtomicU64::new(1),
            frozen: AtomicBool::new(false),
        };
        Self::Folder(Arc::new(Folder { id: 0, entries: Mutex::default(), budget: Arc::new(budget) }))
    }

    /// Makes the file system read-only.
    pub(crate) fn freeze(&self) {
        self.budget().frozen.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.budget().writable().is_err()
    }

    fn budget(&self) -> &Budget {
        match self {
            Self::File(file) => &file.budget,
            Self::Folder(folder) => &folder.budget,
        }
    }

    /// Id of the node, never reused within the file system.
    pub(crate) fn id(&self) -> u64 {
        match self {
            Self::File(file) => file.id,
            Self::Folder(folder) => folder.id,
        }
    }

    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::File(file) => lock(&file.bytes).len() as u64,
            Self::Folder(_) => 0,
        }
    }

    pub(crate) fn file(&self) -> Result<&Arc<File>, FsError> {
        match self {
            Self::File(file) => Ok(file),
            Self::Folder(_) => Err(FsError::IsFolder),
        }
    }

    pub(crate) fn folder(&self) -> Result<&Arc<Folder>, FsError> {
        match self {
            Self::Folder(folder) => Ok(folder),
            Self::File(_) => Err(FsError::NotFolder),
        }
    }

    /// Returns the node at a path relative to this one.
    pub(crate) fn find(&self, path: &str) -> Result<Self, FsError> {
        // Folders on the way, for `..`.
        let mut trail = vec![self.clone()];
        for part in parts(path) {
            let here = trail.last().ok_or(FsError::Outside)?;
            let folder = here.folder()?;
            if part == ".." {
                trail.pop();
                if trail.is_empty() {
                    return Err(FsError::Outside);
                }
            } else {
                let next = lock(&folder.entries).get(part).cloned().ok_or(FsError::NoEntry)?;
                trail.push(next);
            }
        }
        trail.pop().ok_or(FsError::Outside)
    }

    /// Returns the folder that contains the last part of a path, and that part.
    fn parent<'p>(&self, path: &'p str) -> Result<(Arc<Folder>, &'p str), FsError> {
        let path = path.trim_end_matches('/');
        let (before, name) = path.rsplit_once('/').unwrap_or(("", path));
        if matches!(name, "" | "." | "..") {
            return Err(FsError::Invalid);
        }
        Ok((Arc::clone(self.find(before)?.folder()?), name))
    }

    /// Creates an empty file, or returns the existing node unless `exclusive`.
    pub(crate) fn create_file(&self, path: &str, exclusive: bool) -> Result<Self, FsError> {
        let (folder, name) = self.parent(path)?;
        let mut entries = lock(&folder.entries);
        if let Some(existing) = entries.get(name) {
            return if exclusive { Err(FsError::Exists) } else { Ok(existing.clone()) };
        }
        folder.budget.writable()?;
        let budget = Arc::clone(&folder.budget);
        let file = Self::File(Arc::new(File { id: budget.id()?, bytes: Mutex::default(), budget }));
        entries.insert(name.to_owned(), file.clone());
        Ok(file)
    }

    pub(crate) fn create_folder(&self, path: &str) -> Result<(), FsError> {
        let (folder, name) = self.parent(path)?;
        let mut entries = lock(&folder.entries);
        if entries.contains_key(name) {
            return Err(FsError::Exists);
        }
        folder.budget.writable()?;
        let budget = Arc::clone(&folder.budget);
        let made = Folder { id: budget.id()?, entries: Mutex::default(), budget };
        entries.insert(name.to_owned(), Self::Folder(Arc::new(made)));
        Ok(())
    }

    /// Writes a file at a path and creates the folders on the way.
    pub(crate) fn put(&self, path: &str, bytes: &[u8]) -> Result<(), FsError> {
        let folders = path.match_indices('/').map(|(at, _)| &path[..at]);
        for folder in folders.filter(|folder| parts(folder).next().is_some()) {
            match self.create_folder(folder) {
                Ok(()) | Err(FsError::Exists | FsError::Invalid) => {}
                Err(failure) => return Err(failure),
            }
        }
        let file = self.create_file(path, false)?;
        file.file()?.resize(0)?;
        file.file()?.write(0, bytes)
    }

    pub(crate) fn remove_file(&self, path: &str) -> Result<(), FsError> {
        let (folder, name) = self.parent(path)?;
        let mut entries = lock(&folder.entries);
        entries.get(name).ok_or(FsError::NoEntry)?.file()?;
        folder.budget.writable()?;
        entries.remove(name);
        Ok(())
    }

    pub(crate) fn remove_folder(&self, path: &str) -> Result<(), FsError> {
        let (folder, name) = self.parent(path)?;
        let mut entries = lock(&folder.entries);
        let node = entries.get(name).ok_or(FsError::NoEntry)?;
        if !lock(&node.folder()?.entries).is_empty() {
            return Err(FsError::NotEmpty);
        }
        folder.budget.writable()?;
        entries.remove(name);
        Ok(())
    }

    /// Moves a node. Replaces an existing file, or an empty folder if the node is a folder.
    pub(crate) fn rename(&self, from: &str, target: &Self, to: &str) -> Result<(), FsError> {
        let node = self.find(from)?;
        let (old, old_name) = self.parent(from)?;
        let (new, new_name) = target.parent(to)?;
        old.budget.writable()?;
        new.budget.writable()?;
        if let Self::Folder(moved) = &node
            && moved.contains(new.id)
        {
            // A folder can't go into itself.
            return Err(FsError::Invalid);
        }
        let existing = lock(&new.entries).get(new_name).cloned();
        match (&node, existing) {
            (_, Some(same)) if same.id() == node.id() => return Ok(()),
            (Self::File(_), Some(Self::Folder(_))) => return Err(FsError::IsFolder),
            (Self::Folder(_), Some(Self::File(_))) => return Err(FsError::NotFolder),
            (Self::Folder(_), Some(Self::Folder(folder))) if !lock(&folder.entries).is_empty() => {
                return Err(FsError::NotEmpty);
            }
            _ => {}
        }
        lock(&old.entries).remove(old_name);
        lock(&new.entries).insert(new_name.to_owned(), node);
        Ok(())
    }
}

impl Folder {
    /// Names and nodes in order.
    pub(crate) fn list(&self) -> Vec<(String, Node)> {
        lock(&self.entries).iter().map(|(name, node)| (name.clone(), node.clone())).collect()
    }

    fn take_entries(&self) -> impl Iterator<Item = Node> + use<> {
        std::mem::take(&mut *lock(&self.entries)).into_values()
    }

    /// Returns true if the folder with this id is this one or one below it.
    fn contains(&self, id: u64) -> bool {
        let mut open: Vec<Node> = Vec::new();
        let extend = |folder: &Folder, open: &mut Vec<Node>| {
            open.extend(lock(&folder.entries).values().cloned());
            folder.id == id
        };
        let mut found = extend(self, &mut open);
        while let Some(node) = open.pop() {
            if let Node::Folder(folder) = node {
                found |= extend(&folder, &mut open);
            }
        }
        found
    }
}

impl File {
    /// Reads at most `length` bytes from `offset`. Returns nothing at the end.
    pub(crate) fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let bytes = lock(&self.bytes);
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let end = start.saturating_add(length).min(bytes.len());
        bytes[start..end].to_vec()
    }

    /// Writes at `offset` and fills a gap after the end with zeros.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<(), FsError> {
        self.budget.writable()?;
        let end = offset.checked_add(data.len() as u64).ok_or(FsError::NoSpace)?;
        if end > self.len() {
            self.resize(end)?;
        }
        // `resize` has shown that both fit into memory.
        lock(&self.bytes)[offset as usize..end as usize].copy_from_slice(data);
        Ok(())
    }

    pub(crate) fn append(&self, data: &[u8]) -> Result<(), FsError> {
        self.write(self.len(), data)
    }

    pub(crate) fn len(&self) -> u64 {
        lock(&self.bytes).len() as u64
    }

    pub(crate) fn resize(&self, size: u64) -> Result<(), FsError> {
        self.budget.writable()?;
        let mut bytes = lock(&self.bytes);
        let before = bytes.len() as u64;
        let others = self.budget.used.load(Ordering::Relaxed) - before;
        if others.checked_add(size).is_none_or(|all| all > self.budget.limit) {
            return Err(FsError::NoSpace);
        }
        bytes.resize(size as usize, 0);
        self.budget.used.store(others + size, Ordering::Relaxed);
        Ok(())
    }
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(root: &Node, path: &str) -> Vec<u8> {
        root.find(path).unwrap().file().unwrap().read(0, usize::MAX)
    }

    #[test]
    fn paths_resolve_inside_the_root_only() {
        let root = Node::root(100);
        root.put("a/b/c.txt", b"hello").unwrap();
        assert_eq!(read(&root, "./a//b/../b/c.txt"), b"hello");
        assert_eq!(root.find("a/../..").unwrap_err(), FsError::Outside);
        assert_eq!(root.find("a/b/c.txt/d").unwrap_err(), FsError::NotFolder);
        assert_eq!(root.find("a/x").unwrap_err(), FsError::NoEntry);
        let below = root.find("a").unwrap();
        assert_eq!(below.find("../a").unwrap_err(), FsError::Outside);
    }

    #[test]
    fn the_limit_counts_existing_files_only() {
        let root = Node::root(10);
        root.put("a", &[1; 6]).unwrap();
        assert_eq!(root.put("b", &[2; 6]), Err(FsError::NoSpace));
        root.remove_file("a").unwrap();
        root.put("b", &[2; 6]).unwrap();
        let file = root.find("b").unwrap();
        assert_eq!(file.file().unwrap().resize(u64::MAX), Err(FsError::NoSpace));
        assert_eq!(file.file().unwrap().write(u64::MAX, &[0]), Err(FsError::NoSpace));
    }

    #[test]
    fn removed_nodes_free_their_place_in_the_limit() {
        let root = Node::root(0);
        for n in 0..MAX_NODES - 1 {
            root.create_folder(&n.to_string()).unwrap();
        }
        assert_eq!(root.create_folder("one more"), Err(FsError::NoSpace));
        root.remove_folder("0").unwrap();
        root.create_folder("one more").unwrap();
    }

    #[test]
    fn a_deep_tree_is_dropped_without_recursion() {
        let root = Node::root(0);
        let mut here = root.clone();
        for _ in 0..MAX_NODES - 1 {
            here.create_folder("d").unwrap();
            here = here.find("d").unwrap();
        }
        drop((root, here));
    }

    #[test]
    fn renaming_follows_posix() {
        let root = Node::root(100);
        root.put("f", b"f").unwrap();
        root.put("g", b"g").unwrap();
        root.put("d/e/h", b"h").unwrap();
        root.rename("f", &root, "g").unwrap();
        assert_eq!(read(&root, "g"), b"f");
        assert_eq!(root.rename("f", &root, "x"), Err(FsError::NoEntry));
        assert_eq!(root.rename("d", &root, "d/e/d"), Err(FsError::Invalid));
        assert_eq!(root.rename("g", &root, "d"), Err(FsError::IsFolder));
        root.create_folder("empty").unwrap();
        root.rename("d", &root, "empty").unwrap();
        assert_eq!(read(&root, "empty/e/h"), b"h");
        assert_eq!(root.remove_folder("empty"), Err(FsError::NotEmpty));
    }

    #[test]
    fn writing_past_the_end_fills_with_zeros() {
        let root = Node::root(100);
        let file = root.create_file("f", true).unwrap();
        file.file().unwrap().write(3, b"x").unwrap();
        file.file().unwrap().append(b"y").unwrap();
        assert_eq!(read(&root, "f"), b"\0\0\0xy");
        assert_eq!(root.create_file("f", true).unwrap_err(), FsError::Exists);
    }
}
