//! An episode at rest.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::Mark;

/// All that an episode is: what its environment keeps, where its random stream stands, and what time it is there. Cheap
/// to clone; may be written to disk and taken to another machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Snapshot {
    /// The environment's own.
    #[serde(with = "hexadecimal")]
    pub bytes: Arc<[u8]>,
    /// The random stream.
    pub stream: Mark,
    /// Turns that are over: the clock of WASI goes by them.
    pub turns: u32,
}

impl Snapshot {
    /// BLAKE3 over everything, in hexadecimal: equal where episodes go on equally.
    pub fn hash(&self) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.stream.key).update(&self.stream.words.to_le_bytes());
        hasher.update(&self.turns.to_le_bytes()).update(&self.bytes);
        hasher.finalize().to_hex().to_string()
    }
}

/// Bytes as a hexadecimal string: a JSON list of numbers would be twice as long and slow to read.
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
        B::try_from(bytes).map_err(|_| D::Error::custom(format!("{length} bytes are too many or too few")))
    }
}
