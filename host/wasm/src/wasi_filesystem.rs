//! `wasi:filesystem` over [`crate::memory_fs`].
//!
//! Replaces WASI's own implementation in a linker, so that no call of a guest reaches the host's disk. There are no
//! timestamps and no links, and every node is readable and writable.

use std::sync::Arc;

use bytes::Bytes;
use wasmtime::StoreContextMut;
use wasmtime::component::{
    ComponentType, Lift, Linker, LinkerInstance, Lower, Resource, ResourceType, flags,
};
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, InputStream, IoError, OutputStream, Pollable, StreamError, StreamResult,
};

use crate::clock::Datetime;
use crate::guest::Guest;
use crate::memory_fs::{File, FsError, Node};

/// Maximum size of one read or write, in bytes.
const MAX_CHUNK: u64 = 64 << 10;

/// All error codes of the interface in its order, since the order is their encoding.
#[derive(Debug, Clone, Copy, ComponentType, Lift, Lower)]
#[component(enum)]
#[repr(u8)]
#[allow(dead_code, reason = "the type has all cases of the interface")]
enum Code {
    #[component(name = "access")]
    Access,
    #[component(name = "would-block")]
    WouldBlock,
    #[component(name = "already")]
    Already,
    #[component(name = "bad-descriptor")]
    BadDescriptor,
    #[component(name = "busy")]
    Busy,
    #[component(name = "deadlock")]
    Deadlock,
    #[component(name = "quota")]
    Quota,
    #[component(name = "exist")]
    Exist,
    #[component(name = "file-too-large")]
    FileTooLarge,
    #[component(name = "illegal-byte-sequence")]
    IllegalByteSequence,
    #[component(name = "in-progress")]
    InProgress,
    #[component(name = "interrupted")]
    Interrupted,
    #[component(name = "invalid")]
    Invalid,
    #[component(name = "io")]
    Io,
    #[component(name = "is-directory")]
    IsDirectory,
    #[component(name = "loop")]
    Loop,
    #[component(name = "too-many-links")]
    TooManyLinks,
    #[component(name = "message-size")]
    MessageSize,
    #[component(name = "name-too-long")]
    NameTooLong,
    #[component(name = "no-device")]
    NoDevice,
    #[component(name = "no-entry")]
    NoEntry,
    #[component(name = "no-lock")]
    NoLock,
    #[component(name = "insufficient-memory")]
    InsufficientMemory,
    #[component(name = "insufficient-space")]
    InsufficientSpace,
    #[component(name = "not-directory")]
    NotDirectory,
    #[component(name = "not-empty")]
    NotEmpty,
    #[component(name = "not-recoverable")]
    NotRecoverable,
    #[component(name = "unsupported")]
    Unsupported,
    #[component(name = "no-tty")]
    NoTty,
    #[component(name = "no-such-device")]
    NoSuchDevice,
    #[component(name = "overflow")]
    Overflow,
    #[component(name = "not-permitted")]
    NotPermitted,
    #[component(name = "pipe")]
    Pipe,
    #[component(name = "read-only")]
    ReadOnly,
    #[component(name = "invalid-seek")]
    InvalidSeek,
    #[component(name = "text-file-busy")]
    TextFileBusy,
    #[component(name = "cross-device")]
    CrossDevice,
}

impl From<FsError> for Code {
    fn from(error: FsError) -> Self {
        match error {
            FsError::Exists => Self::Exist,
            FsError::Invalid => Self::Invalid,
            FsError::IsFolder => Self::IsDirectory,
            FsError::NoEntry => Self::NoEntry,
            FsError::NoSpace => Self::InsufficientSpace,
            FsError::NotFolder => Self::NotDirectory,
            FsError::NotEmpty => Self::NotEmpty,
            FsError::Outside => Self::NotPermitted,
            FsError::ReadOnly => Self::ReadOnly,
        }
    }
}

#[derive(Debug, Clone, Copy, ComponentType, Lift, Lower)]
#[component(enum)]
#[repr(u8)]
#[allow(dead_code, reason = "the type has all cases of the interface")]
enum Kind {
    #[component(name = "unknown")]
    Unknown,
    #[component(name = "block-device")]
    BlockDevice,
    #[component(name = "character-device")]
    CharacterDevice,
    #[component(name = "directory")]
    Directory,
    #[component(name = "fifo")]
    Fifo,
    #[component(name = "symbolic-link")]
    SymbolicLink,
    #[component(name = "regular-file")]
    RegularFile,
    #[component(name = "socket")]
    Socket,
}

