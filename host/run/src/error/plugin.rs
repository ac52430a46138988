//! Reasons for which a plugin can't be loaded.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::locate::LocateError;

/// Reason for which a plugin can't be loaded. Its messages follow the plugin's name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// The component can't be found.
    #[error(transparent)]
    Locate(#[from] LocateError),
    /// The component can't be read.
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    /// The component is too large.
    #[error("{} is larger than {} MiB", path.display(), largest >> 20)]
    TooLarge { path: PathBuf, largest: u64 },
    /// A folder that the workflow grants does not exist.
    #[error("`grant` names the folder {}, which does not exist", .0.display())]
    NoGrantedFolder(PathBuf),
    /// A folder that the workflow grants can't be read.
    #[error("a folder of `grant` can't be read: {0}")]
    Grant(String),
    /// The component took too long to be compiled and to describe itself in a check.
    #[error(
        "it could not be described within {:.0} s; build it with the SDK, which adds its description to the component, or \
         load it once with `pl-host plugin describe`",
        limit.as_secs_f64()
    )]
    SlowDescription { limit: Duration },
    /// The components before it took too long in the same check.
    #[error(
        "the plugins before it took {} s to be described; build them with the SDK, which adds their descriptions to the \
         components, or load each once with `pl-host plugin describe`",
        limit.as_secs()
    )]
    SlowDescriptions { limit: Duration },
    /// The component could not be described, in this check or an earlier one.
    #[error(transparent)]
    NotDescribed(Arc<PluginError>),
    /// The thread that loaded the component panicked.
    #[error("a worker thread failed: {0}")]
    Worker(tokio::task::JoinError),
    /// The component is not a plugin, or describing itself failed.
    #[error("{}", without_name(.0))]
    Load(pl_plugin::Error),
}

/// Returns the message of a plugin error without the plugin's name.
fn without_name(error: &pl_plugin::Error) -> String {
    match error {
        pl_plugin::Error::Load { source, .. } => source.to_string(),
        other => other.to_string(),
    }
}
