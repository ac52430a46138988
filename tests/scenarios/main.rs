//! Whole-program scenarios: the built `pl-host` on real files, seen from outside.
//!
//! The binary, the guests and the model are what `cargo xtask setup` made.

mod bad_input;
mod commands;
mod determinism;
mod kill;
mod smollm;
mod support;
