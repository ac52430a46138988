//! Tables of a run folder from strangers, mutated: an error or rows, never a panic.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

#[path = "../src/fixtures.rs"]
mod fixtures;

use std::fs;
use std::path::Path;

use pl_record::{read_transitions, write_transitions};
use pl_testing::fuzz::fuzz;

use fixtures::transition;

#[test]
fn transitions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("step.parquet");
    write_transitions(&path, &[transition(0, None), transition(1, Some(0)), transition(2, Some(2))]).unwrap();
    fuzz("tables of transitions", &[fs::read(&path).unwrap()], &["PAR1"], |bytes| {
        fs::write(&path, bytes).unwrap();
        // What is read can be written.
        if let Ok(rows) = read_transitions(&path) {
            write_transitions(&path, &rows).unwrap();
        }
    });
}

/// A file that the fuzzer found, at which the library's reader panics.
#[test]
fn a_damaged_page_is_an_error() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/damaged/page.parquet");
    let error = read_transitions(&path).unwrap_err().to_string();
    assert!(error.ends_with("page.parquet: it is damaged: the library can't decode it"), "{error}");
}
