//! Prices of calls.

use super::types::{HostDescriptor as _, HostDirectoryEntryStream};
use super::*;
use crate::Limits;

/// A call on the first of two handles.
type Call = fn(&mut Guest<()>, Resource<Descriptor>, Resource<Descriptor>) -> bool;

/// Returns a store with a file system of one file, `f`, and the handle of its root.
fn store() -> (crate::Store<()>, Resource<Descriptor>) {
    let mut store = Guest::store(&wasmtime::Engine::default(), (), &Limits::default());
    store.data_mut().set_files([("f", b"text".as_slice())]).unwrap();
    let mut folders = preopens::Host::get_directories(store.data_mut()).unwrap();
    (store, folders.pop().unwrap().0)
}

fn borrow<R: 'static>(handle: &Resource<R>) -> Resource<R> {
    Resource::new_borrow(handle.rep())
}

/// Opens the file for reading and writing.
fn open(guest: &mut Guest<()>, root: &Resource<Descriptor>) -> Resource<Descriptor> {
    let flags = DescriptorFlags::READ | DescriptorFlags::WRITE;
    let opened = guest.open_at(borrow(root), PathFlags::empty(), "f".to_owned(), OpenFlags::empty(), flags);
    opened.unwrap().unwrap()
}

#[test]
fn calls_on_open_handles_cost_fuel() {
    let (mut store, root) = store();
    let guest = store.data_mut();
    let file = open(guest, &root);
    guest.take_owed();
    let calls: [(&str, Call); 11] = [
        ("advise", |guest, file, _| guest.advise(file, 0, 0, Advice::Normal).is_ok()),
        ("sync", |guest, file, _| guest.sync(file).is_ok()),
        ("sync-data", |guest, file, _| guest.sync_data(file).is_ok()),
        ("get-flags", |guest, file, _| guest.get_flags(file).is_ok()),
        ("get-type", |guest, file, _| guest.get_type(file).is_ok()),
        ("stat", |guest, file, _| guest.stat(file).is_ok()),
        ("is-same-object", |guest, file, root| guest.is_same_object(file, root).is_ok()),
        ("metadata-hash", |guest, file, _| guest.metadata_hash(file).is_ok()),
        ("set-times", |guest, file, _| {
            guest.set_times(file, NewTimestamp::NoChange, NewTimestamp::NoChange).is_ok()
        }),
        ("set-size", |guest, file, _| guest.set_size(file, 4).is_ok()),
        ("read-directory", |guest, _, root| guest.read_directory(root).is_ok()),
    ];
    for (name, call) in calls {
        assert!(call(guest, borrow(&file), borrow(&root)), "{name}");
        assert!(guest.take_owed() >= HANDLE_FUEL, "{name}");
    }
    let listing = guest.read_directory(borrow(&root)).unwrap().unwrap();
    guest.take_owed();
    HostDirectoryEntryStream::drop(guest, listing).unwrap();
    assert_eq!(guest.take_owed(), HANDLE_FUEL);
    types::HostDescriptor::drop(guest, file).unwrap();
    assert_eq!(guest.take_owed(), HANDLE_FUEL);
    preopens::Host::get_directories(guest).unwrap();
    assert_eq!(guest.take_owed(), CALL_FUEL);
}

#[test]
fn paths_of_links_and_moves_cost_fuel() {
    let (mut store, root) = store();
    let guest = store.data_mut();
    guest.take_owed();
    let long = "a/".repeat(1000);
    let refused = guest.symlink_at(borrow(&root), long.clone(), long.clone()).unwrap();
    assert_eq!((refused, guest.take_owed()), (Err(ErrorCode::Unsupported), HANDLE_FUEL + 4000));
    let linked =
        guest.link_at(borrow(&root), PathFlags::empty(), long.clone(), borrow(&root), long.clone()).unwrap();
    assert_eq!((linked, guest.take_owed()), (Err(ErrorCode::Unsupported), HANDLE_FUEL + 4000));
    // A move follows the old path three times.
    let moved = guest.rename_at(borrow(&root), long.clone(), borrow(&root), "f".to_owned()).unwrap();
    assert_eq!(moved, Err(ErrorCode::NoEntry));
    assert_eq!(guest.take_owed(), CALL_FUEL + path_fuel("f") + 3 * path_fuel(&long));
}

#[test]
fn bytes_that_move_cost_fuel() {
    let (mut store, root) = store();
    let guest = store.data_mut();
    let file = open(guest, &root);
    guest.write(borrow(&file), vec![1; 60_000], 0).unwrap().unwrap();
    guest.take_owed();
    guest.set_size(borrow(&file), 50_000).unwrap().unwrap();
    assert_eq!(guest.take_owed(), CALL_FUEL + 50_000);
    guest.write(borrow(&file), vec![1], 65_000).unwrap().unwrap();
    assert_eq!(guest.take_owed(), TRANSFER_FUEL + WRITTEN_BYTE_FUEL + 15_000 + 50_000);
}
