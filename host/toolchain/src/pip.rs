//! pip as the client of the Python package index. Everything is pinned by version and hash.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cache;
use crate::error::{Error, Result};
use crate::process::{ProgressFn, command_on_path, run};

/// A pinned wheel of the Python package index.
#[derive(Debug, Clone, Copy)]
pub struct Wheel<'a> {
    pub name: &'a str,
    pub version: &'a str,
    /// Hash of the wheel file in hex.
    pub sha256: &'a str,
}

impl Wheel<'_> {
    /// Line of a requirements file.
    fn requirement(&self) -> String {
        format!("{}=={} --hash=sha256:{}\n", self.name, self.version, self.sha256)
    }

    /// Folder of the cache for the installed wheel.
    pub(crate) fn folder(&self) -> Result<PathBuf> {
        cache::tool(self.name, self.version)
    }

    /// Installs the wheel into its folder of the cache, unless it is there, and returns the folder.
    pub(crate) fn install(&self, size: &str, progress: ProgressFn) -> Result<PathBuf> {
        let folder = self.folder()?;
        cache::folder(&folder, |partial| {
            progress(&format!("fetching {} {} ({size}) to {}", self.name, self.version, folder.display()));
            self.unpack(partial)
        })?;
        Ok(folder)
    }

    /// Installs the wheel into a folder.
    pub(crate) fn unpack(&self, folder: &Path) -> Result<()> {
        let mut pip = pip("install", &self.requirement(), folder)?;
        pip.args(["--quiet", "--no-compile", "--only-binary", ":all:", "--target"]).arg(folder);
        run(&mut pip, &failure(self.name))
    }
}

/// Downloads wheels for CPython 3.12 on Linux on x86-64, so that every machine gets the same files whatever
/// its own Python is. pip's messages go to stderr.
///
/// # Errors
/// [`Error::Failed`] if pip does not start or can't download one of them.
pub fn download_wheels(wheels: &[Wheel<'_>], folder: &Path) -> Result<()> {
    const PLATFORMS: [&str; 8] = [
        "manylinux_2_28_x86_64",
        "manylinux_2_27_x86_64",
        "manylinux_2_25_x86_64",
        "manylinux_2_18_x86_64",
        "manylinux_2_17_x86_64",
        "manylinux2014_x86_64",
        "manylinux2010_x86_64",
        "any",
    ];
    let requirements: String = wheels.iter().map(Wheel::requirement).collect();
    let mut pip = pip("download", &requirements, folder)?;
    pip.args(["--only-binary", ":all:", "--python-version", "3.12", "--implementation", "cp"]);
    pip.args(["--abi", "cp312", "--abi", "none"]);
    pip.args(PLATFORMS.iter().flat_map(|platform| ["--platform", platform])).arg("--dest").arg(folder);
    let status = pip.stdout(std::io::stderr()).status().map_err(no_python)?;
    if status.success() {
        return Ok(());
    }
    let names: Vec<_> = wheels.iter().map(|wheel| wheel.name).collect();
    Err(Error::failed(format!("{} (its message is above)", failure(&names.join(", ")))))
}

/// Downloads the source archive of a package.
pub(crate) fn download_source(name: &str, requirement: &str, folder: &Path) -> Result<()> {
    let mut pip = pip("download", requirement, folder)?;
    pip.args(["--quiet", "--no-binary", ":all:", "--dest"]).arg(folder);
    run(&mut pip, &failure(name))
}

/// Returns a pip command for the given lines of a requirements file, which is written to `folder`.
fn pip(command: &str, requirements: &str, folder: &Path) -> Result<Command> {
    let file = folder.join("requirements.txt");
    std::fs::write(&file, requirements).map_err(Error::io("write", &file))?;
    let mut pip = command_on_path("python3").map_err(no_python)?;
    // Isolated: a `pip.py` in the folder where the program was started must not run.
    pip.args(["-I", "-m", "pip", command, "--disable-pip-version-check", "--no-deps", "--require-hashes"]);
    pip.arg("--requirement").arg(file).stdin(Stdio::null());
    Ok(pip)
}

fn no_python(error: std::io::Error) -> Error {
    Error::failed(format!("cannot start python3 ({error}): install Python 3 with pip"))
}

fn failure(names: &str) -> String {
    format!(
        "pip could not fetch {names}; check that `python3 -m pip --version` works and that the package index can be \
         reached"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_of_the_working_folder_are_not_run() {
        if crate::process::on_path("python3").is_none() {
            return pl_testing::skip_or_fail(pl_testing::Requirement::Python, "python3 is not on the PATH");
        }
        let project = tempfile::tempdir().unwrap();
        let ran = project.path().join("ran");
        std::fs::write(project.path().join("pip.py"), format!("open({ran:?}, 'w')\n")).unwrap();
        let mut pip = pip("download", "", project.path()).unwrap();
        // Without a requirement pip has nothing to do, or refuses.
        pip.current_dir(project.path()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
        assert!(!ran.exists());
    }
}
