//! Reasons for which a file of a workflow can't be found.

use std::path::{Path, PathBuf};

use pl_toolchain::EXAMPLE_MODEL;

use crate::permissions::{Access, flags_of};

/// Reason for which a file of a workflow can't be found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LocateError {
    /// A plugin is neither next to the workflow nor among the shipped ones.
    #[error("there is neither {} nor {}; correct the path, or build the plugin", local.display(), shipped.display())]
    NoPlugin {
        /// Path next to the workflow.
        local: PathBuf,
        /// Path among the plugins that are shipped with the program.
        shipped: PathBuf,
    },
    /// A plugin is missing whose path has a folder: shipped plugins are named by their file names alone.
    #[error("there is no {}; correct the path{}", local.display(), shipped_hint(shipped))]
    NoPluginAt {
        /// Path next to the workflow.
        local: PathBuf,
        /// Name of the shipped plugin whose file has the same name.
        shipped: Option<String>,
    },
    /// A file or folder is missing.
    #[error("there is no {}; correct the path", .0.display())]
    NoFile(PathBuf),
    /// A file or folder is outside of the workflow's folder, and reading it was not allowed.
    #[error("{} is outside of the workflow's folder; `{}` allows it", .0.display(), read_flag(.0))]
    NotAllowed(PathBuf),
    /// A task file is missing.
    #[error("there is no task file {}", .0.display())]
    NoTaskFile(PathBuf),
    /// A data set has no such split, or its files can't be read.
    #[error(transparent)]
    Data(Box<pl_data::Error>),
    /// A data set is not on this machine.
    #[error(transparent)]
    NoData(Box<MissingData>),
    /// A name without a path is not the name of a fetched model.
    #[error("{name:?} is not among the fetched models in {}; {}", folder.display(), fetch_hint(name, folder))]
    UnknownModel {
        /// Name in the workflow.
        name: String,
        /// Folder of fetched models.
        folder: PathBuf,
    },
    /// A model of a hub is not in the cache, and nothing may be fetched now.
    #[error("its dimensions are known once a run has fetched it")]
    NotFetched,
    /// The hub refused, or its cache can't be used.
    #[error(transparent)]
    Hub(#[from] pl_model::Error),
    /// There is no cache folder.
    #[error(transparent)]
    Cache(#[from] pl_toolchain::Error),
}

fn shipped_hint(shipped: &Option<String>) -> String {
    let hint = |name: &String| format!(", or write {name:?} for the plugin that is shipped with pl-host");
    shipped.as_ref().map(hint).unwrap_or_default()
}

/// Returns what makes a fetched model of a name.
fn fetch_hint(name: &str, folder: &Path) -> String {
    let place = folder.join(name).join("model.gguf");
    match name {
        EXAMPLE_MODEL => format!("`pl-host model {name}` fetches it"),
        // That of `cargo xtask model`.
        "qwen2.5-coder-1.5b" => format!(
            "in a checkout, `cargo xtask model {name}` fetches it; elsewhere, put it at {}",
            place.display()
        ),
        _ => format!(
            "put it at {}; or write a path, which begins with \"./\", or a model of a hub, which begins with \"hf:\"",
            place.display()
        ),
    }
}

/// Returns the flag that allows reading a path.
fn read_flag(path: &Path) -> String {
    flags_of([&Access::Read(path.to_path_buf())])
}

impl From<pl_data::Error> for LocateError {
    fn from(error: pl_data::Error) -> LocateError {
        LocateError::Data(Box::new(error))
    }
}

/// A split of a data set that is not on this machine, and the place where it belongs.
#[derive(Debug, thiserror::Error)]
#[error(
    "data set {name} is not on this machine: put it as {file} (or .json, .parquet, .jsonl.gz) into {}, or set PL_HOST_DATA \
     to the folder that has it; it is published at {published} ({licence}){reason}",
    folder.display()
)]
pub struct MissingData {
    /// `NAME:SPLIT`.
    pub name: String,
    /// Path within the folder.
    pub file: String,
    /// Data folder of the cache.
    pub folder: PathBuf,
    pub published: &'static str,
    pub licence: &'static str,
    /// Reason for which it was not fetched, on a line of its own. Empty if no hub has it.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_is_about_the_model_that_is_missing() {
        let message = |name: &str| {
            LocateError::UnknownModel { name: name.to_owned(), folder: "/cache/models".into() }.to_string()
        };
        assert_eq!(
            message("smollm2-135m"),
            "\"smollm2-135m\" is not among the fetched models in /cache/models; `pl-host model smollm2-135m` fetches it"
        );
        let coder = message("qwen2.5-coder-1.5b");
        assert!(coder.contains("`cargo xtask model qwen2.5-coder-1.5b`"), "{coder}");
        let other = message("smollm3-1b");
        assert!(other.contains("put it at /cache/models/smollm3-1b/model.gguf"), "{other}");
        assert!(!other.contains("pl-host model"), "{other}");
    }
}
