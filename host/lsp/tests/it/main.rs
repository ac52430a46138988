//! The server as an editor meets it: a process that is spoken to over its standard input and output.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test crate: a panic is how a test fails"
)]

mod checks;
mod editor;
mod knows;
mod robust;
mod talk;