#[derive(Debug, Clone, Copy, ComponentType, Lift, Lower)]
#[component(enum)]
#[repr(u8)]
#[allow(dead_code, reason = "the type has all cases of the interface")]
enum Advice {
    #[component(name = "normal")]
    Normal,
    #[component(name = "sequential")]
    Sequential,
    #[component(name = "random")]
    Random,
    #[component(name = "will-need")]
    WillNeed,
    #[component(name = "dont-need")]
    DontNeed,
    #[component(name = "no-reuse")]
    NoReuse,
}

flags! {
    DescriptorFlags {
        #[component(name = "read")]
        const READ;
        #[component(name = "write")]
        const WRITE;
        #[component(name = "file-integrity-sync")]
        const FILE_INTEGRITY_SYNC;
        #[component(name = "data-integrity-sync")]
        const DATA_INTEGRITY_SYNC;
        #[component(name = "requested-write-sync")]
        const REQUESTED_WRITE_SYNC;
        #[component(name = "mutate-directory")]
        const MUTATE_DIRECTORY;
    }
}

flags! {
    PathFlags {
        #[component(name = "symlink-follow")]
        const SYMLINK_FOLLOW;
    }
}

flags! {
    OpenFlags {
        #[component(name = "create")]
        const CREATE;
        #[component(name = "directory")]
        const DIRECTORY;
        #[component(name = "exclusive")]
        const EXCLUSIVE;
        #[component(name = "truncate")]
        const TRUNCATE;
    }
}

#[derive(ComponentType, Lift, Lower)]
#[component(record)]
struct Stat {
    #[component(name = "type")]
    kind: Kind,
    #[component(name = "link-count")]
    link_count: u64,
    size: u64,
    #[component(name = "data-access-timestamp")]
    accessed: Option<Datetime>,
    #[component(name = "data-modification-timestamp")]
    modified: Option<Datetime>,
    #[component(name = "status-change-timestamp")]
    changed: Option<Datetime>,
}

#[derive(ComponentType, Lift, Lower)]
#[component(variant)]
enum NewTimestamp {
    #[component(name = "no-change")]
    NoChange,
    #[component(name = "now")]
    Now,
    #[component(name = "timestamp")]
    Timestamp(Datetime),
}

#[derive(ComponentType, Lift, Lower)]
#[component(record)]
struct DirectoryEntry {
    #[component(name = "type")]
    kind: Kind,
    name: String,
}

#[derive(ComponentType, Lift, Lower)]
#[component(record)]
struct MetadataHash {
    lower: u64,
    upper: u64,
}

/// An open node.
struct Descriptor {
    node: Node,
    flags: DescriptorFlags,
}

/// Rest of a directory listing.
struct Listing(std::vec::IntoIter<(String, Node)>);

type Store<'a, T> = StoreContextMut<'a, Guest<T>>;
type MethodResult<R> = wasmtime::Result<(Result<R, Code>,)>;

/// Replaces the file system of a linker with WASI.
pub(crate) fn link<T: Send + 'static>(linker: &mut Linker<Guest<T>>) -> wasmtime::Result<()> {
    let mut types = linker.instance("wasi:filesystem/types@0.2.12")?;
    types.resource("descriptor", ResourceType::host::<Descriptor>(), |mut store: Store<'_, T>, rep| {
        store.data_mut().table().delete(Resource::<Descriptor>::new_own(rep))?;
        Ok(())
    })?;
    types.resource(
        "directory-entry-stream",
        ResourceType::host::<Listing>(),
        |mut store: Store<'_, T>, rep| {
            store.data_mut().table().delete(Resource::<Listing>::new_own(rep))?;
            Ok(())
        },
    )?;
    link_contents(&mut types)?;
    link_status(&mut types)?;
    link_paths(&mut types)?;
    types.func_wrap("filesystem-error-code", |_: Store<'_, T>, (_error,): (Resource<IoError>,)| {
        Ok((None::<Code>,))
    })?;
    linker.instance("wasi:filesystem/preopens@0.2.12")?.func_wrap(
        "get-directories",
        |mut store: Store<'_, T>, (): ()| {
            let guest = store.data_mut();
            let Some(root) = guest.files().cloned() else { return Ok((Vec::new(),)) };
            let mut flags = DescriptorFlags::READ;
            if !root.is_frozen() {
                flags |= DescriptorFlags::WRITE | DescriptorFlags::MUTATE_DIRECTORY;
            }
            let root = guest.table().push(Descriptor { node: root, flags })?;
            Ok((vec![(root, "/".to_owned())],))
        },
    )
}

