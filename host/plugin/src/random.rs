//! The random stream of an episode.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// ChaCha8 with a 256-bit key and a position. Equal keys and positions give equal numbers, now and in later
/// versions; keys that differ in anything give unrelated numbers.
#[derive(Debug, Clone)]
pub struct Stream(State);

#[derive(Debug, Clone)]
enum State {
    /// Boxed: a stream is moved through the futures of a call, and most calls draw nothing.
    Running(Box<ChaCha8Rng>),
    /// What the key is the hash of. Most calls draw nothing, and hashing a view takes longer than copying it.
    Due(Vec<u8>),
}

impl Stream {
    /// The stream of a key, from its start. Hash what tells the stream from others to get a key.
    pub fn new(key: [u8; 32]) -> Self {
        Self(State::Running(Box::new(ChaCha8Rng::from_seed(key))))
    }

    /// The stream whose key is the BLAKE3 of `parts`, each with its length.
    pub fn of(parts: &[&[u8]]) -> Self {
        let length: usize = parts.iter().map(|part| part.len() + 8).sum();
        let mut due = Vec::with_capacity(length);
        for part in parts {
            due.extend((part.len() as u64).to_le_bytes());
            due.extend_from_slice(part);
        }
        Self(State::Due(due))
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        match &mut self.0 {
            State::Running(rng) => rng.next_u64(),
            State::Due(due) => {
                let mut rng = start(due);
                let number = rng.next_u64();
                self.0 = State::Running(Box::new(rng));
                number
            }
        }
    }

    /// Where the stream stands.
    pub fn mark(&self) -> Mark {
        let mark = |rng: &ChaCha8Rng| Mark { key: rng.get_seed(), words: rng.get_word_pos() as u64 };
        match &self.0 {
            State::Running(rng) => mark(rng),
            State::Due(due) => mark(&start(due)),
        }
    }

    /// The stream that goes on from a mark.
    pub fn at(mark: &Mark) -> Self {
        let mut rng = ChaCha8Rng::from_seed(mark.key);
        rng.set_word_pos(u128::from(mark.words));
        Self(State::Running(Box::new(rng)))
    }
}

fn start(due: &[u8]) -> ChaCha8Rng {
    ChaCha8Rng::from_seed(*blake3::hash(due).as_bytes())
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
