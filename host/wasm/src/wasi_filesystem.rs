//! `wasi:filesystem` over [`crate::memory_fs`].
//!
//! Replaces WASI's own implementation in a linker, so that no call of a guest reaches the host's disk. There are no
//! timestamps and no links, and every node is readable and writable. Every call costs fuel for the host's work, and open
//! handles count against the guest's memory.

use std::sync::Arc;

use bytes::Bytes;
use wasmtime::Result;
use wasmtime::component::{HasSelf, Linker, Resource};
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, InputStream, IoError, OutputStream, Pollable, StreamError, StreamResult,
};

use self::bindings::wasi::filesystem::{preopens, types};
use self::types::{
    Advice, DescriptorFlags, DescriptorStat, DescriptorType, DirectoryEntry, ErrorCode, MetadataHashValue,
    NewTimestamp, OpenFlags, PathFlags,
};
use crate::guest::Guest;
use crate::memory_budget::{Exhausted, MemoryCharge};
use crate::memory_fs::{File, Folder, FsError, Node, PAGE, PATH_MAX};
use crate::stream_work::StreamWork;

/// Host traits and types of the interface, generated from its definition.
mod bindings {
    wasmtime::component::bindgen!({
        path: "wit/filesystem.wit",
        world: "imports",
        imports: { default: trappable },
        require_store_data_send: true,
        with: {
            "wasi:io/error": wasmtime_wasi::p2::bindings::io::error,
            "wasi:io/streams": wasmtime_wasi::p2::bindings::io::streams,
            "wasi:clocks/wall-clock": wasmtime_wasi::p2::bindings::clocks::wall_clock,
            "wasi:filesystem/types.descriptor": super::Descriptor,
            "wasi:filesystem/types.directory-entry-stream": super::Listing,
        },
    });
}

/// Maximum size of one read or write, in bytes.
const MAX_CHUNK: u64 = 64 << 10;

/// Bytes that the host needs for an open handle: a descriptor, a listing or a stream.
const HANDLE_BYTES: u64 = 512;

/// Fuel of a call on a node beyond that of every host call. With it, a program that only calls the host takes about as
/// long as one that only computes (`host/sandbox/tests/it/hoarding.rs` measures both).
const CALL_FUEL: u64 = 8_000;

/// Fuel of a call that only looks at an open handle or drops it, beyond that of every host call. The creation of what a
/// dropped handle frees has paid for that too.
const HANDLE_FUEL: u64 = 4_500;

/// Fuel of a read or write of an open file, not counting its bytes.
const TRANSFER_FUEL: u64 = 4_500;

/// Fuel per byte written: it is copied twice, into the host and into the file.
const WRITTEN_BYTE_FUEL: u64 = 3;

/// Fuel per byte of a path: a part of one byte and its slash are a lookup.
const PATH_FUEL: u64 = 175;

/// Fuel for each node that moving a folder visits.
const VISIT_FUEL: u64 = 300;

/// An open node.
pub struct Descriptor {
    node: Node,
    flags: DescriptorFlags,
    _charge: MemoryCharge,
}

/// A directory listing in progress.
pub struct Listing {
    folder: Arc<Folder>,
    /// Name of the last entry that was read.
    last: Option<String>,
    _charge: MemoryCharge,
}

/// The outer error ends the guest's call, the inner one is the guest's to handle.
type MethodResult<R> = Result<std::result::Result<R, ErrorCode>>;

/// Replaces the file system of a linker with WASI.
pub(crate) fn link<T: Send + 'static>(linker: &mut Linker<Guest<T>>) -> Result<()> {
    types::add_to_linker::<_, HasSelf<Guest<T>>>(linker, |guest| guest)?;
    preopens::add_to_linker::<_, HasSelf<Guest<T>>>(linker, |guest| guest)
}

