//! Where fetched and slowly built things are kept, outside of projects and checkouts, for all of them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// `$PL_HOST_CACHE`, or `pl-host` in the user's cache folder.
///
/// # Errors
/// When no variable says where that is.
pub fn root() -> Result<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    of("PL_HOST_CACHE")
        .or_else(|| of("XDG_CACHE_HOME").map(|p| p.join("pl-host")))
        .or_else(|| of("HOME").map(|p| p.join(".cache/pl-host")))
        .ok_or_else(|| Error::Input("there is no cache folder: set HOME or PL_HOST_CACHE".to_owned()))
}

/// Fills `path` through `fill`, which works on a folder beside it; `path` appears whole or not at all.
/// Returns at once where it is there already.
///
/// # Errors
/// What `fill` fails with, and a disk that can't be written.
pub fn folder<E: From<Error>>(
    path: &Path,
    fill: impl FnOnce(&Path) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    if path.exists() {
        return Ok(());
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(Error::io("remove", &partial))?;
    }
    fs::create_dir_all(&partial).map_err(Error::io("create", &partial))?;
    fill(&partial)?;
    Ok(fs::rename(&partial, path).map_err(Error::io("write", path))?)
}
