//! The cache folder: downloads and slow builds, shared by all projects and checkouts.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Returns `$PL_HOST_CACHE`, or `pl-host` in the user's cache folder.
///
/// # Errors
/// [`Error::Input`] if no environment variable names such a folder.
pub fn root() -> Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    variable("PL_HOST_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|p| p.join("pl-host")))
        .or_else(|| variable("HOME").map(|p| p.join(".cache/pl-host")))
        .ok_or_else(|| Error::Input("no cache folder is known: set HOME or PL_HOST_CACHE".to_owned()))
}

/// Returns the folder of a fetched tool.
pub(crate) fn tool(name: &str, version: &str) -> Result<PathBuf> {
    Ok(root()?.join("toolchains").join(format!("{name}-{version}")))
}

/// Creates the folder `path` with the content that `fill` writes to the folder it receives. `path` appears
/// only if `fill` succeeds. Does nothing if `path` exists.
///
/// # Errors
/// Errors of `fill` and of the file system.
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
