//! A guest's file system in memory.
//!
//! It never touches the host's disk, counts against the guest's memory, and is dropped with the guest. Names are listed in
//! order and ids are assigned in order, so that equal programs see equal file systems.

mod content;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use thiserror::Error;

pub(crate) use self::content::PAGE;
use self::content::{Content, MAX_SIZE};
use crate::memory_budget::{Exhausted, MemoryBudget, MemoryCharge};

/// A file that can't be created in a guest's file system.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the file {path:?} can't be created: {reason}")]
pub struct CreateFileError {
    pub(crate) path: String,
    pub(crate) reason: FsError,
}

/// Errors of file operations: the subset of POSIX that can occur here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum FsError {
    #[error("it already exists")]
    Exists,
    #[error("the path is invalid")]
    Invalid,
    #[error("the path has more than 4,096 bytes, or a name in it more than 255")]
    NameTooLong,
    #[error("it is a folder")]
    IsFolder,
    #[error("there is no such file or folder")]
    NoEntry,
    #[error("the limit on memory or on the number of files is reached")]
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

impl From<Exhausted> for FsError {
    fn from(_: Exhausted) -> Self {
        Self::NoSpace
    }
}

/// Maximum number of files and folders.
const MAX_NODES: u64 = 10_000;

/// Bytes that the host needs for a file or folder, not counting its content and its name.
const NODE_BYTES: u64 = 192;

/// Bytes that the host needs for an entry of a folder, not counting its name.
const ENTRY_BYTES: u64 = 128;

/// Maximum length of a path in bytes, as on Linux.
pub(crate) const PATH_MAX: usize = 4096;

/// Maximum length of a name in bytes, as on Linux.
const NAME_MAX: usize = 255;

/// Limits and counters that all nodes of a file system share.
#[derive(Debug)]
struct Shared {
    budget: MemoryBudget,
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
    content: Mutex<Content>,
    inode: Inode,
}

#[derive(Debug)]
pub(crate) struct Folder {
    entries: Mutex<BTreeMap<String, DirEntry>>,
    inode: Inode,
}

/// Identity of a node and its share of the limits.
#[derive(Debug)]
struct Inode {
    id: u64,
    shared: Arc<Shared>,
    _charge: MemoryCharge,
}

/// Entry of a folder.
#[derive(Debug)]
struct DirEntry {
    node: Node,
    /// Charge for the name.
    _charge: MemoryCharge,
}

impl Shared {
    fn writable(&self) -> Result<(), FsError> {
        if self.frozen.load(Ordering::Relaxed) { Err(FsError::ReadOnly) } else { Ok(()) }
    }

