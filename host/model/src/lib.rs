//! Models on libtorch: tokenizers, chat templates, weights, transformer, adapters.
//!
//! [`Model::load`] reads a Hugging Face folder or a GGUF file of the Llama, Qwen2 or Qwen3 family.
//! [`transform`] is the one definition of the transformer; it takes the attention and the adapters as
//! arguments, so that training ([`hidden_states`]: several sequences in one row of tokens) and generation
//! (which keeps keys and values) run the same code.

mod adapter;
mod chat;
mod config;
mod dtype;
mod error;
mod fetch;
mod forward;
mod gguf;
mod gguf_model;
mod gguf_tokenizer;
mod hub;
mod mapped;
mod matmul;
mod model;
mod packed;
mod pass;
mod peft;
mod python;
mod quant;
mod rope;
mod save;
mod shards;
mod template;
mod tokenizer;
mod weights;

pub use adapter::{Adapter, LowRank, Projection};
pub use chat::{ChatMessage, RenderOptions, ToolCall};
pub use config::{Config, Family};
pub use dtype::Dtype;
pub use error::Error;
pub use fetch::{FetchProgress, Fetched, Hub, HubModel};
pub use forward::{Deltas, NoDeltas, transform};
pub use matmul::{add_outer, linear};
pub use model::Model;
pub use packed::{LEAST_SHARED, Packed, Segment, Sequence, Span, causal_attention, common, segments};
pub use pass::{Gradients, Keep, Pass, hidden_states};
pub use rope::{Rope, RopeScaling};
pub use template::ChatTemplate;
pub use tokenizer::Tokenizer;
pub use weights::{Layer, Weights};
