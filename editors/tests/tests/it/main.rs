//! Tests that both grammars read every workflow and assign the same classes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test crate: a panic is how a test fails"
)]

mod classes;
mod corpus;
mod files;
mod reading;
mod textmate;
mod tree;
