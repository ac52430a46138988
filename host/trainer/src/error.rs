//! Errors of training.

use std::path::PathBuf;

use pl_model::libtorch;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A policy cannot be set up as the workflow asks.
    #[error("policy `{policy}`: {problem}")]
    Policy { policy: String, problem: String },
    /// A policy's model or adapter cannot be read or written.
    #[error("policy `{policy}`: {source}")]
    Model { policy: String, source: pl_model::Error },
    /// A transition is invalid for training.
    #[error("step {step}, task `{task}`, agent `{agent}`, turn {turn}: {problem}")]
    Transition { step: u64, task: String, agent: String, turn: u32, problem: String },
    /// libtorch refused an operation.
    #[error("{doing}: {}", torch_message(source))]
    Torch { doing: String, source: tch::TchError },
    /// Ranks that train policies together can't go on.
    #[error("update of `{policies}` in step {step}: {source}")]
    Collective { policies: String, step: u64, source: CollectiveError },
    /// A file operation failed.
    #[error("{}: cannot {doing}: {source}", path.display())]
    Io { path: PathBuf, doing: &'static str, source: std::io::Error },
    /// A checkpoint cannot be used.
    #[error("{}: {problem}", path.display())]
    Checkpoint { path: PathBuf, problem: String },
}

/// Errors of the communication between ranks.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// A rank is away.
    #[error("rank {rank} is away: {source}")]
    Away { rank: usize, source: std::io::Error },
    /// A rank sent other numbers of values than this one has.
    #[error("the ranks do different work: see that all run the same version of pl-host")]
    Differs,
    /// A message can't be read.
    #[error("a message of another rank can't be read: {reason}")]
    Message { reason: String },
    /// NCCL failed.
    #[error("NCCL failed: {reason}")]
    Nccl { reason: String },
    /// libtorch refused an operation.
    #[error("{}", torch_message(.0))]
    Torch(#[from] tch::TchError),
}

impl CollectiveError {
    pub(crate) fn message(error: postcard::Error) -> Self {
        CollectiveError::Message { reason: error.to_string() }
    }
}

/// Errors of the computation of an update.
#[derive(Debug)]
pub(crate) enum UpdateError {
    Model(pl_model::Error),
    Collective(CollectiveError),
}

impl From<pl_model::Error> for UpdateError {
    fn from(error: pl_model::Error) -> Self {
        UpdateError::Model(error)
    }
}

impl From<tch::TchError> for UpdateError {
    fn from(error: tch::TchError) -> Self {
        UpdateError::Model(error.into())
    }
}

impl From<CollectiveError> for UpdateError {
    fn from(error: CollectiveError) -> Self {
        UpdateError::Collective(error)
    }
}

/// Returns the message of an error of libtorch, with a remedy if memory ran out.
fn torch_message(error: &tch::TchError) -> String {
    let line = libtorch::first_line(error);
    match libtorch::is_out_of_memory(error) {
        true => format!(
            "memory ran out: {line}; lower `train.token_budget`, set `train.gradient_checkpointing = true`, train with `lora` \
             instead of a whole model, or lower `inference.kv_cache` if the policy is generated for on the same device"
        ),
        false => format!("libtorch failed: {line}"),
    }
}

impl Error {
    pub(crate) fn policy(policy: &str, problem: impl Into<String>) -> Self {
        Error::Policy { policy: policy.to_owned(), problem: problem.into() }
    }

    pub(crate) fn model(policy: &str) -> impl FnOnce(pl_model::Error) -> Self {
        move |source| Error::Model { policy: policy.to_owned(), source }
    }

    pub(crate) fn torch(doing: impl Into<String>) -> impl FnOnce(tch::TchError) -> Self {
        move |source| Error::Torch { doing: doing.into(), source }
    }
}
