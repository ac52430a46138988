//! Whole operations of the library, on the `letters` plugin and a tiny random model.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test crate: a panic is how a test fails")]

mod best;
mod critic;
mod designers;
mod devices;
mod example;
mod filters;
mod foreign;
mod fuzz;
mod in_flight;
mod lanes;
mod memory;
mod objectives;
mod permissions;
mod resume;
mod rewards;
mod roles;
mod run_folders;
mod schedule;
mod support;
mod sweep;
mod training;
mod update_steps;
mod vllm;
mod vllm_process;
