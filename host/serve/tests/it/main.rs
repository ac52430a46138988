//! The API as clients see it: a server on a real socket over an engine that is scripted.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test crate: a panic is how a test fails")]

mod adapters;
mod bad_requests;
mod chat;
mod completions;
mod control;
mod engine;
mod generate;
mod server;
mod team;
