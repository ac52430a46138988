//! Where things are found: plugins, models, task files, the cache.

use std::path::{Path, PathBuf};

use crate::exit::Stop;

/// `$PL_HOST_CACHE`, or `pl-host` in the user's cache folder.
pub fn cache() -> Result<PathBuf, Stop> {
    let of = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    of("PL_HOST_CACHE")
        .or_else(|| of("XDG_CACHE_HOME").map(|p| p.join("pl-host")))
        .or_else(|| of("HOME").map(|p| p.join(".cache/pl-host")))
        .ok_or_else(|| Stop::input("there is no cache folder: set HOME or PL_HOST_CACHE"))
}

/// A plugin: beside the workflow, or in the folder `plugins` beside the program.
pub fn plugin(folder: &Path, path: &str) -> Result<PathBuf, String> {
    let beside = folder.join(path);
    if beside.is_file() {
        return Ok(beside);
    }
    let shipped = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("plugins").join(path)));
    match shipped {
        Some(shipped) if shipped.is_file() => Ok(shipped),
        Some(shipped) => Err(format!("it is neither {} nor {}", beside.display(), shipped.display())),
        None => Err(format!("there is no {}", beside.display())),
    }
}

/// A model: a path (`./folder`, `./file.gguf`) beside the workflow, or the name of a fetched one.
pub fn model(folder: &Path, source: &str) -> Result<PathBuf, String> {
    if source.starts_with("hf:") {
        return Err(format!(
            "{source:?}: fetching from a hub is not supported yet; give a folder (\"./folder\") or a GGUF file (\"./file.gguf\")"
        ));
    }
    let is_path = source.starts_with(['.', '/']) || source.contains('/') || source.ends_with(".gguf");
    if is_path {
        let path = folder.join(source);
        return match path.exists() {
            true => Ok(path),
            false => Err(format!("there is no {}", path.display())),
        };
    }
    let models = cache().map_err(|_| "there is no cache folder".to_owned())?.join("models");
    let fetched = models.join(source).join("model.gguf");
    if fetched.is_file() {
        return Ok(fetched);
    }
    Err(format!(
        "{source:?} is not among the fetched models in {}; `cargo xtask setup` fetches smollm2-135m, a path begins with \"./\"",
        models.display()
    ))
}

/// A task file: beside the workflow, or in the working folder (for `--set`).
pub fn tasks(folder: &Path, path: &str) -> Result<PathBuf, String> {
    let beside = folder.join(path);
    let here = PathBuf::from(path);
    [&beside, &here]
        .into_iter()
        .find(|p| p.is_file())
        .cloned()
        .ok_or_else(|| format!("there is no task file {}", beside.display()))
}
