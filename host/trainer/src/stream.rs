//! Random streams by name. Each use of randomness has its own, derived from the run's seed and from what it is
//! for, so that no draw depends on what else was drawn before.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// A 32-byte seed for `purpose`, told apart by a name and by numbers.
pub fn seed(run: u64, purpose: &str, name: &str, numbers: &[u64]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("pl-trainer random stream v1");
    hasher.update(&run.to_le_bytes());
    // Lengths go first, so that no two different lists of parts run together into one text.
    for text in [purpose, name] {
        hasher.update(&(text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    }
    for number in numbers {
        hasher.update(&number.to_le_bytes());
    }
    *hasher.finalize().as_bytes()
}

/// The order in which `policy`'s transitions are dealt into mini-batches.
pub fn mini_batches(run: u64, policy: &str, step: u64, epoch: u64) -> ChaCha8Rng {
    ChaCha8Rng::from_seed(seed(run, "mini-batches", policy, &[step, epoch]))
}

/// How a step's rewards change places in a control run.
pub fn shuffle(run: u64, step: u64) -> [u8; 32] {
    seed(run, "shuffled rewards", "", &[step])
}

/// The seed of a new adapter.
pub fn adapter(run: u64, policy: &str) -> [u8; 32] {
    seed(run, "adapter", policy, &[])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_part_tells_streams_apart() {
        let seeds = [
            seed(1, "a", "b", &[]),
            seed(2, "a", "b", &[]),
            seed(1, "ab", "", &[]),
            seed(1, "", "ab", &[]),
            seed(1, "a", "b", &[0]),
            seed(1, "a", "b", &[0, 0]),
            seed(1, "a", "b", &[1, 0]),
            seed(1, "a", "b", &[0, 1]),
        ];
        assert_eq!(seeds.iter().collect::<BTreeSet<_>>().len(), seeds.len());
        assert_eq!(seed(7, "x", "y", &[3]), seed(7, "x", "y", &[3]));
    }
}
