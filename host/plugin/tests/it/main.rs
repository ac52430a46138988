//! Tests of valid, faulty and hostile plugins.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test crate: a panic is how a test fails")]

mod common;
mod concurrency;
mod conformance;
mod contract;
mod corruption;
mod domain;
mod faults;
mod grants;
mod hostile;
mod isolation;
mod retrieval;
mod section;