/// Links reading and writing of file contents.
fn link_contents<T: Send + 'static>(types: &mut LinkerInstance<'_, Guest<T>>) -> wasmtime::Result<()> {
    types.func_wrap(
        "[method]descriptor.read-via-stream",
        |mut store: Store<'_, T>,
         (this, offset): (Resource<Descriptor>, u64)|
         -> MethodResult<Resource<DynInputStream>> {
            let table = store.data_mut().table();
            let file = match table.get(&this)?.node.file() {
                Ok(file) => Arc::clone(file),
                Err(error) => return Ok((Err(error.into()),)),
            };
            let stream: DynInputStream = Box::new(Reader { file, offset });
            Ok((Ok(table.push(stream)?),))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.write-via-stream",
        |store: Store<'_, T>, (this, offset): (Resource<Descriptor>, u64)| writer(store, &this, Some(offset)),
    )?;
    types.func_wrap(
        "[method]descriptor.append-via-stream",
        |store: Store<'_, T>, (this,): (Resource<Descriptor>,)| writer(store, &this, None),
    )?;
    types.func_wrap(
        "[method]descriptor.read",
        |mut store: Store<'_, T>,
         (this, length, offset): (Resource<Descriptor>, u64, u64)|
         -> MethodResult<(Vec<u8>, bool)> {
            let file = match store.data_mut().table().get(&this)?.node.file() {
                Ok(file) => file,
                Err(error) => return Ok((Err(error.into()),)),
            };
            let read = file.read(offset, length.min(MAX_CHUNK) as usize);
            let end = offset.saturating_add(read.len() as u64) >= file.len();
            Ok((Ok((read, end)),))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.write",
        |mut store: Store<'_, T>,
         (this, data, offset): (Resource<Descriptor>, Vec<u8>, u64)|
         -> MethodResult<u64> {
            let descriptor = store.data_mut().table().get(&this)?;
            let written = writable(descriptor)
                .and_then(|file| Ok(file.write(offset, &data)?))
                .map(|()| data.len() as u64);
            Ok((written,))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.set-size",
        |mut store: Store<'_, T>, (this, size): (Resource<Descriptor>, u64)| -> MethodResult<()> {
            let descriptor = store.data_mut().table().get(&this)?;
            Ok((writable(descriptor).and_then(|file| Ok(file.resize(size)?)),))
        },
    )
}

/// Links the status functions of open nodes.
fn link_status<T: Send + 'static>(types: &mut LinkerInstance<'_, Guest<T>>) -> wasmtime::Result<()> {
    types.func_wrap(
        "[method]descriptor.advise",
        |_: Store<'_, T>,
         (_this, _offset, _length, _advice): (Resource<Descriptor>, u64, u64, Advice)|
         -> MethodResult<()> { Ok((Ok(()),)) },
    )?;
    for sync in ["[method]descriptor.sync-data", "[method]descriptor.sync"] {
        types.func_wrap(sync, |_: Store<'_, T>, (_this,): (Resource<Descriptor>,)| -> MethodResult<()> {
            Ok((Ok(()),))
        })?;
    }
    types.func_wrap(
        "[method]descriptor.get-flags",
        |mut store: Store<'_, T>, (this,): (Resource<Descriptor>,)| -> MethodResult<DescriptorFlags> {
            Ok((Ok(store.data_mut().table().get(&this)?.flags),))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.get-type",
        |mut store: Store<'_, T>, (this,): (Resource<Descriptor>,)| -> MethodResult<Kind> {
            Ok((Ok(kind(&store.data_mut().table().get(&this)?.node)),))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.set-times",
        |_: Store<'_, T>,
         (_this, _read, _written): (Resource<Descriptor>, NewTimestamp, NewTimestamp)|
         -> MethodResult<()> { Ok((Ok(()),)) },
    )?;
    types.func_wrap(
        "[method]descriptor.stat",
        |mut store: Store<'_, T>, (this,): (Resource<Descriptor>,)| -> MethodResult<Stat> {
            Ok((Ok(stat(&store.data_mut().table().get(&this)?.node)),))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.is-same-object",
        |mut store: Store<'_, T>, (this, other): (Resource<Descriptor>, Resource<Descriptor>)| {
            let table = store.data_mut().table();
            Ok((table.get(&this)?.node.id() == table.get(&other)?.node.id(),))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.metadata-hash",
        |mut store: Store<'_, T>, (this,): (Resource<Descriptor>,)| -> MethodResult<MetadataHash> {
            Ok((Ok(metadata_hash(&store.data_mut().table().get(&this)?.node)),))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.read-directory",
        |mut store: Store<'_, T>, (this,): (Resource<Descriptor>,)| -> MethodResult<Resource<Listing>> {
            let table = store.data_mut().table();
            let entries = match table.get(&this)?.node.folder() {
                Ok(folder) => folder.list(),
                Err(error) => return Ok((Err(error.into()),)),
            };
            Ok((Ok(table.push(Listing(entries.into_iter()))?),))
        },
    )?;
    types.func_wrap(
        "[method]directory-entry-stream.read-directory-entry",
        |mut store: Store<'_, T>, (this,): (Resource<Listing>,)| -> MethodResult<Option<DirectoryEntry>> {
            let next = store.data_mut().table().get_mut(&this)?.0.next();
            Ok((Ok(next.map(|(name, node)| DirectoryEntry { kind: kind(&node), name })),))
        },
    )
}

