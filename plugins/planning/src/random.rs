//! Random choices of the task generators.

/// A stream of random choices.
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    /// Returns the stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// `SplitMix64` (Steele, Lea and Flood 2014).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        // Bounds are small, so the bias of the remainder is negligible.
        #[expect(clippy::cast_possible_truncation, reason = "below the bound")]
        let number = (self.next() % bound.max(1) as u64) as usize;
        number
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Returns true in `percent` of 100 cases.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns one of the items, or `None` if there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }

    /// Shuffles the items (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// The output function of `SplitMix64`: every bit of the result depends on every bit of the seed.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Hashes bytes: FNV-1a (Fowler, Noll and Vo), with its bits mixed so that the low ones are as random as the high ones.
pub fn hash(bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(hash)
}

/// Hashes a sequence of numbers, whose order matters.
pub fn combine(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0x243f_6a88_85a3_08d3, |hash, number| mix(hash ^ mix(number.wrapping_add(1))))
}

/// Hashes a bag of numbers, whose order doesn't matter.
pub fn combine_unordered(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, |sum: u64, number| sum.wrapping_add(mix(number.wrapping_add(0x1319_8a2e))))
}
