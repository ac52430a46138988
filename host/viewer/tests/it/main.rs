//! The viewer over recorded runs: its pages, its access control, and damaged files.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test crate: a panic is how a test fails"
)]

mod api;
mod browser;
mod damage;
mod export;
mod large;
mod play;
mod player;
mod recorded;
mod security;
mod server;
mod trackers;
