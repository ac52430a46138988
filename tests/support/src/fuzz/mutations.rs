//! Targets on stable Rust, without a sanitizer or coverage: always the same mutations of the seeds.

use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, FileFailurePersistence, RngAlgorithm, TestRng, TestRunner};

use super::{LONGEST, NUMBERS_IN_TEXT, cpu_time};

/// Time of a target.
const TIME: Duration = Duration::from_secs(2);

/// File with the CPU time of the thread that reads it.
const THIS_THREAD: &str = "/proc/thread-self/schedstat";

/// Inputs between two looks at the clock.
const BATCH: u32 = 64;

/// Numbers at which readers overflow, allocate too much or divide by zero.
const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    7,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
    0x4000_0000_0000_0000,
];

#[derive(Debug, Clone)]
enum Mutation {
    Flip(Index, u8),
    Set(Index, u8),
    /// A little-endian number of 1, 2, 4 or 8 bytes.
    Number(Index, Index, u8),
    /// Another number in place of one that is written in digits.
    Digits(Index, Index),
    Insert(Index, Vec<u8>),
    Word(Index, Index),
    Delete(Index, u16),
    /// Bytes from one place to another.
    Copy(Index, u16, Index),
    Cut(Index),
    /// The end of another seed.
    Splice(Index, Index, Index),
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    use Mutation::*;
    let index = any::<Index>;
    let one = prop_oneof![
        (index(), 0..8u8).prop_map(|(at, bit)| Flip(at, bit)),
        (index(), any::<u8>()).prop_map(|(at, byte)| Set(at, byte)),
        (index(), index(), 0..4u8).prop_map(|(at, number, width)| Number(at, number, width)),
        (index(), index()).prop_map(|(at, text)| Digits(at, text)),
        (index(), prop::collection::vec(any::<u8>(), 1..8)).prop_map(|(at, bytes)| Insert(at, bytes)),
        (index(), index()).prop_map(|(at, word)| Word(at, word)),
        (index(), 1..64u16).prop_map(|(at, length)| Delete(at, length)),
        (index(), 1..256u16, index()).prop_map(|(from, length, to)| Copy(from, length, to)),
        index().prop_map(Cut),
        (index(), index(), index()).prop_map(|(seed, from, at)| Splice(seed, from, at)),
    ];
    prop::collection::vec(one, 0..8)
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>, seeds: &[Vec<u8>], words: &[&str]) {
        // One past the end is a place for insertions.
        let place = |at: &Index| at.index(bytes.len() + 1);
        match self {
            Mutation::Flip(at, bit) => {
                let at = place(at);
                bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << bit);
            }
            Mutation::Set(at, byte) => {
                let at = place(at);
                bytes.get_mut(at).into_iter().for_each(|old| *old = *byte);
            }
            Mutation::Number(at, number, width) => {
                let (at, number) = (place(at), NUMBERS[number.index(NUMBERS.len())].to_le_bytes());
                bytes.iter_mut().skip(at).zip(&number[..1 << width]).for_each(|(old, new)| *old = *new);
            }
            Mutation::Digits(at, text) => {
                let at = place(at);
                let start = bytes.iter().skip(at).position(u8::is_ascii_digit).map(|offset| at + offset);
                let Some(start) = start else { return };
                let is_digit = |byte: &&u8| byte.is_ascii_digit() || b".eE".contains(byte);
                let length = bytes[start..].iter().take_while(is_digit).count();
                bytes.splice(
                    start..start + length,
                    NUMBERS_IN_TEXT[text.index(NUMBERS_IN_TEXT.len())].bytes(),
                );
            }
            Mutation::Insert(at, new) => {
                let at = place(at);
                bytes.splice(at..at, new.iter().copied());
            }
            Mutation::Word(at, word) => {
                let at = place(at);
                if !words.is_empty() {
                    bytes.splice(at..at, words[word.index(words.len())].bytes());
                }
            }
            Mutation::Delete(at, length) => {
                let at = place(at);
                let end = bytes.len().min(at + usize::from(*length));
                bytes.drain(at..end);
            }
            Mutation::Copy(from, length, to) => {
                let (from, to) = (place(from), place(to));
                let end = bytes.len().min(from + usize::from(*length));
                let copied = bytes[from..end].to_vec();
                bytes.splice(to..to, copied);
            }
            Mutation::Cut(at) => {
                let at = place(at);
                bytes.truncate(at);
            }
            Mutation::Splice(seed, from, at) => {
                let (at, seed) = (place(at), &seeds[seed.index(seeds.len())]);
                bytes.truncate(at);
                bytes.extend_from_slice(&seed[from.index(seed.len() + 1)..]);
            }
        }
    }
}

