//! The cache's folders, as `huggingface_hub` lays them out: `blobs` by checksum, `snapshots` of links into
//! them by commit, `refs` from names of revisions to commits.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::source::is_part;
use super::{HubModel, INDEX, PARTS, WHOLE, shards};

/// A model's folder of the cache.
pub(super) struct Repo<'a> {
    pub(super) model: &'a HubModel,
    folder: PathBuf,
    locks: PathBuf,
}

impl<'a> Repo<'a> {
    pub(super) fn new(cache: &Path, model: &'a HubModel) -> Self {
        let name = format!("models--{}", model.repo.replace('/', "--"));
        Self { model, folder: cache.join(&name), locks: cache.join(".locks").join(name) }
    }

    /// The commit of the wanted revision, as far as it is known here.
    pub(super) fn commit(&self) -> Option<String> {
        let revision = self.model.revision();
        if is_commit(revision) {
            return Some(revision.to_owned());
        }
        let commit = fs::read_to_string(self.folder.join("refs").join(revision)).ok()?;
        Some(commit.trim().to_owned()).filter(|commit| is_commit(commit))
    }

    /// The folder of a commit's files.
    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.folder.join("snapshots").join(commit)
    }

    /// The wanted folder or file of a commit, where every file that a model must have is here.
    pub(super) fn complete(&self, commit: &str) -> Option<PathBuf> {
        let snapshot = self.snapshot(commit);
        let has = |name: &str| snapshot.join(name).is_file();
        if let Some(file) = &self.model.file {
            return has(file).then(|| snapshot.join(file));
        }
        let weights = match has(INDEX) {
            true => shards(&snapshot.join(INDEX)).is_ok_and(|files| files.iter().all(|file| has(file))),
            false => has(WHOLE),
        };
        (weights && PARTS[..2].iter().all(|part| has(part))).then_some(snapshot)
    }

    /// Where the content with a checksum lies, and where it grows while it is fetched.
    pub(super) fn blob(&self, etag: &str) -> io::Result<(PathBuf, PathBuf)> {
        let blobs = self.folder.join("blobs");
        fs::create_dir_all(&blobs)?;
        Ok((blobs.join(etag), blobs.join(format!("{etag}.incomplete"))))
    }

    /// Waits until no other process fetches the same content; the lock ends with the file.
    pub(super) fn lock(&self, etag: &str) -> io::Result<File> {
        fs::create_dir_all(&self.locks)?;
        let file = File::create(self.locks.join(format!("{etag}.lock")))?;
        file.lock()?;
        Ok(file)
    }

    /// Makes content appear in a snapshot under its name.
    pub(super) fn link(&self, commit: &str, name: &str, etag: &str) -> io::Result<PathBuf> {
        let pointer = self.snapshot(commit).join(name);
        if let Some(folder) = pointer.parent() {
            fs::create_dir_all(folder)?;
        }
        // Up from the name's own folders, the commit's and `snapshots`.
        let up = "../".repeat(name.split('/').count() + 1);
        if fs::symlink_metadata(&pointer).is_ok() {
            fs::remove_file(&pointer)?;
        }
        match std::os::unix::fs::symlink(format!("{up}blobs/{etag}"), &pointer) {
            // Another process has just made the same link.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(pointer),
            made => made.map(|()| pointer),
        }
    }

    /// Lets the name of the revision point at a commit.
    pub(super) fn point(&self, commit: &str) -> io::Result<()> {
        if commit == self.model.revision() {
            return Ok(());
        }
        let path = self.folder.join("refs").join(self.model.revision());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(path, commit)
    }
}

/// Whether a text is a whole commit hash.
pub(super) fn is_commit(text: &str) -> bool {
    text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Whether a checksum of the hub may name a file here.
pub(super) fn is_etag(text: &str) -> bool {
    is_part(text) && text.len() <= 128
}
