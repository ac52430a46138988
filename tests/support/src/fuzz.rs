//! Fuzzing inside a test.
//!
//! A target passes inputs to a reader and fails if it panics, takes too long or aborts. In `cargo xtask test` each target
//! has two seconds and always the same inputs, which are mutated seeds, shrunk by proptest. `cargo xtask attack fuzz --minutes N`
//! builds the same tests with `--cfg fuzzing`: there libFuzzer mutates inputs and keeps those that reach new code.

#![allow(clippy::panic, reason = "so fails a test")]

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

/// Reads the files of a folder and of those in it, in order of name, as seeds.
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