impl From<FsError> for ErrorCode {
    fn from(error: FsError) -> Self {
        match error {
            FsError::Exists => Self::Exist,
            FsError::Invalid => Self::Invalid,
            FsError::NameTooLong => Self::NameTooLong,
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

impl From<Exhausted> for ErrorCode {
    fn from(_: Exhausted) -> Self {
        Self::InsufficientMemory
    }
}

impl<T: Send + 'static> preopens::Host for Guest<T> {
    fn get_directories(&mut self) -> Result<Vec<(Resource<Descriptor>, String)>> {
        self.charge(CALL_FUEL);
        let Some(root) = self.files().cloned() else { return Ok(Vec::new()) };
        let mut flags = DescriptorFlags::READ;
        if !root.is_frozen() {
            flags |= DescriptorFlags::WRITE | DescriptorFlags::MUTATE_DIRECTORY;
        }
        let Ok(charge) = self.budget().charge(HANDLE_BYTES) else { return Ok(Vec::new()) };
        let root = self.table().push(Descriptor { node: root, flags, _charge: charge })?;
        Ok(vec![(root, "/".to_owned())])
    }
}

impl<T: Send + 'static> types::Host for Guest<T> {
    fn filesystem_error_code(&mut self, _: Resource<IoError>) -> Result<Option<ErrorCode>> {
        self.charge(HANDLE_FUEL);
        Ok(None)
    }
}

impl<T: Send + 'static> types::HostDirectoryEntryStream for Guest<T> {
    fn read_directory_entry(&mut self, this: Resource<Listing>) -> MethodResult<Option<DirectoryEntry>> {
        self.charge(CALL_FUEL);
        let listing = self.table().get_mut(&this)?;
        let Some((name, node)) = listing.folder.next_after(listing.last.as_deref()) else {
            return Ok(Ok(None));
        };
        listing.last = Some(name.clone());
        Ok(Ok(Some(DirectoryEntry { type_: node_type(&node), name })))
    }

    fn drop(&mut self, this: Resource<Listing>) -> Result<()> {
        self.charge(HANDLE_FUEL);
        self.table().delete(this)?;
        Ok(())
    }
}

