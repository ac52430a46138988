//! Tables of a run folder from strangers, mutated: an error or rows, never a panic.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

#[path = "../src/fixtures.rs"]
mod fixtures;

use std::fs;

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
