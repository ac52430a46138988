//! Python environments in the cache, whose packages are pinned by version and hash.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use pl_toolchain::{cache, command_on_path};

/// File of a complete environment: the requirements that it was made of.
const COMPLETE: &str = "complete";

/// Makes an environment unless it exists, with the packages of `requirements/NAME.txt`. `finish` gets the folder of its
/// packages. Returns its interpreter.
///
/// # Errors
/// If a package can't be fetched, or has another hash.
pub fn set_up(name: &str, note: &str, finish: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let home = cache::root()?.join(name);
    let python = home.join("bin/python");
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("requirements").join(format!("{name}.txt"));
    let wanted = fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
    // Not built aside and renamed, as other folders are: a virtual environment knows its own path.
    if fs::read_to_string(home.join(COMPLETE)).is_ok_and(|made_of| made_of == wanted) {
        return Ok(python);
    }
    eprintln!("fetching {note} into {}, once for all checkouts", home.display());
    succeed(command_on_path("python3")?.args(["-I", "-m", "venv", "--clear"]).arg(&home))?;
    let pip = ["-I", "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps", "--requirement"];
    succeed(Command::new(&python).args(pip).arg(&lock))?;
    finish(&site_packages(&home)?)?;
    fs::write(home.join(COMPLETE), wanted)?;
    Ok(python)
}

fn succeed(command: &mut Command) -> Result<()> {
    let status =
        command.stdout(std::io::stderr()).status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}

/// Returns the folder of the packages of an environment, whose path has the version of its Python.
fn site_packages(home: &Path) -> Result<PathBuf> {
    let lib = home.join("lib");
    for entry in fs::read_dir(&lib).with_context(|| format!("cannot read {}", lib.display()))? {
        let packages = entry?.path().join("site-packages");
        if packages.is_dir() {
            return Ok(packages);
        }
    }
    bail!("{} has no site-packages", lib.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// pip refuses a file of which one package has no hash, but only once it is run.
    #[test]
    fn every_package_has_a_version_and_hashes() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("requirements");
        let mut locks = 0;
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "txt") {
                continue;
            }
            locks += 1;
            let text = fs::read_to_string(&path).unwrap().replace("\\\n", "");
            for line in text.lines().filter(|line| !line.trim_start().starts_with('#')) {
                let (package, hashes) = line.split_once("--hash=sha256:").unwrap_or((line, ""));
                assert!(package.contains("==") && hashes.len() >= 64, "{}: {line}", path.display());
            }
        }
        assert_eq!(locks, 4);
    }
}
