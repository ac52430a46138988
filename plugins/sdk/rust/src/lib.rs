//! The Rust SDK for plugins: agents, environments and rewards.
