//! Whole operations of the library, on the `letters` plugin and a tiny random model.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test crate: a panic is how a test fails")]

mod best;
mod example;
mod memory;
mod resume;
mod support;
mod training;
