//! Plugins of every temper, under the host.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test crate: a panic is how a test fails")]

mod beside;
mod common;
mod contract;
mod crowd;
mod damage;
mod domain;
mod doors;
mod hostile;
mod lies;
mod section;