impl<T: Send + 'static> types::HostDescriptor for Guest<T> {
    fn read_via_stream(
        &mut self,
        this: Resource<Descriptor>,
        offset: u64,
    ) -> MethodResult<Resource<DynInputStream>> {
        self.charge(CALL_FUEL);
        let file = match self.table().get(&this)?.node.file() {
            Ok(file) => Arc::clone(file),
            Err(error) => return Ok(Err(error.into())),
        };
        let work = self.stream_work();
        push(self, |charge| Box::new(Reader { file, offset, work, _charge: charge }) as DynInputStream)
    }

    fn write_via_stream(
        &mut self,
        this: Resource<Descriptor>,
        offset: u64,
    ) -> MethodResult<Resource<DynOutputStream>> {
        open_writer(self, &this, Some(offset))
    }

    fn append_via_stream(&mut self, this: Resource<Descriptor>) -> MethodResult<Resource<DynOutputStream>> {
        open_writer(self, &this, None)
    }

    fn read(
        &mut self,
        this: Resource<Descriptor>,
        length: u64,
        offset: u64,
    ) -> MethodResult<(Vec<u8>, bool)> {
        let result = self.table().get(&this)?.node.file().map_err(ErrorCode::from).map(|file| {
            let read = file.read(offset, length.min(MAX_CHUNK) as usize);
            let end = offset.saturating_add(read.len() as u64) >= file.len();
            (read, end)
        });
        self.charge(TRANSFER_FUEL + result.as_ref().map_or(0, |(read, _)| read.len() as u64));
        Ok(result)
    }

    fn write(&mut self, this: Resource<Descriptor>, data: Vec<u8>, offset: u64) -> MethodResult<u64> {
        let written = writable(self.table().get(&this)?).and_then(|file| Ok(file.write(offset, &data)?));
        self.charge(write_fuel(&data, &written));
        Ok(written.map(|_| data.len() as u64))
    }

    fn set_size(&mut self, this: Resource<Descriptor>, size: u64) -> MethodResult<()> {
        let moved = writable(self.table().get(&this)?).and_then(|file| Ok(file.resize(size)?));
        self.charge(CALL_FUEL + moved.as_ref().copied().unwrap_or(0));
        Ok(moved.map(drop))
    }

    fn advise(&mut self, _: Resource<Descriptor>, _: u64, _: u64, _: Advice) -> MethodResult<()> {
        self.charge(HANDLE_FUEL);
        Ok(Ok(()))
    }

    fn sync_data(&mut self, _: Resource<Descriptor>) -> MethodResult<()> {
        self.charge(HANDLE_FUEL);
        Ok(Ok(()))
    }

    fn sync(&mut self, _: Resource<Descriptor>) -> MethodResult<()> {
        self.charge(HANDLE_FUEL);
        Ok(Ok(()))
    }

    fn get_flags(&mut self, this: Resource<Descriptor>) -> MethodResult<DescriptorFlags> {
        self.charge(HANDLE_FUEL);
        Ok(Ok(self.table().get(&this)?.flags))
    }

    fn get_type(&mut self, this: Resource<Descriptor>) -> MethodResult<DescriptorType> {
        self.charge(HANDLE_FUEL);
        Ok(Ok(node_type(&self.table().get(&this)?.node)))
    }

    fn set_times(&mut self, _: Resource<Descriptor>, _: NewTimestamp, _: NewTimestamp) -> MethodResult<()> {
        self.charge(HANDLE_FUEL);
        Ok(Ok(()))
    }

    fn stat(&mut self, this: Resource<Descriptor>) -> MethodResult<DescriptorStat> {
        self.charge(HANDLE_FUEL);
        Ok(Ok(stat(&self.table().get(&this)?.node)))
    }

    fn is_same_object(&mut self, this: Resource<Descriptor>, other: Resource<Descriptor>) -> Result<bool> {
        self.charge(HANDLE_FUEL);
        let table = self.table();
        Ok(table.get(&this)?.node.id() == table.get(&other)?.node.id())
    }

    fn metadata_hash(&mut self, this: Resource<Descriptor>) -> MethodResult<MetadataHashValue> {
        self.charge(HANDLE_FUEL);
        Ok(Ok(metadata_hash(&self.table().get(&this)?.node)))
    }

    fn read_directory(&mut self, this: Resource<Descriptor>) -> MethodResult<Resource<Listing>> {
        self.charge(CALL_FUEL);
        let folder = match self.table().get(&this)?.node.folder() {
            Ok(folder) => Arc::clone(folder),
            Err(error) => return Ok(Err(error.into())),
        };
        push(self, |charge| Listing { folder, last: None, _charge: charge })
    }

    fn open_at(
        &mut self,
        this: Resource<Descriptor>,
        _: PathFlags,
        path: String,
        open: OpenFlags,
        flags: DescriptorFlags,
    ) -> MethodResult<Resource<Descriptor>> {
        match on_node(self, &this, &path, |node| open_node(node, &path, open, flags))? {
            Ok(node) => push(self, |charge| Descriptor { node, flags, _charge: charge }),
            Err(error) => Ok(Err(error)),
        }
    }

    fn stat_at(
        &mut self,
        this: Resource<Descriptor>,
        _: PathFlags,
        path: String,
    ) -> MethodResult<DescriptorStat> {
        on_node(self, &this, &path, |node| Ok(stat(&node.find(&path)?)))
    }

    fn metadata_hash_at(
        &mut self,
        this: Resource<Descriptor>,
        _: PathFlags,
        path: String,
    ) -> MethodResult<MetadataHashValue> {
        on_node(self, &this, &path, |node| Ok(metadata_hash(&node.find(&path)?)))
    }

    fn set_times_at(
        &mut self,
        this: Resource<Descriptor>,
        _: PathFlags,
        path: String,
        _: NewTimestamp,
        _: NewTimestamp,
    ) -> MethodResult<()> {
        on_node(self, &this, &path, |node| node.find(&path).map(|_| ()))
    }

    fn create_directory_at(&mut self, this: Resource<Descriptor>, path: String) -> MethodResult<()> {
        on_node(self, &this, &path, |node| node.create_folder(&path))
    }

    fn remove_directory_at(&mut self, this: Resource<Descriptor>, path: String) -> MethodResult<()> {
        on_node(self, &this, &path, |node| node.remove_folder(&path))
    }

    fn unlink_file_at(&mut self, this: Resource<Descriptor>, path: String) -> MethodResult<()> {
        on_node(self, &this, &path, |node| node.remove_file(&path))
    }

    fn rename_at(
        &mut self,
        this: Resource<Descriptor>,
        from: String,
        target: Resource<Descriptor>,
        to: String,
    ) -> MethodResult<()> {
        let target = self.table().get(&target)?.node.clone();
        // A folder that moves is searched for its new place.
        let visited = match self.table().get(&this)?.node.find(&from) {
            Ok(Node::Folder(_)) => target.node_count(),
            _ => 0,
        };
        // The old path is followed three times: here, for the node, and for the folder that it leaves.
        self.charge(path_fuel(&to) + 2 * path_fuel(&from) + VISIT_FUEL * visited);
        on_node(self, &this, &from, |node| node.rename(&from, &target, &to))
    }

    fn link_at(
        &mut self,
        _: Resource<Descriptor>,
        _: PathFlags,
        from: String,
        _: Resource<Descriptor>,
        to: String,
    ) -> MethodResult<()> {
        self.charge(refused_link_fuel(&from, &to));
        Ok(Err(ErrorCode::Unsupported))
    }

    fn symlink_at(&mut self, _: Resource<Descriptor>, from: String, to: String) -> MethodResult<()> {
        self.charge(refused_link_fuel(&from, &to));
        Ok(Err(ErrorCode::Unsupported))
    }

    fn readlink_at(&mut self, this: Resource<Descriptor>, path: String) -> MethodResult<String> {
        // No node is a link.
        on_node(self, &this, &path, |node| node.find(&path).and(Err(FsError::Invalid)))
    }

    fn drop(&mut self, this: Resource<Descriptor>) -> Result<()> {
        self.charge(HANDLE_FUEL);
        self.table().delete(this)?;
        Ok(())
    }
}

