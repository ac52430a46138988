//! The public API: real data, and a retrieval server.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "tests")]

mod hotpotqa;
mod server;
