//! Where fetched and slowly built things are kept, outside the checkout, for all checkouts.

use std::path::{Path, PathBuf};

use crate::Result;

/// `$PL_HOST_CACHE`, or `pl-host` in the user's cache folder.
pub fn root() -> Result<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    of("PL_HOST_CACHE")
        .or_else(|| of("XDG_CACHE_HOME").map(|p| p.join("pl-host")))
        .or_else(|| of("HOME").map(|p| p.join(".cache/pl-host")))
        .ok_or_else(|| "no cache folder: set PL_HOST_CACHE".to_owned())
}

/// Fills `path` through `fill`, which works on a folder beside it; `path` appears whole or not at all.
/// Returns at once where it is there already.
pub fn folder(path: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let failed = |e: std::io::Error| format!("cannot write {}: {e}", partial.display());
    if partial.exists() {
        std::fs::remove_dir_all(&partial).map_err(failed)?;
    }
    std::fs::create_dir_all(&partial).map_err(failed)?;
    fill(&partial)?;
    std::fs::rename(&partial, path).map_err(failed)
}
