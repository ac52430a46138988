//! Paths of files and folders whose opening is checked.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;

/// Check of a file once it is open. Its path, or a folder on the way to it, may have become a link since the path was
/// checked.
pub trait CheckOpened: fmt::Debug + Send + Sync {
    /// Returns an error if the file may not be read.
    ///
    /// # Errors
    /// The reason, with what to do.
    fn check(&self, file: &File) -> io::Result<()>;
}

/// Path of a file or folder to read. Plain paths convert to it, without a check.
#[derive(Debug, Clone)]
pub struct SourcePath {
    path: PathBuf,
    check: Option<Arc<dyn CheckOpened>>,
}

impl SourcePath {
    /// Returns a path whose file, or files below it, are checked once they are open.
    pub fn checked(path: impl Into<PathBuf>, check: Arc<dyn CheckOpened>) -> SourcePath {
        SourcePath { path: path.into(), check: Some(check) }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a path below this one, with the same check.
    #[must_use]
    pub fn join(&self, below: impl AsRef<Path>) -> SourcePath {
        SourcePath { path: self.path.join(below), check: self.check.clone() }
    }

    /// Returns true if files are checked once they are open.
    pub fn is_checked(&self) -> bool {
        self.check.is_some()
    }

    /// Opens the file.
    ///
    /// # Errors
    /// Those of [`open_file`], or of the check.
    pub fn open(&self) -> io::Result<File> {
        let file = open_file(&self.path)?;
        if let Some(check) = &self.check {
            check.check(&file)?;
        }
        Ok(file)
    }

    /// Reads the file.
    ///
    /// # Errors
    /// Those of [`SourcePath::open`].
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open()?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads a file of at most `largest` bytes.
    ///
    /// # Errors
    /// Those of [`SourcePath::open`], and if it is larger.
    pub fn read_at_most(&self, largest: u64) -> io::Result<Vec<u8>> {
        let too_large = || io::Error::other(format!("it is larger than {} MiB", largest >> 20));
        let file = self.open()?;
        // A sparse file may have any size.
        if file.metadata()?.len() > largest {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        // Another process may append to it meanwhile.
        file.take(largest + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > largest { Err(too_large()) } else { Ok(bytes) }
    }

    /// Reads a text.
    ///
    /// # Errors
    /// Those of [`SourcePath::open`], and if it is not UTF-8.
    pub fn read_to_string(&self) -> io::Result<String> {
        let mut text = String::new();
        self.open()?.read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Opens a file to read it, without waiting.
///
/// # Errors
/// The error of the system, or if it is not a regular file: opening a pipe would wait for a writer, and devices may never
/// end.
pub fn open_file(path: &Path) -> io::Result<File> {
    let not_a_file = || io::Error::other("it is not a file");
    // Opening a device may already have an effect.
    if !path.metadata()?.is_file() {
        return Err(not_a_file());
    }
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // The path may have become a pipe since.
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_a_file()) }
}

impl From<PathBuf> for SourcePath {
    fn from(path: PathBuf) -> SourcePath {
        SourcePath { path, check: None }
    }
}

impl From<&SourcePath> for SourcePath {
    fn from(path: &SourcePath) -> SourcePath {
        path.clone()
    }
}

impl<P: AsRef<Path> + ?Sized> From<&P> for SourcePath {
    fn from(path: &P) -> SourcePath {
        path.as_ref().to_path_buf().into()
    }
}

/// Returns true if a path that a link in a folder leads to is content of the folder: below it, or among the blobs of a hub's
/// repository that the folder is a snapshot of (`models--OWNER--NAME/snapshots/COMMIT`). Neither path has links.
pub fn is_content_of(folder: &Path, target: &Path) -> bool {
    let is_blob = |snapshots: &Path| {
        let Some(repository) = snapshots.parent() else { return false };
        let name = repository.file_name().unwrap_or_default().to_string_lossy();
        let is_repository = name.starts_with("models--") || name.starts_with("datasets--");
        is_repository && target.starts_with(repository.join("blobs"))
    };
    target.starts_with(folder) || folder.ancestors().filter(|above| above.ends_with("snapshots")).any(is_blob)
}
