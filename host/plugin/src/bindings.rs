//! The contract's bindings: a module per version that this host speaks ([`crate::Contract`]).
//!
//! The rest of the crate uses the newest version. The module of an older version only adapts it to the
//! newest.

mod v0_1;

pub use v0_1::{agent, base, environment, log, policies, random, retrieval, reward, sandbox, types};
