//! Bindings that wit-bindgen generates from the contract; the other modules wrap them.
//!
//! They are checked in because compiling wit-bindgen takes longer than compiling a plugin. A test in
//! `host/toolchain` checks that they match `wit/`.
#![allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::panic,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used
)]

#[rustfmt::skip]
mod contract;
/// Custom sections that name a component's world.
#[rustfmt::skip]
pub mod worlds;

pub use contract::*;
