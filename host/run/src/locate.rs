//! Files that a workflow names: plugins, models, corpora and task files.

use std::path::{Path, PathBuf};

use pl_data::FolderSplit;
use pl_dsl::workflow::Plugin;
use pl_model::{FetchProgress, Hub, HubModel};

use crate::error::locate::LocateError;
use crate::host::Host;
use crate::permissions::ReadPolicy;
use crate::progress::{Activity, Notice, Progress, Tracker};

/// Returns the path of a plugin: next to the workflow, or, if it is written as a file name alone, in the folder `plugins` next to the
/// program. A file that may not be read is not looked for. Returns `None` for the built-in plugin.
///
/// # Errors
/// [`LocateError::NoPlugin`] if it is in neither; [`LocateError::NoPluginAt`]; [`LocateError::NotAllowed`].
pub(crate) fn plugin(
    reads: &ReadPolicy,
    folder: &Path,
    block: &Plugin,
) -> Option<Result<PathBuf, LocateError>> {
    let local = folder.join(block.path.as_ref()?);
    Some(component(reads, local, block.shipped_name()))
}

fn component(reads: &ReadPolicy, local: PathBuf, name: Option<&str>) -> Result<PathBuf, LocateError> {
    let allowed = reads.check(&local);
    if allowed.is_ok() && local.is_file() {
        return Ok(local);
    }
    let shipped = name.and_then(|name| Some(shipped_plugins()?.join(name)));
    match shipped {
        Some(shipped) if shipped.is_file() => Ok(shipped),
        _ if allowed.is_err() => allowed.map(|()| local).map_err(LocateError::NotAllowed),
        Some(shipped) => Err(LocateError::NoPlugin { local, shipped }),
        None => Err(LocateError::NoPluginAt { shipped: shipped_like(&local), local }),
    }
}

/// Returns the name of the shipped plugin whose file has the same name. Returns `None` for other names.
fn shipped_like(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    shipped_plugins()?.join(name).is_file().then(|| name.to_owned())
}

/// Returns the folder of plugins that are shipped with the program.
pub fn shipped_plugins() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.join("plugins"))
}

/// Returns true if a path is in the folder of shipped plugins.
pub(crate) fn is_shipped(path: &Path) -> bool {
    shipped_plugins().is_some_and(|plugins| path.starts_with(plugins))
}

/// Task file, or folder with a split of tasks.
pub(crate) struct TaskPath {
    pub path: PathBuf,
    /// `None` for a file.
    pub split: Option<FolderSplit>,
}

impl TaskPath {
    /// Finds a task file, or a folder of task files, at a path. Returns `None` if neither is there.
    pub(crate) fn find(path: PathBuf, split: FolderSplit) -> Option<TaskPath> {
        if path.is_dir() {
            return Some(TaskPath { path, split: Some(split) });
        }
        (path.is_file() && split == FolderSplit::default()).then_some(TaskPath { path, split: None })
    }
}

/// Returns the path of a task file or folder: next to the workflow, or in the working folder (for `--set`). Looks only for those
/// that may be read: errors say nothing about others.
///
/// # Errors
/// [`LocateError::NoTaskFile`] if it is in neither; [`LocateError::NotAllowed`].
pub(crate) fn task_path(reads: &ReadPolicy, folder: &Path, written: &str) -> Result<TaskPath, LocateError> {
    let mut refused = None;
    for base in [folder, Path::new("")] {
        for (path, split) in FolderSplit::readings(written) {
            let path = base.join(path);
            if let Err(outside) = reads.check(&path) {
                // The shortest path, which is the folder's if there is a split, is the one to allow.
                if base == folder {
                    refused = Some(outside);
                }
            } else if let Some(found) = TaskPath::find(path, split) {
                return Ok(found);
            }
        }
    }
    Err(refused.map_or_else(|| LocateError::NoTaskFile(folder.join(written)), LocateError::NotAllowed))
}

