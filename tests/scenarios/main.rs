//! Whole-program scenarios: the built `pl-host` on real files, seen from outside.
//!
//! `cargo xtask setup` makes the binary, the guests and the model.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test crate: a panic is how a test fails"
)]

mod agreement;
mod audits;
mod bad_input;
mod boards;
mod clock;
mod cluster;
mod cluster_learners;
mod commands;
mod design;
mod determinism;
mod device;
mod foresight;
mod kill;
mod languages;
mod mixture;
mod neovim;
mod openai;
mod permissions;
mod plugins;
mod power;
mod replay;
mod sandboxes;
mod search;
mod serve;
mod server_process;
mod servers;
mod smollm;
mod support;
mod tools;
mod tutorial;
mod view;
