//! Paths, limits and POSIX semantics of the filesystem in memory.

use super::*;

fn root(limit: u64) -> Node {
    Node::root(MemoryBudget::new(limit)).unwrap()
}

fn read(root: &Node, path: &str) -> Vec<u8> {
    root.find(path).unwrap().file().unwrap().read(0, usize::MAX)
}

#[test]
fn paths_resolve_inside_the_root_only() {
    let root = root(10_000);
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
    let root = root(100_000);
    root.put("a", &[1; 60_000]).unwrap();
    assert_eq!(root.put("b", &[2; 60_000]), Err(FsError::NoSpace));
    root.remove_file("b").unwrap();
    root.remove_file("a").unwrap();
    root.put("b", &[2; 60_000]).unwrap();
    let file = root.find("b").unwrap();
    assert_eq!(file.file().unwrap().resize(u64::MAX), Err(FsError::NoSpace));
    assert_eq!(file.file().unwrap().write(u64::MAX, &[0]), Err(FsError::NoSpace));
}

#[test]
fn removed_nodes_free_their_place_in_the_limit() {
    let root = root(u64::MAX);
    for n in 0..MAX_NODES - 1 {
        root.create_folder(&n.to_string()).unwrap();
    }
    assert_eq!(root.create_folder("one more"), Err(FsError::NoSpace));
    root.remove_folder("0").unwrap();
    root.create_folder("one more").unwrap();
}

#[test]
fn a_deep_tree_is_dropped_without_recursion() {
    let root = root(u64::MAX);
    let mut here = root.clone();
    for _ in 0..MAX_NODES - 1 {
        here.create_folder("d").unwrap();
        here = here.find("d").unwrap();
    }
    drop((root, here));
}

#[test]
fn renaming_follows_posix() {
    let root = root(10_000);
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
    let root = root(10_000);
    let file = root.create_file("f", true).unwrap();
    file.file().unwrap().write(3, b"x").unwrap();
    file.file().unwrap().append(b"y").unwrap();
    assert_eq!(read(&root, "f"), b"\0\0\0xy");
    assert_eq!(root.create_file("f", true).unwrap_err(), FsError::Exists);
}

#[test]
fn names_and_entries_count() {
    let long = "x".repeat(NAME_MAX);
    let root = root(NODE_BYTES + 10 * (NODE_BYTES + ENTRY_BYTES + NAME_MAX as u64));
    let name = |n: u64| format!("{n}{}", &long[1..]);
    for n in 0..10 {
        root.create_folder(&name(n)).unwrap();
    }
    assert_eq!(root.create_folder("y"), Err(FsError::NoSpace));
    // A longer name needs more memory, a shorter one makes room.
    root.rename(&name(0), &root, "z").unwrap_err();
    root.remove_folder(&name(9)).unwrap();
    root.rename(&name(0), &root, "z").unwrap();
    root.create_folder("y").unwrap();
    assert_eq!(root.create_folder(&format!("{long}x")), Err(FsError::NameTooLong));
    assert_eq!(root.find(&"a/".repeat(PATH_MAX)).unwrap_err(), FsError::NameTooLong);
}

/// The control of the names: without a limit, a folder takes all of them.
#[test]
fn names_fill_the_host_without_a_limit() {
    const COUNT: usize = 9_000;
    let created = |limit| {
        let root = root(limit);
        (0..COUNT).take_while(|n| root.create_folder(&format!("{n:0>250}")).is_ok()).count()
    };
    assert_eq!(created(u64::MAX), COUNT);
    assert!(created(1_000_000) < COUNT / 2);
}

#[test]
fn open_nodes_count_after_their_removal() {
    let root = root(200_000);
    root.put("a", &[1; 100_000]).unwrap();
    let open = root.find("a").unwrap();
    root.remove_file("a").unwrap();
    assert_eq!(root.put("b", &[1; 100_000]), Err(FsError::NoSpace));
    drop(open);
    root.put("b", &[1; 100_000]).unwrap();
}

#[test]
fn listings_follow_the_order_of_names() {
    let root = root(100_000);
    for name in ["b", "a", "c"] {
        root.create_folder(name).unwrap();
    }
    let folder = root.folder().unwrap();
    let (first, _) = folder.next_after(None).unwrap();
    root.remove_folder("b").unwrap();
    let (second, _) = folder.next_after(Some(&first)).unwrap();
    assert_eq!((first.as_str(), second.as_str()), ("a", "c"));
    assert!(folder.next_after(Some("c")).is_none());
}
