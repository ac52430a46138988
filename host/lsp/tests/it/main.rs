//! Tests of the server: as a process, over its standard input and output, and with edits of a fuzzer.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test crate: a panic is how a test fails"
)]

mod diagnostics;
mod editor;
mod features;
mod fuzz;
mod lifecycle;
mod robustness;
