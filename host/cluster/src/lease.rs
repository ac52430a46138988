//! Messages between the coordinator, workers and learners.

use serde::{Deserialize, Serialize};

/// Length of [`Lease::key`].
pub(crate) const KEY_LENGTH: usize = 2 * blake3::OUT_LEN;

/// Weights of a learner's policies after an update, in the object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightsRef {
    /// Position among the learners of the run.
    pub learner: u32,
    /// Number of updates that they include.
    pub update: u64,
    /// Name in the object store: the hash of its bytes.
    pub hash: String,
}

/// Processes that a lease waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LeaseQueue {
    /// Any worker.
    Workers,
    /// The learner at this position among those of the run.
    Learner(u32),
}

/// Task that a worker is to play, or update that a learner is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    pub queue: LeaseQueue,
    /// Name for messages, such as `train 3.1`.
    pub task: String,
    /// Step that the task belongs to.
    pub step: u64,
    /// Weights to play with, one per learner.
    pub weights: Vec<WeightsRef>,
    /// Task, random streams and team, or update, in the form of the program that plays or trains.
    pub body: Vec<u8>,
}

impl Lease {
    /// Returns the hash of all inputs of the result: leases with the same key have the same result, on any worker and from
    /// any coordinator.
    pub fn key(&self) -> String {
        let mut hasher = blake3::Hasher::new_derive_key("pl-host lease v1");
        if let LeaseQueue::Learner(learner) = self.queue {
            hasher.update(b"learner").update(&learner.to_le_bytes());
        }
        for weights in &self.weights {
            hasher.update(&weights.learner.to_le_bytes()).update(weights.hash.as_bytes()).update(&[0]);
        }
        hasher.update(&(self.body.len() as u64).to_le_bytes()).update(&self.body);
        hasher.finalize().to_hex().to_string()
    }

    /// Returns the key with the queue and the step that a result has to be of.
    pub(crate) fn id(&self) -> LeaseId {
        LeaseId { key: self.key(), queue: self.queue, step: self.step }
    }
}

/// A lease as its results name it. Queue and step are those of the subject, which the server lets the processes of the
/// queue alone publish on; the key alone is no proof.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LeaseId {
    /// [`Lease::key`].
    pub key: String,
    pub queue: LeaseQueue,
    pub step: u64,
}

/// A lease as the work queue has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeaseMessage {
    /// Coordinator that has published it.
    pub epoch: u64,
    pub lease: Lease,
}

/// Memory that a message, a part of a result, or the parts of one sender take besides their bytes: what is empty is counted
/// too.
pub(crate) const OVERHEAD: usize = 256;

/// Result of a lease as the log has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ResultMessage {
    /// [`Lease::key`].
    pub key: String,
    pub queue: LeaseQueue,
    pub task: String,
    pub step: u64,
    /// Worker that has stored it.
    pub worker: String,
    pub outcome: Outcome,
}

impl ResultMessage {
    /// Returns the lease that it claims to be of.
    pub fn id(&self) -> LeaseId {
        LeaseId { key: self.key.clone(), queue: self.queue, step: self.step }
    }

    /// Returns the memory that it takes, in bytes.
    pub fn size(&self) -> usize {
        let outcome = match &self.outcome {
            Outcome::Inline { hash, bytes } => hash.len() + bytes.len(),
            Outcome::Part { bytes, .. } => bytes.len(),
            Outcome::Parts { hash, .. } => hash.len(),
            Outcome::Failed { reason } | Outcome::Unreadable { reason } => reason.len(),
        };
        // The key is in the index too.
        OVERHEAD + 2 * self.key.len() + self.task.len() + self.worker.len() + outcome
    }
}

/// Outcome of a lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// Result with its hash.
    Inline { hash: String, bytes: Vec<u8> },
    /// Part of a result that is larger than a message may be.
    Part { index: u32, bytes: Vec<u8> },
    /// Number of the parts before it, which make a result with this hash.
    Parts { count: u32, hash: String },
    /// No worker can play it.
    Failed { reason: String },
    /// Message that its receiver can't read. It is never sent.
    #[serde(skip)]
    Unreadable { reason: String },
}

impl Outcome {
    /// Returns the messages of a result: one, or parts of at most `largest` bytes and their number.
    pub fn messages(result: &[u8], largest: usize) -> impl Iterator<Item = Outcome> + '_ {
        let (hash, is_whole) = (hash_of(result), result.len() <= largest);
        let parts = if is_whole { &[] } else { result }.chunks(largest);
        let last = match is_whole {
            true => Outcome::Inline { hash, bytes: result.to_vec() },
            false => Outcome::Parts { count: u32::try_from(parts.len()).unwrap_or(u32::MAX), hash },
        };
        let parts = parts.zip(0..).map(|(bytes, index)| Outcome::Part { index, bytes: bytes.to_vec() });
        parts.chain(std::iter::once(last))
    }
}

/// Returns the hash of bytes, which is their name in the object store.
pub(crate) fn hash_of(bytes: &[u8]) -> String {
    blake3::hash(bytes).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_depends_on_what_is_played_and_on_nothing_else() {
        let weights = |hash: &str| vec![WeightsRef { learner: 0, update: 1, hash: hash.to_owned() }];
        let lease = |hash, body: &[u8], task: &str| Lease {
            queue: LeaseQueue::Workers,
            task: task.to_owned(),
            step: 1,
            weights: weights(hash),
            body: body.to_vec(),
        };
        let key = lease("a", b"x", "train 1.0").key();
        assert_eq!(key.len(), KEY_LENGTH);
        assert_eq!(key, lease("a", b"x", "again").key());
        assert_ne!(key, lease("b", b"x", "train 1.0").key());
        assert_ne!(key, lease("a", b"y", "train 1.0").key());
        let update = Lease { queue: LeaseQueue::Learner(0), ..lease("a", b"x", "train 1.0") };
        assert_ne!(key, update.key());
    }
}