/// Links the functions that take a path relative to an open folder.
fn link_paths<T: Send + 'static>(types: &mut LinkerInstance<'_, Guest<T>>) -> wasmtime::Result<()> {
    types.func_wrap(
        "[method]descriptor.open-at",
        |mut store: Store<'_, T>,
         (this, _path_flags, path, open, flags): (
            Resource<Descriptor>,
            PathFlags,
            String,
            OpenFlags,
            DescriptorFlags,
        )|
         -> MethodResult<Resource<Descriptor>> {
            let table = store.data_mut().table();
            let opened = open_at(&table.get(&this)?.node, &path, open, flags);
            match opened {
                Ok(node) => Ok((Ok(table.push(Descriptor { node, flags })?),)),
                Err(failure) => Ok((Err(failure.into()),)),
            }
        },
    )?;
    types.func_wrap(
        "[method]descriptor.stat-at",
        |mut store: Store<'_, T>,
         (this, _flags, path): (Resource<Descriptor>, PathFlags, String)|
         -> MethodResult<Stat> {
            let found = store.data_mut().table().get(&this)?.node.find(&path);
            Ok((found.map(|node| stat(&node)).map_err(Code::from),))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.metadata-hash-at",
        |mut store: Store<'_, T>,
         (this, _flags, path): (Resource<Descriptor>, PathFlags, String)|
         -> MethodResult<MetadataHash> {
            let found = store.data_mut().table().get(&this)?.node.find(&path);
            Ok((found.map(|node| metadata_hash(&node)).map_err(Code::from),))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.set-times-at",
        |mut store: Store<'_, T>,
         (this, _flags, path, _read, _written): (
            Resource<Descriptor>,
            PathFlags,
            String,
            NewTimestamp,
            NewTimestamp,
        )|
         -> MethodResult<()> {
            let found = store.data_mut().table().get(&this)?.node.find(&path);
            Ok((found.map(|_| ()).map_err(Code::from),))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.create-directory-at",
        |store: Store<'_, T>, (this, path): (Resource<Descriptor>, String)| {
            at(store, &this, |node| node.create_folder(&path))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.remove-directory-at",
        |store: Store<'_, T>, (this, path): (Resource<Descriptor>, String)| {
            at(store, &this, |node| node.remove_folder(&path))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.unlink-file-at",
        |store: Store<'_, T>, (this, path): (Resource<Descriptor>, String)| {
            at(store, &this, |node| node.remove_file(&path))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.rename-at",
        |mut store: Store<'_, T>,
         (this, from, target, to): (Resource<Descriptor>, String, Resource<Descriptor>, String)|
         -> MethodResult<()> {
            let table = store.data_mut().table();
            let (this, target) = (&table.get(&this)?.node, &table.get(&target)?.node);
            Ok((this.rename(&from, target, &to).map_err(Code::from),))
        },
    )?;
    types.func_wrap(
        "[method]descriptor.link-at",
        |_: Store<'_, T>,
         (_this, _flags, _old, _folder, _new): (
            Resource<Descriptor>,
            PathFlags,
            String,
            Resource<Descriptor>,
            String,
        )|
         -> MethodResult<()> { Ok((Err(Code::Unsupported),)) },
    )?;
    types.func_wrap(
        "[method]descriptor.symlink-at",
        |_: Store<'_, T>, (_this, _old, _new): (Resource<Descriptor>, String, String)| -> MethodResult<()> {
            Ok((Err(Code::Unsupported),))
        },
    )?;
    // No node is a link.
    types.func_wrap(
        "[method]descriptor.readlink-at",
        |mut store: Store<'_, T>, (this, path): (Resource<Descriptor>, String)| -> MethodResult<String> {
            let found = store.data_mut().table().get(&this)?.node.find(&path);
            Ok((Err(found.map_or_else(Code::from, |_| Code::Invalid)),))
        },
    )
}

fn at<T: Send + 'static>(
    mut store: Store<'_, T>,
    this: &Resource<Descriptor>,
    work: impl FnOnce(&Node) -> Result<(), FsError>,
) -> MethodResult<()> {
    Ok((work(&store.data_mut().table().get(this)?.node).map_err(Code::from),))
}

