//! OpenAI's API, and vLLM's dialect of it, over any engine that generates.
//!
//! [`serve`] answers requests until it is told to stop. Every policy of a workflow is a model, and its team
//! may be one more. Prompts become token ids here; log-probabilities are those of the distribution that tokens
//! were drawn from (what vLLM calls `processed_logprobs`).
//!
//! | path | format |
//! |---|---|
//! | `POST /v1/chat/completions`, `POST /v1/completions`, `GET /v1/models` | OpenAI's |
//! | `POST /inference/v1/generate`, `POST /tokenize`, `POST /detokenize`, `GET /health`, `GET /version` | vLLM's |
//! | `POST /v1/load_lora_adapter`, `POST /v1/unload_lora_adapter` | vLLM's |
//! | `POST /pause`, `POST /resume`, `POST /sleep`, `POST /wake_up` | vLLM's |
//! | `POST /update_weights`, `POST /update_weight_version`, `GET /weight_info` | vLLM's |
//! | `GET /metrics` | OpenMetrics, as Prometheus reads it |
//!
//! An endpoint refuses fields that it can't serve, by name, instead of ignoring them. Fields that no API here
//! knows are ignored, as other servers do.

mod adapter_loader;
mod adapters;
mod body;
mod chat;
mod chat_request;
mod chat_response;
mod completions;
mod config;
mod control;
mod episode;
mod error;
mod generate;
mod logprobs;
mod metrics;
mod models;
mod pause;
mod response;
mod response_format;
mod router;
mod sampling;
mod service;
mod stream;
mod team;
mod tokenize;
mod tool_calls;
mod weights;

pub use adapter_loader::{AdapterError, AdapterLoader, LoadedAdapter};
pub use config::{ServerConfig, ServerLimits};
pub use control::{ControlError, EngineControl};
pub use models::ServedModel;
pub use router::serve;
pub use service::Service;
pub use team::{Team, TeamError, TeamEvent, TeamResult, TeamTurn};
