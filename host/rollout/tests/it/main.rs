//! Episodes with a scripted cast.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test crate: a panic is how a test fails")]

mod asking;
mod common;
mod data;
mod failures;
mod properties;
mod replay;
mod rests;
mod stops;
mod traps;
