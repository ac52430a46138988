//! Decision about the files that a workflow names.

use std::path::{Path, PathBuf};

use super::given::Given;
use super::path::{links_out_of, resolve};
use super::{Access, SharedPermissions};

/// Decides which files of a workflow may be read: those of its folder, those on the command line, and those that the user
/// allowed.
#[derive(Debug)]
pub(crate) struct Reads {
    permissions: SharedPermissions,
    given: Given,
}

impl Reads {
    /// Returns the decision for a workflow with the permissions of all workflows and what is given to it.
    pub fn new(permissions: SharedPermissions, given: Given) -> Reads {
        Reads { permissions, given }
    }

    pub fn given(&self) -> &Given {
        &self.given
    }

    /// Allows access for this workflow alone.
    pub fn allow(&mut self, more: impl IntoIterator<Item = Access>) {
        self.given.allow(more);
    }

    /// Returns true if the user allowed an access, for this workflow or for all.
    pub fn allows(&self, access: &Access) -> bool {
        self.given.allows(access) || self.permissions.allows(access)
    }

    /// Checks that a file or folder may be read.
    ///
    /// # Errors
    /// The path outside of the workflow's folder that would be read.
    pub fn check(&self, path: &Path) -> Result<(), PathBuf> {
        for path in self.leaving(path) {
            let access = Access::Read(path.clone());
            if !self.given.has(&access, "") && !self.allows(&access) {
                return Err(path);
            }
        }
        Ok(())
    }

    /// Returns the paths outside of the workflow's folder that reading `path` leads to: its own, or the targets of a
    /// folder's links.
    pub fn leaving(&self, path: &Path) -> Vec<PathBuf> {
        let (resolved, root) = (resolve(path), self.given.root());
        if !resolved.starts_with(root) {
            return vec![resolved];
        }
        if resolved.is_dir() { links_out_of(root, &resolved) } else { Vec::new() }
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
        let reads = Reads::new(permissions.clone(), Given::new([], &project));
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
