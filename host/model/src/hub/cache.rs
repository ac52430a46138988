//! Folders of the cache, in the layout of `huggingface_hub`: `blobs` by checksum, `snapshots` by commit with
//! links to blobs, `refs` from names of revisions to commits.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::listing::{INDEX, MODEL_FILES, SINGLE_FILE, read_index};
use super::source::{HubRepository, is_path_segment};

/// Folder of a repository in the cache.
pub(super) struct CachedRepo<'a> {
    pub(super) repository: &'a HubRepository,
    folder: PathBuf,
    locks: PathBuf,
}

impl<'a> CachedRepo<'a> {
    pub(super) fn new(cache: &Path, repository: &'a HubRepository) -> Self {
        let name = format!("{}--{}", repository.collection(), repository.name.replace('/', "--"));
        Self { repository, folder: cache.join(&name), locks: cache.join(".locks").join(name) }
    }

    /// Returns the commit of the requested revision, if the cache knows it.
    pub(super) fn commit(&self) -> Option<String> {
        let revision = self.repository.revision.as_str();
        if is_commit(revision) {
            return Some(revision.to_owned());
        }
        let commit = fs::read_to_string(self.folder.join("refs").join(revision)).ok()?;
        Some(commit.trim().to_owned()).filter(|commit| is_commit(commit))
    }

    /// Returns the folder of a commit's files.
    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// Returns the model's folder of a commit, or one file of it, if all required files are in the cache.
    pub(super) fn complete(&self, commit: &str, file: Option<&str>) -> Option<PathBuf> {
        let snapshot = self.snapshot(commit);
        let has = |name: &str| snapshot.join(name).is_file();
        if let Some(file) = file {
            return has(file).then(|| snapshot.join(file));
        }
        let weights = match has(INDEX) {
            true => read_index(&snapshot.join(INDEX)).is_ok_and(|files| files.iter().all(|file| has(file))),
            false => has(SINGLE_FILE),
        };
        (weights && MODEL_FILES[..2].iter().all(|part| has(part))).then_some(snapshot)
    }

    /// Returns the files of a commit whose paths begin with a prefix and that `is_wanted` accepts, sorted. Returns `None` if
    /// the cache has none, or not all of their parts (`…-00000-of-00002…`).
    pub(super) fn files(
        &self,
        commit: &str,
        prefix: &str,
        is_wanted: &dyn Fn(&str) -> bool,
    ) -> Option<Vec<PathBuf>> {
        let snapshot = self.snapshot(commit);
        let (inside, _) = prefix.rsplit_once('/').unwrap_or(("", prefix));
        let mut files = Vec::new();
        for entry in fs::read_dir(snapshot.join(inside)).ok()? {
            let path = entry.ok()?.path();
            let name = path.strip_prefix(&snapshot).ok()?.to_str()?.to_owned();
            if name.starts_with(prefix) && is_wanted(&name) && path.is_file() {
                files.push(path);
            }
        }
        files.sort();
        let first = files.first()?.file_name()?.to_str()?;
        let parts = first.split("-of-").nth(1).map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        let parts: Option<usize> = parts.flatten().and_then(|digits| digits.parse().ok());
        parts.is_none_or(|parts| parts == files.len()).then_some(files)
    }

    /// Returns the paths of the content with a checksum, complete and during the download.
    pub(super) fn blob_paths(&self, etag: &str) -> io::Result<(PathBuf, PathBuf)> {
        let blobs = self.folder.join("blobs");
        fs::create_dir_all(&blobs)?;
        Ok((blobs.join(etag), blobs.join(format!("{etag}.incomplete"))))
    }

    /// Waits until no other process downloads the same content. The lock ends when the file is closed.
    pub(super) fn lock(&self, etag: &str) -> io::Result<File> {
        fs::create_dir_all(&self.locks)?;
        let file = File::create(self.locks.join(format!("{etag}.lock")))?;
        file.lock()?;
        Ok(file)
    }

    /// Links content into a snapshot under its name.
    pub(super) fn link(&self, commit: &str, name: &str, etag: &str) -> io::Result<PathBuf> {
        let pointer = self.snapshot(commit).join(name);
        if let Some(folder) = pointer.parent() {
            fs::create_dir_all(folder)?;
        }
        // Up from the folders of the name, the commit and `snapshots`.
        let up = "../".repeat(name.split('/').count() + 1);
        if fs::symlink_metadata(&pointer).is_ok() {
            fs::remove_file(&pointer)?;
        }
        match std::os::unix::fs::symlink(format!("{up}blobs/{etag}"), &pointer) {
            // Another process has just created the same link.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(pointer),
            result => result.map(|()| pointer),
        }
    }

    /// Writes the commit of the revision's name.
    pub(super) fn write_ref(&self, commit: &str) -> io::Result<()> {
        if commit == self.repository.revision {
            return Ok(());
        }
        let path = self.folder.join("refs").join(&self.repository.revision);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, commit)
    }
}

/// Returns true for a complete commit hash.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Returns true if a checksum of the hub is a valid file name.
pub(super) fn is_etag(text: &str) -> bool {
    is_path_segment(text) && text.len() <= 128
}
