//! Both grammars read every workflow there is, and see the same in it.

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
