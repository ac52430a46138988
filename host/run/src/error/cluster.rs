//! Errors of runs on several machines.

use std::fmt::Display;
use std::io;
use std::path::{Path, PathBuf};

/// Failure of a run on several machines, in one of its processes.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The server or another machine failed.
    #[error(transparent)]
    Connection(#[from] pl_cluster::Error),
    /// The workflow has something that workers can't have yet.
    #[error("{what} can't be used with a cluster yet: {hint}")]
    Unsupported { what: String, hint: &'static str },
    /// This machine differs from the coordinator's.
    #[error("this process can't take part in run {run}:\n  {}", differences.join("\n  "))]
    Differs { run: String, differences: Vec<String> },
    /// A message of another process, or a file between them, can't be written or read.
    #[error(
        "{what} can't be read: {reason}; a file is damaged, or a process of the run is another version of pl-host: start the \
         same one on all machines"
    )]
    Unreadable { what: String, reason: String },
    /// A file of the cache or of the run can't be read or written.
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    /// A file can't be written whole. The message names it.
    #[error(transparent)]
    Record(#[from] pl_record::Error),
    /// Learners are to be processes of their own, and there is no server between them and this one.
    #[error(
        "{policies} can be trained by other processes only over a NATS server: give `--nats URL` or `--local-cluster N`, or \
         add a `cluster` block"
    )]
    NoServer { policies: String },
    /// The code of agents is to be run by other machines, and there is no server between them and this one.
    #[error(
        "sandbox machines run code only over a NATS server: give `--nats URL` or `--local-cluster N`, or add a `cluster` block"
    )]
    NoServerForJobs,
    /// A policy that is to be trained by another process is not trained.
    #[error("no learner trains policy `{policy}`; the trained policies are {}", known.join(", "))]
    NotTrained { policy: String, known: Vec<String> },
    /// A run has no learner for this process, or several.
    #[error(
        "run {run} has no learner for {}; {}",
        policy.as_ref().map_or_else(|| "this process".to_owned(), |policy| format!("policy `{policy}`")),
        choices(known)
    )]
    NoSuchLearner { run: String, policy: Option<String>, known: Vec<String> },
    /// Weights are not where they should be.
    #[error(
        "{} has no weights {hash}: see that --weights-folder is the same folder on all machines of the run",
        folder.display()
    )]
    NoWeights { folder: PathBuf, hash: String },
    /// The run keeps its weights in a folder, or doesn't.
    #[error(
        "run {run} {}",
        if *in_folder { "keeps its weights in a folder: name it by --weights-folder, as this machine has it" }
        else { "keeps its weights on the server: leave --weights-folder out" }
    )]
    WeightsPlace { run: String, in_folder: bool },
    /// Ranks of a learner have lost each other.
    #[error(transparent)]
    Ranks(#[from] pl_cluster::RankError),
    /// A learner has no such rank.
    #[error(
        "there is no rank {rank}: the run divides updates among {ranks} rank{} (`train.data_parallel`), counted from 0; {}",
        if *ranks == 1 { "" } else { "s" },
        if *ranks == 1 { "leave --rank and --leader out" } else { "choose a smaller --rank" }
    )]
    NoSuchRank { rank: usize, ranks: usize },
    /// A worker's result is not one of its task.
    #[error("the result of task {task} is not one: {reason}; a worker is broken or of another version")]
    Result { task: String, reason: String },
}

impl ClusterError {
    /// Error of a message, a file or a state, `what`, that can't be written or read.
    pub(crate) fn unreadable(what: impl Into<String>, reason: impl Display) -> ClusterError {
        ClusterError::Unreadable { what: what.into(), reason: reason.to_string() }
    }

    /// Returns the function that adds the path of a file to an error.
    pub(crate) fn file(path: &Path) -> impl Fn(io::Error) -> ClusterError {
        |source| ClusterError::File { path: path.to_owned(), source }
    }

    /// Returns true if the user's input is wrong, and false if a machine, a file or the server failed.
    pub fn is_input(&self) -> bool {
        matches!(
            self,
            ClusterError::Unsupported { .. }
                | ClusterError::NoServer { .. }
                | ClusterError::NoServerForJobs
                | ClusterError::NotTrained { .. }
                | ClusterError::NoSuchLearner { .. }
                | ClusterError::NoSuchRank { .. }
        )
    }
}

/// Returns what to do about a learner that is not known.
fn choices(known: &[String]) -> String {
    match known {
        [] => "start it with `--learners POLICY,…`, or with `learners` in its `cluster` block".to_owned(),
        known => format!("choose one of its policies by `--policy`: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_learner_that_can_not_be_is_wrong_input() {
        let nope = || "nope".to_owned();
        assert!(ClusterError::NoServer { policies: nope() }.is_input());
        assert!(ClusterError::NotTrained { policy: nope(), known: Vec::new() }.is_input());
        assert!(!ClusterError::Result { task: nope(), reason: nope() }.is_input());
    }
}
