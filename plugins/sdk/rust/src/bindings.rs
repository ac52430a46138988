//! What wit-bindgen makes of the contract. The rest of the crate gives it shape.
//!
//! It lies here ready made, for wit-bindgen takes longer to compile than a plugin; a test of `host/toolchain` holds it
//! to `wit/`.
#![allow(missing_docs, clippy::all, clippy::pedantic, clippy::panic, clippy::unwrap_used)]

#[rustfmt::skip]
mod contract;
/// What a component says of the world that it is in.
#[rustfmt::skip]
pub mod worlds;

pub use contract::*;
