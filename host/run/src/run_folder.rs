//! Run folders of new and of resumed runs: nothing is overwritten or deleted without the user's consent.

use std::path::{Path, PathBuf};

use pl_record::{Lock, RunFolder};

use crate::error::Error;
use crate::host::Host;
use crate::origin::mark_as_own;
use crate::progress::Notice;
use crate::stored::StoredWorkflow;

/// Creates the folder of a new run: `folder`, or the first of `runs/NAME`, `runs/NAME-2`, … that no other
/// process takes at the same time.
///
/// # Errors
/// If `folder` has files that a run would overwrite, or can't be written.
pub(crate) fn create(
    host: &Host,
    folder: Option<&Path>,
    text: &str,
    stored: &StoredWorkflow,
    lock: &Lock,
) -> Result<RunFolder, Error> {
    let created = loop {
        let root = folder.map_or_else(|| default_folder(&stored.workflow.name), Path::to_path_buf);
        match RunFolder::create(&root, text, stored, lock) {
            Err(taken) if folder.is_none() && is_taken(&taken) => {}
            created => break created.map_err(Error::RunFolder)?,
        }
    };
    mark(host, created.root());
    Ok(created)
}

/// Returns true if another process has created the folder meanwhile.
fn is_taken(error: &pl_record::Error) -> bool {
    use pl_record::Error::{InUse, Locked, Occupied, Unstarted};
    matches!(error, Occupied { .. } | InUse { .. } | Unstarted { .. } | Locked { .. })
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
