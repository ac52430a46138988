//! Updates of learners in processes of their own, as messages.
//!
//! The state of a learner follows from its last saved state and the updates since then. A lease names both, so that any
//! process can do the update, also one that has just been started: it does those that it lacks first. An update has the same
//! result wherever and however often it is done.

use std::ops::Range;

use pl_trainer::{LearnerUpdate, Trainer};
use serde::{Deserialize, Serialize};

use crate::error::cluster::ClusterError;

use super::message;
use super::stored_files::{StoredFile, files_of, load_files};

/// Largest message in bytes, unpacked.
pub(super) const LARGEST: u64 = 4 << 30;

/// Name of a result in errors.
const RESULT: &str = "the result of an update";

/// Name of a learner's state in errors.
const STATE: &str = "the state of a learner";

/// Updates of a learner since a saved state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct History {
    /// Hash of the saved state. `None` for the state that the workflow begins with.
    pub saved: Option<String>,
    pub updates: Vec<UpdateRef>,
}

/// An update.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct UpdateRef {
    pub step: u64,
    /// Steps that some of the learner's policies train on, in order. Empty if none is updated.
    pub sources: Vec<SourceRef>,
    /// Seed that rewards are shuffled by, if they are.
    pub shuffle: Option<[u8; 32]>,
}

/// Completions of a step that an update trains on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SourceRef {
    pub step: u64,
    /// Hash of the step's transitions.
    pub transitions: String,
    /// Numbers of the agents whose completions are not trained on.
    pub left_out: Vec<Range<u32>>,
}

/// Body of a learner's lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LearnerTask {
    pub history: History,
    pub kind: LeaseKind,
}

/// Result that a learner's lease is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LeaseKind {
    /// [`UpdateResult`] of the last update.
    Update,
    /// Files of the learner's state ([`Trainer::save_learner`]).
    State,
}

/// Result of an update.
pub(super) struct UpdateResult {
    pub update: LearnerUpdate,
    /// Weights after it ([`super::weights::encode`]). `None` if it left them as they were.
    pub weights: Option<SentWeights>,
}

/// Weights of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum SentWeights {
    Inline(Vec<u8>),
    /// Hash of weights in the folder that all machines of the run share.
    InFolder(String),
}

#[derive(Serialize, Deserialize)]
struct EncodedResult {
    /// CBOR: metrics may lack some of their fields, and have numbers that are not finite.
    update: Vec<u8>,
    weights: Option<SentWeights>,
}

impl UpdateResult {
    /// Encodes the result.
    ///
    /// # Errors
    /// If it has no such form.
    pub fn encode(self) -> Result<Vec<u8>, ClusterError> {
        let mut update = Vec::new();
        ciborium::into_writer(&self.update, &mut update)
            .map_err(|error| ClusterError::unreadable(RESULT, error))?;
        message::pack(RESULT, &EncodedResult { update, weights: self.weights })
    }

    /// Decodes a result.
    ///
    /// # Errors
    /// If it is not one.
    pub fn decode(bytes: &[u8]) -> Result<UpdateResult, ClusterError> {
        let EncodedResult { update, weights } = message::unpack(RESULT, bytes, LARGEST)?;
        let update = ciborium::from_reader(update.as_slice())
            .map_err(|error| ClusterError::unreadable(RESULT, error))?;
        Ok(UpdateResult { update, weights })
    }
}

/// Returns the state of a learner as bytes.
///
/// # Errors
/// If a file can't be written.
pub(super) fn state_of(trainer: &Trainer, learner: usize, step: u64) -> Result<Vec<u8>, ClusterError> {
    let files = files_of(|folder| trainer.save_learner(&folder.join("state"), learner, step))?;
    message::pack(STATE, &files)
}

/// Gives a learner the state that bytes have.
///
/// # Errors
/// If they are not of such a learner.
pub(super) fn restore(trainer: &mut Trainer, learner: usize, bytes: &[u8]) -> Result<(), ClusterError> {
    let files: Vec<StoredFile> = message::unpack(STATE, bytes, LARGEST)?;
    load_files(files, |folder| trainer.load_learner(&folder.join("state"), learner)).map(drop)
}
