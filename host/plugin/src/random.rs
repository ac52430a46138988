//! The random stream of an episode.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// ChaCha8 with a 256-bit key and a position. Equal keys and positions give equal numbers in all versions of
/// this program; different keys give unrelated numbers.
#[derive(Debug, Clone)]
pub struct RandomStream(State);

#[derive(Debug, Clone)]
enum State {
    /// Boxed: a stream is moved through the futures of a call, and most calls draw nothing.
    Running(Box<ChaCha8Rng>),
    /// Input of the key's hash. Most calls draw nothing, and hashing a view takes longer than copying it.
    Unhashed(Vec<u8>),
}

impl RandomStream {
    /// Creates the stream of a key, at its start. Hash everything that distinguishes the stream to get its
    /// key.
    pub fn new(key: [u8; 32]) -> Self {
        Self(State::Running(Box::new(ChaCha8Rng::from_seed(key))))
    }

    /// Creates the stream whose key is the BLAKE3 of `parts`, each with its length.
    pub fn from_parts(parts: &[&[u8]]) -> Self {
        let length: usize = parts.iter().map(|part| part.len() + 8).sum();
        let mut input = Vec::with_capacity(length);
        for part in parts {
            input.extend((part.len() as u64).to_le_bytes());
            input.extend_from_slice(part);
        }
        Self(State::Unhashed(input))
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        match &mut self.0 {
            State::Running(rng) => rng.next_u64(),
            State::Unhashed(input) => {
                let mut rng = start(input);
                let number = rng.next_u64();
                self.0 = State::Running(Box::new(rng));
                number
            }
        }
    }

    /// Returns the current position.
    pub fn position(&self) -> StreamPosition {
        let position =
            |rng: &ChaCha8Rng| StreamPosition { key: rng.get_seed(), words: rng.get_word_pos() as u64 };
        match &self.0 {
            State::Running(rng) => position(rng),
            State::Unhashed(input) => position(&start(input)),
        }
    }

    /// Creates the stream that continues at a position.
    pub fn from_position(position: &StreamPosition) -> Self {
        let mut rng = ChaCha8Rng::from_seed(position.key);
        rng.set_word_pos(u128::from(position.words));
        Self(State::Running(Box::new(rng)))
    }
}

fn start(input: &[u8]) -> ChaCha8Rng {
    ChaCha8Rng::from_seed(*blake3::hash(input).as_bytes())
}

/// A position in a stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StreamPosition {
    /// The stream's key.
    #[serde(with = "crate::hexadecimal")]
    pub key: [u8; 32],
    /// Number of 32-bit words drawn.
    pub words: u64,
}