/// Returns the path of a corpus: next to the workflow, or in the working folder (for `--set`). Looks only for files that may be
/// read: errors say nothing about others.
///
/// # Errors
/// [`LocateError::NoFile`] if it is in neither; [`LocateError::NotAllowed`].
pub(crate) fn corpus(reads: &ReadPolicy, folder: &Path, path: &str) -> Result<PathBuf, LocateError> {
    let (local, here) = (folder.join(path), PathBuf::from(path));
    let allowed = reads.check(&local);
    if allowed.is_ok() && local.is_file() {
        return Ok(local);
    }
    if reads.check(&here).is_ok() && here.is_file() {
        return Ok(here);
    }
    Err(allowed.map_or_else(LocateError::NotAllowed, |()| LocateError::NoFile(local)))
}

/// Checks the form of a model's source. Only the text is examined.
///
/// # Errors
/// [`LocateError::Hub`] if a source that begins with `hf:` is malformed.
pub fn check_model_source(source: &str) -> Result<(), LocateError> {
    if source.starts_with("hf:") {
        source.parse::<HubModel>()?;
    }
    Ok(())
}

/// Model on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocatedModel {
    /// Model folder, or GGUF file.
    pub path: PathBuf,
    /// Source under which the same files are found again. For a model of a hub it names the commit.
    pub source: String,
}

/// Finds a model: one of a hub (`hf:owner/name`), which is fetched if necessary, a path (`./folder`,
/// `./file.gguf`) relative to the workflow, or the name of a fetched model.
///
/// # Errors
/// If it does not exist or can't be fetched.
pub fn model(host: &Host, folder: &Path, source: &str) -> Result<LocatedModel, LocateError> {
    if !source.starts_with("hf:") {
        return Ok(LocatedModel { path: local_model(folder, source)?, source: source.to_owned() });
    }
    let mut model: HubModel = source.parse()?;
    let mut downloads = Downloads::new(host);
    let fetched = Hub::from_env()?.fetch(&model, &mut |progress| downloads.update(progress))?;
    drop(downloads);
    if let Some(reason) = fetched.cache_reason {
        let (model, commit) = (model.to_string(), fetched.commit.clone());
        host.notify(Notice::HubUnreachable { model, reason: reason.to_string(), commit });
    }
    model.revision = Some(fetched.commit);
    Ok(LocatedModel { path: fetched.path, source: model.to_string() })
}

/// Finds a model that is already on this machine. Nothing is fetched.
///
/// # Errors
/// If it does not exist, or [`LocateError::NotFetched`].
pub fn model_on_disk(folder: &Path, source: &str) -> Result<PathBuf, LocateError> {
    if !source.starts_with("hf:") {
        return local_model(folder, source);
    }
    let wanted: HubModel = source.parse()?;
    let cache = Hub { offline: true, ..Hub::from_env()? };
    cache.fetch(&wanted, &mut |_| {}).map(|fetched| fetched.path).map_err(|_| LocateError::NotFetched)
}

/// Returns true if a model's source is a path, and false for a model of a hub and the name of a fetched one.
pub(crate) fn is_path(source: &str) -> bool {
    let looks = source.starts_with(['.', '/']) || source.contains('/') || source.ends_with(".gguf");
    looks && !source.starts_with("hf:")
}

fn local_model(folder: &Path, source: &str) -> Result<PathBuf, LocateError> {
    if is_path(source) {
        let path = folder.join(source);
        return if path.exists() { Ok(path) } else { Err(LocateError::NoFile(path)) };
    }
    let models = pl_toolchain::cache::root()?.join("models");
    let fetched = models.join(source).join("model.gguf");
    if fetched.is_file() {
        return Ok(fetched);
    }
    Err(LocateError::UnknownModel { name: source.to_owned(), folder: models })
}

/// Reports downloads file by file.
pub(crate) struct Downloads<'a> {
    progress: &'a dyn Progress,
    current: Option<(String, Box<dyn Tracker>)>,
}