/// Fuel for finding a node by its path.
fn path_fuel(path: &str) -> u64 {
    // A path that is too long is refused, but was copied.
    path.len() as u64 + PATH_FUEL * path.len().min(PATH_MAX) as u64
}

/// Fuel for a link, which is refused: its paths were copied.
fn refused_link_fuel(from: &str, to: &str) -> u64 {
    HANDLE_FUEL + (from.len() + to.len()) as u64
}

/// Fuel for writing these bytes to an open file, after the number of other bytes that the write returned. One that failed
/// may have filled a page.
fn write_fuel<E>(data: &[u8], others: &Result<u64, E>) -> u64 {
    let others = others.as_ref().copied().unwrap_or(PAGE as u64);
    TRANSFER_FUEL + WRITTEN_BYTE_FUEL * data.len() as u64 + others
}

/// Stores a new handle, which counts against the guest's memory.
fn push<T: Send + 'static, R: Send + 'static>(
    guest: &mut Guest<T>,
    create: impl FnOnce(MemoryCharge) -> R,
) -> MethodResult<Resource<R>> {
    match guest.budget().charge(HANDLE_BYTES) {
        Ok(charge) => Ok(Ok(guest.table().push(create(charge))?)),
        Err(error) => Ok(Err(error.into())),
    }
}

/// Performs an operation on the node of a descriptor and the node's path.
fn on_node<T: Send + 'static, R>(
    guest: &mut Guest<T>,
    this: &Resource<Descriptor>,
    path: &str,
    work: impl FnOnce(&Node) -> std::result::Result<R, FsError>,
) -> MethodResult<R> {
    guest.charge(CALL_FUEL + path_fuel(path));
    Ok(work(&guest.table().get(this)?.node).map_err(ErrorCode::from))
}

fn open_node(
    from: &Node,
    path: &str,
    open: OpenFlags,
    flags: DescriptorFlags,
) -> std::result::Result<Node, FsError> {
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

fn writable(descriptor: &Descriptor) -> std::result::Result<&Arc<File>, ErrorCode> {
    if descriptor.flags.contains(DescriptorFlags::WRITE) {
        Ok(descriptor.node.file()?)
    } else {
        Err(ErrorCode::BadDescriptor)
    }
}

fn open_writer<T: Send + 'static>(
    guest: &mut Guest<T>,
    this: &Resource<Descriptor>,
    offset: Option<u64>,
) -> MethodResult<Resource<DynOutputStream>> {
    guest.charge(CALL_FUEL);
    let file = match writable(guest.table().get(this)?) {
        Ok(file) => Arc::clone(file),
        Err(code) => return Ok(Err(code)),
    };
    let work = guest.stream_work();
    push(guest, |charge| Box::new(Writer { file, offset, work, _charge: charge }) as DynOutputStream)
}

fn node_type(node: &Node) -> DescriptorType {
    match node {
        Node::File(_) => DescriptorType::RegularFile,
        Node::Folder(_) => DescriptorType::Directory,
    }
}

fn stat(node: &Node) -> DescriptorStat {
    DescriptorStat {
        type_: node_type(node),
        link_count: 1,
        size: node.size(),
        data_access_timestamp: None,
        data_modification_timestamp: None,
        status_change_timestamp: None,
    }
}

fn metadata_hash(node: &Node) -> MetadataHashValue {
    MetadataHashValue { lower: node.id(), upper: 0 }
}

/// Reads a file from an offset.
struct Reader {
    file: Arc<File>,
    offset: u64,
    work: StreamWork,
    _charge: MemoryCharge,
}

#[wasmtime_wasi::async_trait]
impl InputStream for Reader {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        let read = self.file.read(self.offset, size.min(MAX_CHUNK as usize));
        self.work.charge(TRANSFER_FUEL + read.len() as u64);
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
    work: StreamWork,
    _charge: MemoryCharge,
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
        self.work.charge(write_fuel(&bytes, &written));
        written
            .map(drop)
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

#[cfg(test)]
mod tests;
