//! The writable folders: filled before a program, read after it, emptied after the task.
//!
//! Nothing here follows a symbolic link that a program made, and nothing recurses: programs make trees deeper than any
//! stack. No process of the program is alive when a folder is read or emptied.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path};

use pl_supervisor::Entry;

/// Writes a program's files. The error says which one can't be had.
pub fn fill(work: &Path, files: &[Entry]) -> Result<(), String> {
    for file in files {
        let relative = Path::new(&file.path);
        let inside = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if !inside || file.path.is_empty() {
            return Err(format!("the file {:?} leads out of its folder", file.path));
        }
        let path = work.join(relative);
        let write = || {
            if let Some(parent) = path.parent() {
                DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
            }
            let mode = if file.executable { 0o755 } else { 0o644 };
            // A second file of the same path replaces the first one.
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(mode)
                .open(&path)?
                .write_all(&file.bytes)
        };
        write().map_err(|error| format!("the file {:?} can't be written: {error}", file.path))?;
    }
    Ok(())
}

/// Everything in the folder, as long as it is not more than `most` bytes.
pub fn read_all(work: &Path, most: u64) -> Result<Vec<Entry>, String> {
    let mut found = Vec::new();
    let mut left = most;
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let list = fs::read_dir(work.join(&folder)).map_err(|error| format!("{folder:?}: {error}"))?;
        for entry in list.flatten() {
            // Names that are no text have no place in a job.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            let kind = entry.file_type().map_err(|error| format!("{path:?}: {error}"))?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let file = read(work, path, left)
                    .ok_or_else(|| format!("the compiler wrote more than {most} bytes"))?;
                left -= file.bytes.len() as u64;
                found.push(file);
            }
        }
    }
    Ok(found)
}

/// The files of these names that are there, as long as they are not more than `most` bytes together.
pub fn read_named(work: &Path, names: &[String], most: u64) -> Vec<Entry> {
    let mut left = most;
    let mut found = Vec::new();
    for name in names {
        if let Some(file) = read(work, name.clone(), left) {
            left -= file.bytes.len() as u64;
            found.push(file);
        }
    }
    found
}

/// A regular file of at most `most` bytes that no link leads to.
fn read(work: &Path, path: String, most: u64) -> Option<Entry> {
    let mut place = work.to_path_buf();
    let mut parts = Path::new(&path).components().peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else { return None };
        place.push(name);
        let kind = fs::symlink_metadata(&place).ok()?.file_type();
        let fits = if parts.peek().is_some() { kind.is_dir() } else { kind.is_file() };
        if !fits {
            return None;
        }
    }
    let file =
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&place).ok()?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > most {
        return None;
    }
    let executable = fs::symlink_metadata(&place).ok()?.permissions().mode() & 0o100 != 0;
    Some(Entry { path, bytes, executable })
}

/// Empties a folder. The error says what could not be removed.
///
/// Folders in folders are moved to the top and emptied there, so that neither depth nor long paths matter.
pub fn wipe(folder: &Path) -> Result<(), String> {
    let left = |error: std::io::Error| format!("files in {}: {error}", folder.display());
    let mut moved = 0_u64;
    loop {
        let mut entries = fs::read_dir(folder).map_err(left)?.peekable();
        if entries.peek().is_none() {
            return Ok(());
        }
        for entry in entries {
            let entry = entry.map_err(left)?;
            let path = entry.path();
            if !entry.file_type().map_err(left)?.is_dir() {
                fs::remove_file(&path).map_err(left)?;
                continue;
            }
            fs::set_permissions(&path, Permissions::from_mode(0o700)).map_err(left)?;
            for inner in fs::read_dir(&path).map_err(left)? {
                let inner = inner.map_err(left)?;
                if inner.file_type().map_err(left)?.is_dir() {
                    // Moving a folder changes its own entry `..`, which it must allow.
                    fs::set_permissions(inner.path(), Permissions::from_mode(0o700)).map_err(left)?;
                    to_the_top(&inner.path(), folder, &mut moved).map_err(left)?;
                } else {
                    fs::remove_file(inner.path()).map_err(left)?;
                }
            }
            fs::remove_dir(&path).map_err(left)?;
        }
    }
}

/// Moves a folder under a name that is free at the top.
fn to_the_top(from: &Path, top: &Path, moved: &mut u64) -> std::io::Result<()> {
    loop {
        *moved += 1;
        match fs::rename(from, top.join(format!(".moved-{moved}"))) {
            // The program had the same idea.
            Err(error) if matches!(error.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::NotADirectory) => {
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::os::unix::fs::symlink;

    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("pl-supervisor-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn file(path: &str) -> Entry {
        Entry { path: path.into(), bytes: b"x".to_vec(), executable: false }
    }

    #[test]
    fn files_stay_in_the_folder() {
        let work = folder("fill");
        fill(&work, &[file("a/b/c"), file("a/d")]).unwrap();
        for outside in ["../x", "/etc/x", "a/../../x", ""] {
            assert!(fill(&work, &[file(outside)]).is_err(), "{outside}");
        }
        assert_eq!(read_all(&work, 2).unwrap().len(), 2);
        assert!(read_all(&work, 1).is_err());
        wipe(&work).unwrap();
    }

    #[test]
    fn links_are_not_followed_and_other_things_are_not_read() {
        let work = folder("read");
        fill(&work, &[file("real")]).unwrap();
        symlink("/etc/hostname", work.join("link")).unwrap();
        symlink("/etc", work.join("etc")).unwrap();
        let names = ["real", "link", "etc/hostname", "../x", "none"].map(str::to_owned);
        assert_eq!(read_named(&work, &names, 10), [file("real")]);
        assert_eq!(read_all(&work, 10).unwrap(), [file("real")]);
        wipe(&work).unwrap();
    }

    #[test]
    fn every_tree_can_be_removed() {
        let work = folder("wipe");
        let mut deep = work.clone();
        // Deeper than a path may be long, with a closed folder on the way, and our own names taken.
        for level in 0..100 {
            deep.push("d".repeat(30));
            fs::create_dir(&deep).unwrap();
            if level == 50 {
                fill(&deep, &[file("f")]).unwrap();
            }
        }
        fill(&work, &[file(".moved-1"), file(".moved-2/full")]).unwrap();
        symlink("/etc", work.join("link")).unwrap();
        fs::set_permissions(work.join("d".repeat(30)), Permissions::from_mode(0o000)).unwrap();
        wipe(&work).unwrap();
        assert_eq!(fs::read_dir(&work).unwrap().count(), 0);
        assert!(Path::new("/etc").is_dir());
        fs::remove_dir(work).unwrap();
    }
}
