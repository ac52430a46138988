//! Randomness from a seed.
//!
//! WASI's random interfaces draw from one generator of the store. It can be restarted between calls, so that the numbers
//! of a shared instance don't depend on earlier callers. `insecure-seed`, which guests use for hash tables, is the same
//! for all guests, because an instance may keep it across calls.

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Seed of a guest's randomness.
#[derive(Debug)]
pub enum Seed<T> {
    /// A number.
    Number(u64),
    /// Computed from the store's data when the guest first draws in a call. Most never do.
    Derived(fn(&T) -> [u8; 32]),
}

/// Random generator of a store, created at its first use.
pub(crate) struct RandomSource<T> {
    seed: Seed<T>,
    generator: Option<Box<ChaCha8Rng>>,
}

impl<T> RandomSource<T> {
    pub(crate) fn new(seed: Seed<T>) -> Self {
        Self { seed, generator: None }
    }

    pub(crate) fn generator(&mut self, data: &T) -> &mut ChaCha8Rng {
        self.generator.get_or_insert_with(|| {
            Box::new(match self.seed {
                Seed::Number(number) => ChaCha8Rng::seed_from_u64(number),
                Seed::Derived(seed) => ChaCha8Rng::from_seed(seed(data)),
            })
        })
    }
}