impl<'a> Downloads<'a> {
    pub(crate) fn new(host: &'a Host) -> Downloads<'a> {
        Downloads { progress: host.progress().as_ref(), current: None }
    }

    pub(crate) fn update(&mut self, fetched: FetchProgress<'_>) {
        if self.current.as_ref().is_none_or(|(file, _)| file != fetched.file) {
            // The finished file's tracker ends before the next one starts.
            self.current = None;
            let tracker = self.progress.start(Activity::Download { file: fetched.file });
            self.current = Some((fetched.file.to_owned(), tracker));
        }
        if let Some((_, tracker)) = &mut self.current {
            tracker.update(fetched.done, fetched.total);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permissions::{Access, GrantedAccess, SharedPermissions};

    #[test]
    fn a_plugin_whose_path_has_a_folder_is_not_looked_for_among_the_shipped_ones() {
        let shipped = shipped_plugins().unwrap();
        std::fs::create_dir_all(&shipped).unwrap();
        let file = tempfile::Builder::new().suffix(".wasm").tempfile_in(&shipped).unwrap();
        let name = file.path().file_name().unwrap().to_str().unwrap();
        let place = tempfile::tempdir().unwrap();
        let project = place.path().canonicalize().unwrap();
        let reads = ReadPolicy::new(SharedPermissions::default(), GrantedAccess::new([], &project));
        let find = |path: &str, is_name_of_included: bool| {
            let block = Plugin {
                name: "maths".to_owned(),
                path: Some(path.to_owned()),
                is_name_of_included,
                memory: 1,
                fuel: 1,
                timeout: std::time::Duration::from_secs(1),
                grant: pl_dsl::workflow::Grant::default(),
            };
            plugin(&reads, &project, &block).unwrap()
        };
        assert_eq!(find(name, false).unwrap(), file.path());
        let nested = format!("parts/{name}");
        assert_eq!(find(&nested, true).unwrap(), file.path(), "the name alone in parts/team.mas");
        for mistyped in [nested.clone(), format!("./{name}")] {
            let missing = find(&mistyped, false).unwrap_err();
            assert!(matches!(missing, LocateError::NoPluginAt { .. }), "{missing}");
            let hint = format!("or write \"{name}\" for the plugin that is shipped with pl-host");
            assert!(missing.to_string().ends_with(&hint), "{missing}");
        }
        let outside = find(&format!("/nonexistent/{name}"), false).unwrap_err();
        assert!(matches!(outside, LocateError::NotAllowed(_)), "{outside}");
        std::fs::create_dir(project.join("parts")).unwrap();
        std::fs::write(project.join(&nested), "").unwrap();
        assert_eq!(find(&nested, false).unwrap(), project.join(&nested));
    }

    #[test]
    fn a_folder_of_tasks_is_found_with_its_split_and_asked_for_as_a_whole() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        let (project, outside) = (root.join("project"), root.join("sets"));
        std::fs::create_dir_all(project.join("set")).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(project.join("set/odd:test"), "{}").unwrap();
        let permissions = SharedPermissions::default();
        let reads = ReadPolicy::new(permissions.clone(), GrantedAccess::new([], &project));
        let find = |written: &str| task_path(&reads, &project, written);
        let found = find("./set:main:test").unwrap();
        let (config, split) = (Some("main".to_owned()), Some("test".to_owned()));
        assert_eq!((found.path, found.split), (project.join("./set"), Some(FolderSplit { config, split })));
        let file = find("set/odd:test").unwrap();
        assert_eq!((file.path, file.split), (project.join("set/odd:test"), None));
        let written = format!("{}:test", outside.display());
        let refused = find(&written).err().unwrap();
        assert!(matches!(&refused, LocateError::NotAllowed(path) if *path == outside), "{refused}");
        permissions.allow([Access::read(&outside)]);
        assert_eq!(find(&written).unwrap().path, outside);
        let missing = find("./none:test").err().unwrap();
        assert!(matches!(missing, LocateError::NoTaskFile(_)), "{missing}");
    }
}
