//! Fleets of servers that fail in many ways, over real sockets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test crate: a panic is how a test fails")]

mod adapters;
mod chats;
mod faults;
mod probes;
mod scripted;
mod sleep;
mod weights;
