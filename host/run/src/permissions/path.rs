//! Paths as permissions compare them: absolute and without links.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Largest number of entries of a folder that are looked at. A model has a few dozens.
const MOST_ENTRIES: usize = 1 << 16;

/// Returns an absolute path without links. Of a path that does not exist, the part that exists is resolved.
pub(super) fn resolve(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut existing = absolute.as_path();
    let mut rest = Vec::new();
    loop {
        if let Ok(mut resolved) = existing.canonicalize() {
            for part in rest.into_iter().rev() {
                match part {
                    Component::ParentDir => drop(resolved.pop()),
                    part => resolved.push(part),
                }
            }
            return resolved;
        }
        let (Some(parent), Some(last)) = (existing.parent(), existing.components().next_back()) else {
            return absolute;
        };
        rest.push(last);
        existing = parent;
    }
}

/// Returns the targets of a folder's links that lead out of `root`. Links of its subfolders are not looked at.
pub(super) fn links_out_of(root: &Path, folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    entries
        .take(MOST_ENTRIES)
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()))
        .map(|entry| resolve(&entry.path()))
        .filter(|target| !target.starts_with(root))
        .collect()
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
}
