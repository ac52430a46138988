//! Verdicts as worker processes send them, mutated: a hole in the engine would let a program write any.

use pl_sandbox::{Ending, File, Verdict};
use pl_supervisor::{decode, encode_frame};
use pl_testing::fuzz::fuzz;

/// Returns the content of a verdict's frame.
fn content(verdict: &Verdict) -> Vec<u8> {
    encode_frame(verdict).unwrap().split_off(4)
}

#[test]
fn verdicts() {
    let file = File { path: "folder/name".to_owned(), bytes: vec![0, 1, 255] };
    let plain = Verdict { exit: Some(1), stdout: "out".to_owned(), reproducible: true, ..Verdict::default() };
    let with_cases = Verdict {
        ending: Ending::Timeout,
        output_files: vec![file],
        cases: vec![plain.clone(), plain.clone()],
        ..plain.clone()
    };
    let seeds = [Verdict::default(), plain, with_cases].map(|verdict| content(&verdict));
    // A verdict that is read is written and read again as it is.
    fuzz("verdicts of worker processes", &seeds, &[], |bytes| {
        if let Some(verdict) = decode::<Verdict>(bytes) {
            assert_eq!(decode(&content(&verdict)), Some(verdict));
        }
    });
}