    /// Creates the inode of a new node.
    fn inode(self: &Arc<Self>) -> Result<Inode, FsError> {
        let charge = self.budget.charge(NODE_BYTES)?;
        let below = |nodes: u64| (nodes < MAX_NODES).then_some(nodes + 1);
        let counted = self.nodes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, below);
        counted.map_err(|_| FsError::NoSpace)?;
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Ok(Inode { id, shared: Arc::clone(self), _charge: charge })
    }

    /// Creates the entry of a node under a name.
    fn entry(&self, name: &str, node: Node) -> Result<DirEntry, FsError> {
        if name.len() > NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        Ok(DirEntry { node, _charge: self.budget.charge(ENTRY_BYTES + name.len() as u64)? })
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        self.shared.nodes.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Folder {
    /// Drops the tree below in a loop, because a guest may nest folders more deeply than the host's stack allows.
    fn drop(&mut self) {
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

impl Node {
    /// Creates an empty file system whose content counts against a budget, and returns its root.
    pub(crate) fn root(budget: MemoryBudget) -> Result<Self, FsError> {
        let shared = Shared {
            budget,
            nodes: AtomicU64::new(0),
            next_id: AtomicU64::new(0),
            frozen: AtomicBool::new(false),
        };
        let inode = Arc::new(shared).inode()?;
        Ok(Self::Folder(Arc::new(Folder { entries: Mutex::default(), inode })))
    }

    /// Makes the file system read-only.
    pub(crate) fn freeze(&self) {
        self.inode().shared.frozen.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.inode().shared.writable().is_err()
    }

    /// Number of files and folders of the whole file system.
    pub(crate) fn node_count(&self) -> u64 {
        self.inode().shared.nodes.load(Ordering::Relaxed)
    }

    fn inode(&self) -> &Inode {
        match self {
            Self::File(file) => &file.inode,
            Self::Folder(folder) => &folder.inode,
        }
    }

    /// Id of the node, never reused within the file system.
    pub(crate) fn id(&self) -> u64 {
        self.inode().id
    }

    pub(crate) fn size(&self) -> u64 {
        match self {
            Self::File(file) => file.len(),
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
        if path.len() > PATH_MAX {
            return Err(FsError::NameTooLong);
        }
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
                trail.push(folder.get(part).ok_or(FsError::NoEntry)?);
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
        if let Some(existing) = folder.get(name) {
            return if exclusive { Err(FsError::Exists) } else { Ok(existing) };
        }
        let shared = &folder.inode.shared;
        shared.writable()?;
        let file = Self::File(Arc::new(File { content: Mutex::new(Content::new()), inode: shared.inode()? }));
        let entry = shared.entry(name, file.clone())?;
        folder.entries.lock().insert(name.to_owned(), entry);
        Ok(file)
    }

    pub(crate) fn create_folder(&self, path: &str) -> Result<(), FsError> {
        let (folder, name) = self.parent(path)?;
        if folder.get(name).is_some() {
            return Err(FsError::Exists);
        }
        let shared = &folder.inode.shared;
        shared.writable()?;
        let created = Folder { entries: Mutex::default(), inode: shared.inode()? };
        let entry = shared.entry(name, Self::Folder(Arc::new(created)))?;
        folder.entries.lock().insert(name.to_owned(), entry);
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
        file.file()?.write(0, bytes)?;
        Ok(())
    }

    pub(crate) fn remove_file(&self, path: &str) -> Result<(), FsError> {
        let (folder, name) = self.parent(path)?;
        folder.get(name).ok_or(FsError::NoEntry)?.file()?;
        folder.inode.shared.writable()?;
        folder.entries.lock().remove(name);
        Ok(())
    }

    pub(crate) fn remove_folder(&self, path: &str) -> Result<(), FsError> {
        let (folder, name) = self.parent(path)?;
        let node = folder.get(name).ok_or(FsError::NoEntry)?;
        if !node.folder()?.entries.lock().is_empty() {
            return Err(FsError::NotEmpty);
        }
        folder.inode.shared.writable()?;
        folder.entries.lock().remove(name);
        Ok(())
    }

    /// Moves a node. Replaces an existing file, or an empty folder if the node is a folder.
    pub(crate) fn rename(&self, from: &str, target: &Self, to: &str) -> Result<(), FsError> {
        let node = self.find(from)?;
        let (old, old_name) = self.parent(from)?;
        let (new, new_name) = target.parent(to)?;
        old.inode.shared.writable()?;
        new.inode.shared.writable()?;
        if let Self::Folder(moved) = &node
            && moved.contains(new.inode.id)
        {
            // A folder can't go into itself.
            return Err(FsError::Invalid);
        }
        let existing = new.get(new_name);
        match (&node, existing) {
            (_, Some(same)) if same.id() == node.id() => return Ok(()),
            (Self::File(_), Some(Self::Folder(_))) => return Err(FsError::IsFolder),
            (Self::Folder(_), Some(Self::File(_))) => return Err(FsError::NotFolder),
            (Self::Folder(_), Some(Self::Folder(folder))) if !folder.entries.lock().is_empty() => {
                return Err(FsError::NotEmpty);
            }
            _ => {}
        }
        let entry = new.inode.shared.entry(new_name, node)?;
        old.entries.lock().remove(old_name);
        new.entries.lock().insert(new_name.to_owned(), entry);
        Ok(())
    }
}

impl Folder {
    fn get(&self, name: &str) -> Option<Node> {
        self.entries.lock().get(name).map(|entry| entry.node.clone())
    }

    /// Returns the first entry after a name in the order of names, or the first of all.
    pub(crate) fn next_after(&self, name: Option<&str>) -> Option<(String, Node)> {
        let start = name.map_or(Bound::Unbounded, Bound::Excluded);
        let entries = self.entries.lock();
        let (name, entry) = entries.range::<str, _>((start, Bound::Unbounded)).next()?;
        Some((name.clone(), entry.node.clone()))
    }

    fn take_entries(&self) -> impl Iterator<Item = Node> + use<> {
        std::mem::take(&mut *self.entries.lock()).into_values().map(|entry| entry.node)
    }

    /// Returns true if the folder with this id is this one or one below it.
    fn contains(&self, id: u64) -> bool {
        let mut open: Vec<Node> = Vec::new();
        let extend = |folder: &Folder, open: &mut Vec<Node>| {
            open.extend(folder.entries.lock().values().map(|entry| entry.node.clone()));
            folder.inode.id == id
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
        self.content.lock().read(offset, length)
    }

    /// Writes at `offset`. A gap after the end reads as zeros. Returns the work besides the data, as [`Content::write`]
    /// counts it.
    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<u64, FsError> {
        let shared = &self.inode.shared;
        shared.writable()?;
        let end = offset.checked_add(data.len() as u64).ok_or(FsError::NoSpace)?;
        if end > MAX_SIZE {
            return Err(FsError::NoSpace);
        }
        Ok(self.content.lock().write(offset, data, &shared.budget)?)
    }

    /// Does the same as [`File::write`] at the end.
    pub(crate) fn append(&self, data: &[u8]) -> Result<u64, FsError> {
        self.write(self.len(), data)
    }

    pub(crate) fn len(&self) -> u64 {
        self.content.lock().size()
    }

    /// Sets the size. What is added reads as zeros and takes no memory until it is written. Returns the number of bytes
    /// that moved.
    pub(crate) fn resize(&self, size: u64) -> Result<u64, FsError> {
        self.inode.shared.writable()?;
        if size > MAX_SIZE {
            return Err(FsError::NoSpace);
        }
        Ok(self.content.lock().resize(size))
    }
}

fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".")
}

#[cfg(test)]
mod tests;
