//! Untrusted code on both backends.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test crate: a panic is how a test fails")]

mod attacks;
mod docker;
mod endpoints;
mod engine;
mod engines;
mod fuzz;
mod hoarding;
mod load;
mod process;
mod python;
mod real_programs;
mod registry;
mod scripted_engine;
