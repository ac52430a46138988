//! The viewer over recorded runs: what it shows, whom it answers, and damaged files.

mod api;
mod browser;
mod damage;
mod large;
mod recorded;
mod security;
mod server;
