//! The contract's bindings: a module per version that this host speaks ([`crate::Contract`]).
//!
//! What the rest of the crate calls is the newest. A version that is no longer the newest keeps its module, which then
//! only turns its calls into the newest's.

mod v0_1;

pub use v0_1::{agent, base, environment, log, random, retrieval, reward, sandbox, types};
