//! Reasons why a container can't run a task or must be discarded. The host receives their text.

use std::io;
use std::path::PathBuf;

/// Result of a step that concerns the container or a task's files.
pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the supervisor can't {action}: {source}")]
    Confine { action: &'static str, source: io::Error },
    #[error("{path}: {source}")]
    Status { path: &'static str, source: io::Error },
    #[error("it runs as root")]
    Root,
    #[error("it has capabilities")]
    Capabilities,
    #[error("it has a network")]
    Network,
    #[error("the engine does not filter its system calls: it runs without its seccomp profile")]
    NoFilter,
    #[error("it has no limit of {0}: the engine has no control groups")]
    NoLimit(&'static str),
    #[error("its limit of {name} is {found}, more than the engine was asked for")]
    Limit { name: &'static str, found: String },
    #[error("the argument {0:?} has not the form of limits")]
    InvalidLimits(String),
    #[error("{0} is writable")]
    Writable(String),
    #[error("the file {0:?} leads out of its folder")]
    OutsideFolder(String),
    #[error("the file {path:?} can't be written: {source}")]
    WriteFile { path: String, source: io::Error },
    #[error("{path:?} can't be read: {source}")]
    ReadFolder { path: String, source: io::Error },
    #[error("the compiler wrote more than {0} bytes")]
    CompilerOutput(u64),
    #[error("files in {folder} can't be removed: {source}")]
    RemainingFiles { folder: PathBuf, source: io::Error },
    #[error("an object of {0} can't be removed")]
    RemainingObject(String),
    #[error("processes can't be killed")]
    RemainingProcesses,
}
