//! The API as clients see it: a server on a real socket over an engine that is scripted.

mod bad_requests;
mod chat;
mod completions;
mod engine;
mod generate;
mod server;
mod team;
