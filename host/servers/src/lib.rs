//! Generation on other machines: clients of vLLM, SGLang, llama.cpp and hosted models, and fleets of such servers.
//!
//! Token ids go in; token ids come out, with their log-probabilities under the distribution that they were drawn
//! from. Text stays with the caller, which knows the tokenizer.
//!
//! - [`Fleet`]: several servers of one kind. It spreads requests, limits connections, waits for servers that are
//!   busy, and moves the requests of a server that fails to the others.
//! - [`ChatRequest`]: a conversation with a hosted model, which has a tokenizer and a template of its own.
//! - A probe, before a server gets its first request: the server must return what training needs.
//! - [`HttpClient`]: JSON over HTTP to one server of any kind, with retries.
//! - [`RemoteAdapter`]: an adapter under a name of its own, loaded on each server before the requests that use it.
//! - [`RemoteWeights`]: weights of a whole model, which replace those of a model of each server.

mod attempts;
mod balancer;
mod config;
mod dialect;
mod error;
mod event;
mod fleet;
mod health;
mod http;
mod identity;
mod llamacpp;
mod openai;
mod placement;
mod probe;
mod request;
mod server;
mod sglang;
mod sleep;
mod stats;
mod validate;
mod vllm;
mod vllm_weights;

pub use config::{Backoff, FleetConfig, HttpSettings, ServerKind, SleepLevel};
pub use error::ServerError;
pub use event::FleetEvent;
pub use fleet::Fleet;
pub use http::HttpClient;
pub use openai::{ChatCompletion, ChatRequest, ChatToolCall};
pub use probe::Probe;
pub use request::{RemoteAdapter, RemoteModel, RemoteWeights, TokenCompletion, TokenRequest};
pub use stats::ServerStats;
