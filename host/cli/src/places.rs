//! Where things are found: plugins, models, task files, the cache.

use std::path::{Path, PathBuf};

use pl_model::{FetchProgress, Hub, HubModel};

use crate::exit::Stop;

/// `$PL_HOST_CACHE`, or `pl-host` in the user's cache folder: the one that set-up fills.
pub fn cache() -> Result<PathBuf, Stop> {
    Ok(pl_toolchain::cache::root()?)
}

/// A plugin: beside the workflow, or in the folder `plugins` beside the program.
pub fn plugin(folder: &Path, path: &str) -> Result<PathBuf, String> {
    let beside = folder.join(path);
    if beside.is_file() {
        return Ok(beside);
    }
    // A file that another one includes may lie in a folder of its own; what is shipped lies in one.
    let name = Path::new(path).file_name().unwrap_or_default();
    let shipped = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join("plugins").join(name)));
    match shipped {
        Some(shipped) if shipped.is_file() => Ok(shipped),
        Some(shipped) => Err(format!("it is neither {} nor {}", beside.display(), shipped.display())),
        None => Err(format!("there is no {}", beside.display())),
    }
}

/// Whether a source of a model is written as it should be; looks at nothing but the text.
pub fn check_model(source: &str) -> Result<(), String> {
    match source.starts_with("hf:") {
        true => source.parse::<HubModel>().map(|_| ()).map_err(|e| e.to_string()),
        false => Ok(()),
    }
}

/// Where a model lies.
pub struct Found {
    pub path: PathBuf,
    /// The source under which the same files are found again, whatever the hub publishes meanwhile.
    pub source: String,
}

/// A model: one of a hub (`hf:owner/name`), a path (`./folder`, `./file.gguf`) beside the workflow, or the name
/// of a fetched one. Only the first may take time: it tells `progress` how far it is.
pub fn model(
    folder: &Path,
    source: &str,
    progress: &mut dyn FnMut(FetchProgress<'_>),
) -> Result<Found, String> {
    if source.starts_with("hf:") {
        return hub_model(source, progress).map_err(|e| e.to_string());
    }
    let found = |path: PathBuf| Found { path, source: source.to_owned() };
    let is_path = source.starts_with(['.', '/']) || source.contains('/') || source.ends_with(".gguf");
    if is_path {
        let path = folder.join(source);
        return match path.exists() {
            true => Ok(found(path)),
            false => Err(format!("there is no {}", path.display())),
        };
    }
    let models = cache().map_err(|_| "there is no cache folder".to_owned())?.join("models");
    let fetched = models.join(source).join("model.gguf");
    if fetched.is_file() {
        return Ok(found(fetched));
    }
    Err(format!(
        "{source:?} is not among the fetched models in {}; `cargo xtask setup` fetches smollm2-135m, a path begins with \"./\", a model of a hub with \"hf:\"",
        models.display()
    ))
}

/// A model that is on this machine already; asks nobody.
pub fn model_here(folder: &Path, source: &str) -> Result<PathBuf, String> {
    if !source.starts_with("hf:") {
        return model(folder, source, &mut |_| {}).map(|found| found.path);
    }
    let wanted: HubModel = source.parse().map_err(|e: pl_model::Error| e.to_string())?;
    let cache = Hub { offline: true, ..Hub::from_env().map_err(|e| e.to_string())? };
    let fetched = cache.fetch(&wanted, &mut |_| {});
    fetched
        .map(|fetched| fetched.path)
        .map_err(|_| "its measures are known once a run has fetched it".to_owned())
}

fn hub_model(source: &str, progress: &mut dyn FnMut(FetchProgress<'_>)) -> Result<Found, pl_model::Error> {
    let mut model: HubModel = source.parse()?;
    let fetched = Hub::from_env()?.fetch(&model, progress)?;
    if let Some(why) = fetched.unasked {
        eprintln!("warning: {model}: {why}; what the cache has of it is used (commit {})", fetched.commit);
    }
    model.revision = Some(fetched.commit);
    Ok(Found { path: fetched.path, source: model.to_string() })
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
