//! Snapshots of episodes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::random::StreamPosition;

/// The complete state of an episode: the environment's state, the position of its random stream and its
/// clock. Cheap to clone; may be written to disk and moved to another machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    /// State of the environment, in its own format.
    #[serde(with = "hexadecimal")]
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

/// Bytes as a hexadecimal string. A JSON list of numbers would be twice as long and slow to read.
pub(crate) mod hexadecimal {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &impl AsRef<[u8]>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex::encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, B: TryFrom<Vec<u8>>>(
        from: D,
    ) -> Result<B, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = hex::decode(text).map_err(D::Error::custom)?;
        let length = bytes.len();
        B::try_from(bytes).map_err(|_| D::Error::custom(format!("{length} bytes are the wrong length")))
    }
}