/// Passes mutations of `seeds` to a reader until the time of a target is over, and prints their number. `words` are
/// inserted here and there: what inputs of the format have.
///
/// # Panics
/// If the reader panics or takes more than 10 s of CPU time, with the shortest input that was found.
pub fn fuzz(name: &str, seeds: &[Vec<u8>], words: &[&str], read: impl Fn(&[u8])) {
    let config = Config {
        cases: BATCH,
        max_shrink_iters: 2000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[0; 32]);
    let mut runner = TestRunner::new_with_rng(config.clone(), rng);
    let inputs = (any::<Index>(), mutations()).prop_map(|(seed, mutations)| {
        let mut bytes = seeds[seed.index(seeds.len())].clone();
        mutations.iter().for_each(|mutation| mutation.apply(&mut bytes, seeds, words));
        Input(bytes)
    });
    let (started, count) = (Instant::now(), Cell::new(0u64));
    while started.elapsed() < TIME {
        // A runner counts its cases for good.
        runner = TestRunner::new_with_rng(config.clone(), runner.new_rng());
        let tried = runner.run(&inputs, |Input(bytes)| {
            count.set(count.get() + 1);
            let started = Instant::now();
            read(&bytes);
            if started.elapsed() >= LONGEST {
                // Beside other work, the clock alone says little.
                let before = cpu_time(Path::new(THIS_THREAD));
                read(&bytes);
                let took = cpu_time(Path::new(THIS_THREAD)).saturating_sub(before);
                prop_assert!(took < LONGEST, "it took {took:?}");
            }
            Ok(())
        });
        if let Err(failure) = tried {
            panic!("{name}, after {} inputs: {failure}", count.get());
        }
    }
    eprintln!("{name}: {} inputs", count.get());
}

/// Input that is shown as a text with escapes.
struct Input(Vec<u8>);

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The control: a bug behind two conditions is found in the time of a test.
    #[test]
    #[should_panic(expected = "a length of 65535")]
    fn a_reader_that_panics_is_found() {
        let seeds = vec![b"MAGIC\x04\x00data".to_vec()];
        fuzz("a reader with a bug", &seeds, &[], |bytes| {
            let Some(rest) = bytes.strip_prefix(b"MAGIC") else { return };
            let [low, high, ..] = rest else { return };
            assert!(u16::from_le_bytes([*low, *high]) != 65535, "a length of 65535");
        });
    }

    #[test]
    fn the_cpu_time_of_a_thread_grows_with_its_work() {
        let (before, started) = (cpu_time(Path::new(THIS_THREAD)), Instant::now());
        while cpu_time(Path::new(THIS_THREAD)) - before < Duration::from_millis(20) {
            assert!(started.elapsed() < Duration::from_secs(60), "the system counts no CPU time");
        }
    }

    #[test]
    fn equal_seeds_make_equal_inputs() {
        let inputs = || {
            let seen = std::cell::RefCell::new(Vec::new());
            fuzz("anything", &[b"{\"a\": 1}".to_vec()], &["null"], |bytes| {
                let mut seen = seen.borrow_mut();
                if seen.len() < 500 {
                    seen.push(bytes.to_vec());
                }
            });
            seen.into_inner()
        };
        let (one, two) = (inputs(), inputs());
        assert_eq!(one, two);
        assert!(one.iter().collect::<std::collections::BTreeSet<_>>().len() > 300);
    }
}
