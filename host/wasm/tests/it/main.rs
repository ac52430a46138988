//! The engine on small guests in text form.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test crate: a panic is how a test fails")]

mod compile;
mod limits;
mod load;
mod module;
mod remains;
