//! Run folders of new and of resumed runs: nothing is overwritten or deleted without the user's consent.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use pl_record::{Lock, RunFolder};

use crate::error::Error;
use crate::host::Host;
use crate::origin::mark_as_own;
use crate::progress::Notice;
use crate::stored::StoredWorkflow;

/// Entries that the folder of a new run had before the run was created. `None` if there was no folder.
pub(crate) struct EntriesBefore(Option<BTreeSet<OsString>>);

impl EntriesBefore {
    fn of(root: &Path) -> Result<EntriesBefore, Error> {
        match names(root) {
            Ok(names) => Ok(EntriesBefore(Some(names))),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(EntriesBefore(None)),
            Err(source) => {
                Err(pl_record::Error::Io { action: "read", path: root.to_path_buf(), source }.into())
            }
        }
    }

    /// Removes what a run that could not start has put into its folder, so that the corrected command can use the same one. What
    /// can't be removed stays.
    pub fn restore(&self, root: &Path) {
        let Some(before) = &self.0 else {
            let _ = fs::remove_dir_all(root);
            return;
        };
        for name in names(root).unwrap_or_default().difference(before) {
            let path = root.join(name);
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
    }
}

/// Returns the names of a folder's entries.
fn names(folder: &Path) -> std::io::Result<BTreeSet<OsString>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Creates the folder of a new run: `folder`, or the first of `runs/NAME`, `runs/NAME-2`, … that no other
/// process takes at the same time. Returns it with what it had before.
///
/// # Errors
/// If `folder` has files that a run would overwrite, or can't be written.
pub(crate) fn create(
    host: &Host,
    folder: Option<&Path>,
    text: &str,
    stored: &StoredWorkflow,
    lock: &Lock,
) -> Result<(RunFolder, EntriesBefore), Error> {
    let (created, before) = loop {
        let root = folder.map_or_else(|| default_folder(&stored.workflow.name), Path::to_path_buf);
        let before = EntriesBefore::of(&root);
        match RunFolder::create(&root, text, stored, lock) {
            Err(taken) if folder.is_none() && is_taken(&taken) => {}
            created => break (created.map_err(Error::RunFolder)?, before?),
        }
    };
    mark(host, created.root());
    Ok((created, before))
}

/// Returns true if another process has created the folder meanwhile.
fn is_taken(error: &pl_record::Error) -> bool {
    use pl_record::Error::{InUse, Locked, Occupied};
    matches!(error, Occupied { .. } | InUse { .. } | Locked { .. })
}

/// Marks a folder as made by this user. A failure only costs a question when the run is resumed.
pub(crate) fn mark(host: &Host, root: &Path) {
    if let Err(error) = mark_as_own(root) {
        host.notify(Notice::NotMarked { run: root.to_path_buf(), reason: error.to_string() });
    }
}

/// Draws the curves of a run. A failure is reported; no run ends because of a picture.
pub(crate) fn draw(host: &Host, folder: &RunFolder) {
    if let Err(error) = folder.draw() {
        host.notify(Notice::NotDrawn { reason: error.to_string() });
    }
}

/// Checks that a run without a checkpoint has recorded nothing, or that the user wants it to start again.
///
/// # Errors
/// [`Error::NothingToResume`].
pub(crate) fn check_start(root: &Path, from_start: bool) -> Result<(), Error> {
    if !from_start && RunFolder::has_episodes(root).map_err(Error::RunFolder)? {
        return Err(Error::NothingToResume { path: root.to_path_buf() });
    }
    Ok(())
}

/// Returns `runs/NAME`, or the first of `runs/NAME-2`, `runs/NAME-3`, … that does not exist.
pub(crate) fn default_folder(name: &str) -> PathBuf {
    let numbered = (2u32..).map(|n| PathBuf::from(format!("runs/{name}-{n}")));
    std::iter::once(PathBuf::from(format!("runs/{name}")))
        .chain(numbered)
        .find(|folder| !folder.exists())
        .unwrap_or_else(|| PathBuf::from("runs").join(name))
}
