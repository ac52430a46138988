//! Episodes with a scripted setup.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test crate: a panic is how a test fails")]

mod bootstrap;
mod common;
mod continuation;
mod data;
mod failures;
mod long_prompts;
mod penalties;
mod properties;
mod replay;
mod requests;
mod suspension;
mod tool_calls;
mod traps;
mod turns;