fn open_at(from: &Node, path: &str, open: OpenFlags, flags: DescriptorFlags) -> Result<Node, FsError> {
    let node = if open.contains(OpenFlags::CREATE) {
        from.create_file(path, open.contains(OpenFlags::EXCLUSIVE))?
    } else {
        from.find(path)?
    };
    if open.contains(OpenFlags::DIRECTORY) {
        node.folder()?;
    }
    if flags.contains(DescriptorFlags::WRITE) || open.contains(OpenFlags::TRUNCATE) {
        let file = node.file()?;
        if open.contains(OpenFlags::TRUNCATE) {
            file.resize(0)?;
        }
    }
    Ok(node)
}

fn writable(descriptor: &Descriptor) -> Result<&Arc<File>, Code> {
    if descriptor.flags.contains(DescriptorFlags::WRITE) {
        Ok(descriptor.node.file()?)
    } else {
        Err(Code::BadDescriptor)
    }
}

fn writer<T: Send + 'static>(
    mut store: Store<'_, T>,
    this: &Resource<Descriptor>,
    offset: Option<u64>,
) -> MethodResult<Resource<DynOutputStream>> {
    let table = store.data_mut().table();
    let file = match writable(table.get(this)?) {
        Ok(file) => Arc::clone(file),
        Err(code) => return Ok((Err(code),)),
    };
    let stream: DynOutputStream = Box::new(Writer { file, offset });
    Ok((Ok(table.push(stream)?),))
}

fn kind(node: &Node) -> Kind {
    match node {
        Node::File(_) => Kind::RegularFile,
        Node::Folder(_) => Kind::Directory,
    }
}

fn stat(node: &Node) -> Stat {
    Stat { kind: kind(node), link_count: 1, size: node.size(), accessed: None, modified: None, changed: None }
}

fn metadata_hash(node: &Node) -> MetadataHash {
    MetadataHash { lower: node.id(), upper: 0 }
}

/// Reads a file from an offset.
struct Reader {
    file: Arc<File>,
    offset: u64,
}

#[wasmtime_wasi::async_trait]
impl InputStream for Reader {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        let read = self.file.read(self.offset, size.min(MAX_CHUNK as usize));
        if read.is_empty() && size > 0 {
            return Err(StreamError::Closed);
        }
        self.offset += read.len() as u64;
        Ok(read.into())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Reader {
    async fn ready(&mut self) {}
}

/// Writes a file from an offset, or at its end.
struct Writer {
    file: Arc<File>,
    offset: Option<u64>,
}

#[wasmtime_wasi::async_trait]
impl OutputStream for Writer {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let written = match &mut self.offset {
            Some(offset) => {
                let at = *offset;
                *offset = at.saturating_add(bytes.len() as u64);
                self.file.write(at, &bytes)
            }
            None => self.file.append(&bytes),
        };
        written
            .map_err(|_| StreamError::LastOperationFailed(wasmtime::format_err!("the file system is full")))
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(MAX_CHUNK as usize)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for Writer {
    async fn ready(&mut self) {}
}
