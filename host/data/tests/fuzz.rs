//! Parquet files of tasks from strangers, mutated: an error or records, never a panic.

#![allow(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

#[path = "../src/fixtures.rs"]
mod fixtures;

use std::fs;

use pl_data::{count_records, read_file};
use pl_testing::fuzz::fuzz;

#[test]
fn parquet() {
    let folder = fixtures::folder(&[("x.parquet", &fixtures::parquet())]);
    let path = folder.path().join("x.parquet");
    fuzz("Parquet files of tasks", &[fs::read(&path).unwrap()], &["PAR1"], |bytes| {
        fs::write(&path, bytes).unwrap();
        let counted = count_records(&path);
        if read_file(&path).is_ok() {
            assert!(counted.is_ok(), "{counted:?}");
        }
    });
}
