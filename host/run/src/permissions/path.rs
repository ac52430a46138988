//! Paths as permissions compare them: absolute and without links.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Largest number of entries of a folder that are looked at. A model has a few dozens.
const MOST_ENTRIES: usize = 1 << 16;

/// Largest number of links that lead to a path, as on Linux.
const MOST_LINKS: usize = 40;

/// Returns an absolute path without links. What does not exist is left as it is, also the target of a link.
pub(super) fn resolve(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let (mut resolved, mut links) = (PathBuf::from("/"), 0);
    let mut parts = parts(&absolute);
    while let Some(part) = parts.pop_front() {
        if part == ".." {
            resolved.pop();
            continue;
        }
        resolved.push(&part);
        let Ok(target) = fs::read_link(&resolved) else { continue };
        links += 1;
        if links > MOST_LINKS {
            // It can't be opened.
            return absolute;
        }
        if target.is_absolute() {
            resolved = PathBuf::from("/");
        } else {
            resolved.pop();
        }
        self::parts(&target).into_iter().rev().for_each(|part| parts.push_front(part));
    }
    resolved
}

/// Returns an absolute path without `..`, whose links are not followed.
pub(crate) fn lexical(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut plain = PathBuf::from("/");
    for part in parts(&absolute) {
        if part == ".." {
            plain.pop();
        } else {
            plain.push(part);
        }
    }
    plain
}

/// Returns the names of a path and its `..`.
fn parts(path: &Path) -> VecDeque<OsString> {
    let parts = path.components().filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir));
    parts.map(|part| part.as_os_str().to_owned()).collect()
}

/// Returns the targets of a folder's links that lead out of `root`. Links of its subfolders are not looked at. A folder
/// with too many entries to look at counts as one of them.
pub(super) fn links_out_of(root: &Path, folder: &Path) -> Vec<PathBuf> {
    links_of_first(MOST_ENTRIES, root, folder)
}

fn links_of_first(most: usize, root: &Path, folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut targets = Vec::new();
    for (count, entry) in entries.flatten().enumerate() {
        if count == most {
            return vec![folder.to_path_buf()];
        }
        if entry.file_type().is_ok_and(|kind| kind.is_symlink()) {
            targets.push(resolve(&entry.path()));
        }
    }
    targets.retain(|target| !target.starts_with(root));
    targets
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_and_parents_are_resolved() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b")).unwrap();
        symlink("/etc", root.join("a/link")).unwrap();
        assert_eq!(resolve(&root.join("a/b/../../c")), root.join("c"));
        assert_eq!(resolve(&root.join("a/missing/../x")), root.join("a/x"));
        assert_eq!(resolve(&root.join("a/link/missing")), Path::new("/etc/missing").to_path_buf());
        assert_eq!(links_out_of(&root, &root.join("a")), [PathBuf::from("/etc")]);
        assert!(links_out_of(&root, &root).is_empty());
    }

    #[test]
    fn links_whose_target_is_missing_lead_out_too() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("a")).unwrap();
        symlink("/nowhere/x", root.join("a/far")).unwrap();
        symlink("../../beside", root.join("a/near")).unwrap();
        symlink("far", root.join("a/twice")).unwrap();
        symlink("loop", root.join("a/loop")).unwrap();
        assert_eq!(resolve(&root.join("a/twice/y")), PathBuf::from("/nowhere/x/y"));
        assert_eq!(resolve(&root.join("a/loop")), root.join("a/loop"));
        let mut targets = links_out_of(&root, &root.join("a"));
        targets.sort();
        let beside = root.parent().unwrap().join("beside");
        let mut expected = [PathBuf::from("/nowhere/x"), PathBuf::from("/nowhere/x"), beside];
        expected.sort();
        assert_eq!(targets, expected);
    }

    #[test]
    fn a_folder_with_too_many_entries_to_look_at_is_not_taken_for_harmless() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        for name in ["a", "b", "c"] {
            fs::write(root.join(name), "").unwrap();
        }
        assert_eq!(links_of_first(2, &root, &root), std::slice::from_ref(&root));
        assert!(links_of_first(3, &root, &root).is_empty());
    }
}
