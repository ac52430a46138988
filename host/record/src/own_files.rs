//! Files of steps, found by the form of their names.

use std::fs;
use std::path::{Path, PathBuf};

use crate::atomic::{create_folder, partial_target, sync_folder};
use crate::error::Error;

/// Parses the number of a step in the form in which file names have it: at least six digits.
pub(crate) fn parse_step(digits: &str) -> Option<u64> {
    let step = digits.parse().ok()?;
    (format!("{step:06}") == digits).then_some(step)
}

/// Lists the run's own files in a folder, each with its step. Unfinished ones have none. A missing folder has
/// no files. `step_of` parses a name and returns `None` if it is not of the run's form.
pub(crate) fn own_files(
    folder: &Path,
    step_of: impl Fn(&str) -> Option<u64>,
) -> Result<Vec<(PathBuf, Option<u64>)>, Error> {
    let mut files = Vec::new();
    if !folder.is_dir() {
        return Ok(files);
    }
    for entry in fs::read_dir(folder).map_err(Error::io("read", folder))? {
        let path = entry.map_err(Error::io("read", folder))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        if let Some(step) = step_of(name) {
            files.push((path, Some(step)));
        } else if partial_target(name).and_then(&step_of).is_some() {
            files.push((path, None));
        }
    }
    Ok(files)
}

/// Deletes the run's own files of later steps than `step` in a folder, and unfinished ones. Creates the
/// folder if it is missing.
pub(crate) fn delete_later(
    folder: &Path,
    step: u64,
    step_of: impl Fn(&str) -> Option<u64>,
) -> Result<(), Error> {
    create_folder(folder)?;
    for (path, file_step) in own_files(folder, step_of)? {
        if file_step.is_none_or(|file_step| file_step > step) {
            fs::remove_file(&path).map_err(Error::io("remove", &path))?;
        }
    }
    sync_folder(folder)
}
