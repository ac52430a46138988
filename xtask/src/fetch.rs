//! Wheels from the Python package index: fetched with pip, pinned by hash, unpacked in part.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

pub use pl_toolchain::pip::Wheel;

use crate::Result;

/// Fetches `wheels` and unpacks the members that `wanted` maps to a path below `into`.
pub fn unpack(wheels: &[Wheel<'_>], into: &Path, wanted: impl Fn(&str) -> Option<PathBuf>) -> Result<()> {
    let downloads = into.join("downloads");
    std::fs::create_dir_all(&downloads).map_err(|e| format!("cannot write {}: {e}", downloads.display()))?;
    pl_toolchain::pip::download_wheels(wheels, &downloads)?;
    let entries = std::fs::read_dir(&downloads).map_err(|e| e.to_string())?;
    for entry in entries {
        let wheel = entry.map_err(|e| e.to_string())?.path();
        if wheel.extension().is_some_and(|e| e == "whl") {
            unpack_one(&wheel, into, &wanted)
                .map_err(|e| format!("cannot unpack {}: {e}", wheel.display()))?;
        }
    }
    std::fs::remove_dir_all(&downloads).map_err(|e| e.to_string())
}

fn unpack_one(wheel: &Path, into: &Path, wanted: impl Fn(&str) -> Option<PathBuf>) -> io::Result<()> {
    let mut archive = zip::ZipArchive::new(File::open(wheel)?)?;
    for index in 0..archive.len() {
        let mut member = archive.by_index(index)?;
        if member.is_dir() {
            continue;
        }
        let Some(target) = member.enclosed_name().and_then(|name| wanted(&name.to_string_lossy())) else {
            continue;
        };
        let target = into.join(target);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        io::copy(&mut member, &mut File::create(&target)?)?;
    }
    Ok(())
}
