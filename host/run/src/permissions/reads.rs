//! Decision about the files that a workflow names.

use std::path::{Path, PathBuf};

use super::given::Given;
use super::path::{links_out_of, resolve};
use super::{Access, SharedPermissions};

/// Decides which files of a workflow may be read: those of its folder, those on the command line, and those that the user
/// allowed.
#[derive(Debug)]
pub(crate) struct Reads {
    /// The workflow's folder, resolved.
    root: PathBuf,
    permissions: SharedPermissions,
    given: Given,
}

impl Reads {
    /// Returns the decision for a workflow in `folder`.
    pub fn new(folder: &Path, permissions: SharedPermissions, given: Given) -> Reads {
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        Reads { root: resolve(folder), permissions, given }
    }

    pub fn given(&self) -> &Given {
        &self.given
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Checks that a file or folder may be read.
    ///
    /// # Errors
    /// The path outside of the workflow's folder that would be read.
    pub fn check(&self, path: &Path) -> Result<(), PathBuf> {
        for path in self.leaving(path) {
            let access = Access::Read(path.clone());
            if !self.given.has(&access, "", &self.root) && !self.permissions.allows(&access) {
                return Err(path);
            }
        }
        Ok(())
    }

    /// Returns the paths outside of the workflow's folder that reading `path` leads to: its own, or the targets of a
    /// folder's links.
    pub fn leaving(&self, path: &Path) -> Vec<PathBuf> {
        let resolved = resolve(path);
        if !resolved.starts_with(&self.root) {
            return vec![resolved];
        }
        if resolved.is_dir() { links_out_of(&self.root, &resolved) } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_outside_of_the_folder_are_refused_unless_they_are_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (project, other) = (root.join("project"), root.join("other"));
        std::fs::create_dir_all(project.join("model")).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("x"), "").unwrap();
        symlink(other.join("x"), project.join("link")).unwrap();
        symlink(other.join("x"), project.join("model/config.json")).unwrap();
        let permissions = SharedPermissions::default();
        let reads = Reads::new(&project, permissions.clone(), Given::default());
        assert_eq!(reads.check(&project.join("a/b")), Ok(()));
        let refused = ["../other/x", "link", "model", "/etc/passwd", "a/../../other/y"];
        for path in refused {
            assert!(reads.check(&project.join(path)).is_err(), "{path}");
        }
        assert_eq!(reads.check(&project.join("link")), Err(other.join("x")));
        permissions.allow([Access::read(&other)]);
        for path in ["../other/x", "link", "model"] {
            assert_eq!(reads.check(&project.join(path)), Ok(()), "{path}");
        }
        assert!(reads.check(Path::new("/etc/passwd")).is_err());
    }
}
