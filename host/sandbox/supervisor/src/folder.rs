//! The writable folders: filled before a program, read after it, emptied after the task.
//!
//! Nothing here follows a symbolic link that a program made, and nothing recurses: programs make trees deeper
//! than any stack. No process of the program is alive when a folder is read or emptied.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path};

use pl_supervisor::FileEntry;

use crate::error::{Error, Result};

/// Writes a program's files.
pub fn fill(work: &Path, files: &[FileEntry]) -> Result<()> {
    for file in files {
        let relative = Path::new(&file.path);
        let inside = relative.components().all(|part| matches!(part, Component::Normal(_)));
        if !inside || file.path.is_empty() {
            return Err(Error::OutsideFolder(file.path.clone()));
        }
        write(&work.join(relative), file)
            .map_err(|source| Error::WriteFile { path: file.path.clone(), source })?;
    }
    Ok(())
}

/// Writes a file and the folders above it. A second file of the same path replaces the first one.
fn write(path: &Path, file: &FileEntry) -> std::io::Result<()> {
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    let mode = if file.executable { 0o755 } else { 0o644 };
    OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?.write_all(&file.bytes)
}

/// Returns all files of the folder.
///
/// # Errors
/// [`Error::CompilerOutput`] if they have more than `max_bytes` together.
pub fn read_all(work: &Path, max_bytes: u64) -> Result<Vec<FileEntry>> {
    let failed = |path: &str, source| Error::ReadFolder { path: path.to_owned(), source };
    let mut found = Vec::new();
    let mut left = max_bytes;
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let list = fs::read_dir(work.join(&folder)).map_err(|source| failed(&folder, source))?;
        for entry in list.flatten() {
            // Files whose names are not UTF-8 can't be part of a job.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            let kind = entry.file_type().map_err(|source| failed(&path, source))?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() {
                let file = read(work, path, left).ok_or(Error::CompilerOutput(max_bytes))?;
                left -= file.bytes.len() as u64;
                found.push(file);
            }
        }
    }
    Ok(found)
}

/// Returns those of the named files that exist, as long as they have at most `max_bytes` together.
pub fn read_named(work: &Path, names: &[String], max_bytes: u64) -> Vec<FileEntry> {
    let mut left = max_bytes;
    let mut found = Vec::new();
    for name in names {
        if let Some(file) = read(work, name.clone(), left) {
            left -= file.bytes.len() as u64;
            found.push(file);
        }
    }
    found
}

/// Returns a regular file of at most `max_bytes` whose path has no symbolic link.
fn read(work: &Path, path: String, max_bytes: u64) -> Option<FileEntry> {
    let mut full = work.to_path_buf();
    let mut parts = Path::new(&path).components().peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else { return None };
        full.push(name);
        let kind = fs::symlink_metadata(&full).ok()?.file_type();
        let expected = if parts.peek().is_some() { kind.is_dir() } else { kind.is_file() };
        if !expected {
            return None;
        }
    }
    let file =
        OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&full).ok()?;
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > max_bytes {
        return None;
    }
    let executable = fs::symlink_metadata(&full).ok()?.permissions().mode() & 0o100 != 0;
    Some(FileEntry { path, bytes, executable })
}

/// Empties a folder.
///
/// Subfolders are moved to the top and emptied there, so neither depth nor long paths matter.
///
/// # Errors
/// [`Error::RemainingFiles`]
pub fn empty(folder: &Path) -> Result<()> {
    remove_entries(folder).map_err(|source| Error::RemainingFiles { folder: folder.to_path_buf(), source })
}

fn remove_entries(folder: &Path) -> std::io::Result<()> {
    let mut moved = 0_u64;
    loop {
        let mut entries = fs::read_dir(folder)?.peekable();
        if entries.peek().is_none() {
            return Ok(());
        }
        for entry in entries {
            let entry = entry?;
            let path = entry.path();
            if !entry.file_type()?.is_dir() {
                fs::remove_file(&path)?;
                continue;
            }
            fs::set_permissions(&path, Permissions::from_mode(0o700))?;
            for inner in fs::read_dir(&path)? {
                let inner = inner?;
                if inner.file_type()?.is_dir() {
                    // Moving a folder changes its own entry `..`, which it must allow.
                    fs::set_permissions(inner.path(), Permissions::from_mode(0o700))?;
                    move_to_top(&inner.path(), folder, &mut moved)?;
                } else {
                    fs::remove_file(inner.path())?;
                }
            }
            fs::remove_dir(&path)?;
        }
    }
}

/// Moves a folder to an unused name at the top.
fn move_to_top(from: &Path, top: &Path, moved: &mut u64) -> std::io::Result<()> {
    loop {
        *moved += 1;
        match fs::rename(from, top.join(format!(".moved-{moved}"))) {
            // The program has used this name itself.
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

    fn file(path: &str) -> FileEntry {
        FileEntry { path: path.into(), bytes: b"x".to_vec(), executable: false }
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
        empty(&work).unwrap();
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
        empty(&work).unwrap();
    }

    #[test]
    fn every_tree_can_be_removed() {
        let work = folder("wipe");
        let mut deep = work.clone();
        // Longer than a path may be, with an unreadable folder on the way, and with names that `move_to_top`
        // uses.
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
        empty(&work).unwrap();
        assert_eq!(fs::read_dir(&work).unwrap().count(), 0);
        assert!(Path::new("/etc").is_dir());
        fs::remove_dir(work).unwrap();
    }
}
