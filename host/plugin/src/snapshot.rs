//! Snapshots of episodes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::random::StreamPosition;

/// The complete state of an episode: the environment's state, the position of its random stream and its
/// clock. Cheap to clone; may be written to disk and moved to another machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    /// State of the environment, in its own format.
    #[serde(with = "crate::hexadecimal")]
    pub bytes: Arc<[u8]>,
    /// Position of the random stream.
    pub stream: StreamPosition,
    /// Number of finished turns, which sets the WASI clock.
    pub turns: u32,
}

impl Snapshot {
    /// Returns the BLAKE3 of all fields, in hexadecimal. Equal hashes mean equal futures.
    pub fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.stream.key).update(&self.stream.words.to_le_bytes());
        hasher.update(&self.turns.to_le_bytes()).update(&self.bytes);
        hasher.finalize().to_hex().to_string()
    }
}
