//! Random numbers, names and things for word problems, and the type of their templates.

const NAMES: [&str; 28] = [
    "Tom", "Anna", "Ben", "Clara", "David", "Emma", "Frank", "Grace", "Henry", "Isla", "Jack", "Kate", "Leo",
    "Mia", "Noah", "Olivia", "Paul", "Rosa", "Sara", "Theo", "Uma", "Victor", "Wendy", "Yara", "Amir", "Lin",
    "Nadia", "Omar",
];

/// Things that people own, buy and give away.
const THINGS: [&str; 24] = [
    "apples", "marbles", "stickers", "pencils", "books", "cookies", "shells", "coins", "stamps", "balloons",
    "cards", "oranges", "toys", "buttons", "flowers", "ribbons", "stones", "beads", "peaches", "muffins",
    "crayons", "plums", "candles", "badges",
];

const CONTAINERS: [&str; 8] = ["boxes", "bags", "baskets", "jars", "drawers", "crates", "trays", "shelves"];

/// A question and its answer, which is a whole number.
pub type WordProblem = (String, i64);

/// Makes a word problem from random choices.
pub type Template = fn(&mut Draw) -> WordProblem;

/// A stream of random choices.
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

    /// Returns one of the items.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        // Lists are short, so the bias of the remainder is negligible.
        #[expect(clippy::cast_possible_truncation, reason = "below the length")]
        let index = (self.next() % items.len() as u64) as usize;
        &items[index]
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn number(&mut self, low: i64, high: i64) -> i64 {
        let span = high.abs_diff(low) + 1;
        low.saturating_add_unsigned(self.next() % span)
    }

    /// Returns a multiple of `step` from `low` to `high`. `low` must be a multiple too.
    pub fn multiple(&mut self, step: i64, low: i64, high: i64) -> i64 {
        step * self.number(low / step, high / step)
    }

    /// Returns a name.
    pub fn name(&mut self) -> &'static str {
        self.pick::<&str>(&NAMES)
    }

    /// Returns two different names.
    pub fn names(&mut self) -> (&'static str, &'static str) {
        self.two(&NAMES)
    }

    /// Returns a kind of things, in the plural.
    pub fn thing(&mut self) -> &'static str {
        self.pick::<&str>(&THINGS)
    }

    /// Returns two different kinds of things.
    pub fn things(&mut self) -> (&'static str, &'static str) {
        self.two(&THINGS)
    }

    /// Returns a kind of containers, in the plural.
    pub fn container(&mut self) -> &'static str {
        self.pick::<&str>(&CONTAINERS)
    }

    fn two(&mut self, items: &[&'static str]) -> (&'static str, &'static str) {
        let first = *self.pick(items);
        loop {
            let second = *self.pick(items);
            if second != first {
                return (first, second);
            }
        }
    }
}

/// The output function of `SplitMix64`: every bit of the result depends on every bit of the seed.
pub fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
