//! Models on libtorch: file formats, tokenizers, chat templates, weights, adapters, and the transformer.
//!
//! [`Model::load`] reads a Hugging Face folder or a GGUF file of the Llama, Qwen2 or Qwen3 family; [`Hub`]
//! downloads one. The transformer is defined once: training runs it forward and backward over packed
//! sequences ([`Pass`]), and generation on libtorch runs the same blocks over its KV cache
//! ([`forward_cached`]). Generation on the CPU has kernels of its own, in `pl-kernels` and
//! `pl-inference`.

mod adamw;
mod dtype;
mod error;
mod formats;
mod hub;
pub mod libtorch;
mod model;
mod network;
mod text;

pub use adamw::{AdamWStep, Moments, fused_adamw};
pub use chrono::NaiveDate;
pub use dtype::TorchDtype;
pub use error::Error;
pub use hub::{FetchProgress, Fetched, FetchedData, Hub, HubData, HubModel};
pub use model::Model;
pub use network::adapter::{Adapter, LowRank, Projection};
pub use network::config::{Config, Family};
pub use network::matmul::{add_outer, linear, logits};
pub use network::packed::{MIN_SHARED_TOKENS, Packed, Segment, Sequence, TokenSpan, common, segments};
pub use network::rope::Rope;
pub use network::rope_scaling::RopeScaling;
pub use network::tensor_set::TensorSet;
pub use network::transformer::{
    AdapterRows, AdapterRun, AdapterSlots, Checkpointing, ContextAttention, Gradients, Pass, forward_cached,
    hidden_states,
};
pub use network::weight_matrix::{UNPACKED_BYTES, WeightMatrix};
pub use network::weights::{Layer, Weights};
pub use text::chat::{ChatMessage, RenderOptions, ToolCall};
pub use text::stop_strings::StopStringMatcher;
pub use text::template::ChatTemplate;
pub use text::tokenizer::Tokenizer;
pub use text::tool_calls::ToolCallFormat;
