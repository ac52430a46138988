//! The random stream of an episode.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// ChaCha8 with a 256-bit key and a position. Equal keys and positions give equal numbers, now and in later
/// versions; keys that differ in anything give unrelated numbers.
#[derive(Debug, Clone)]
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// The stream of a key, from its start. Hash what tells the stream from others to get a key.
    pub fn new(key: [u8; 32]) -> Self {
        Self(ChaCha8Rng::from_seed(key))
    }

    /// The stream whose key is the BLAKE3 of `parts`, each with its length.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        Self::new(*hasher.finalize().as_bytes())
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Where the stream stands.
    pub fn mark(&self) -> Mark {
        Mark { key: self.0.get_seed(), words: self.0.get_word_pos() as u64 }
    }

    /// The stream that goes on from a mark.
    pub fn at(mark: &Mark) -> Self {
        let mut rng = ChaCha8Rng::from_seed(mark.key);
        rng.set_word_pos(u128::from(mark.words));
        Self(rng)
    }
}

/// A position in a stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Mark {
    /// The stream's key.
    #[serde(with = "crate::snapshot::hexadecimal")]
    pub key: [u8; 32],
    /// 32-bit words drawn.
    pub words: u64,
}
