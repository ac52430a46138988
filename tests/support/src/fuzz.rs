//! Fuzzing inside a test.
//!
//! A target passes inputs to a reader and fails if it panics, takes too long or aborts. In `cargo xtask test` each target
//! has two seconds and always the same inputs, which are mutated seeds, shrunk by proptest. `cargo xtask attack fuzz --minutes N`
//! builds the same tests with `--cfg fuzzing`: there libFuzzer mutates inputs and keeps those that reach new code.

#![allow(clippy::panic, reason = "a panic is how a test fails")]

#[cfg(fuzzing)]
mod coverage;
#[cfg(not(fuzzing))]
mod mutations;

#[cfg(fuzzing)]
pub use coverage::fuzz;
#[cfg(not(fuzzing))]
pub use mutations::fuzz;

use std::fs;
use std::path::Path;
use std::time::Duration;

/// Longest CPU time of one input.
const LONGEST: Duration = Duration::from_secs(10);

/// Numbers as JSON has them, at which readers overflow, allocate too much or divide by zero.
const NUMBERS_IN_TEXT: [&str; 12] = [
    "0",
    "-1",
    "1e308",
    "-0.0",
    "1e-320",
    "255",
    "65536",
    "2147483648",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
];

/// Returns the CPU time of a thread so far, from the first field of its file `schedstat` in nanoseconds.
fn cpu_time(schedstat: &Path) -> Duration {
    let text = fs::read_to_string(schedstat).unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// Reads the files of a folder and its subfolders, in order of name, as seeds.
///
/// # Panics
/// If one of them can't be read.
pub fn files(folder: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>())
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    paths.sort();
    paths.iter().flat_map(|path| if path.is_dir() { files(path) } else { vec![read(path)] }).collect()
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
