//! The plugin contract on top of the engine: environments, agents, rewards.
//!
//! A [`Plugin`] is loaded once and describes its items ([`Plugin::items`]). An [`Environment`], an [`Agent`]
//! and a [`Reward`] are one item of a plugin with its settings; they are handles, cheap to clone, and safe to
//! share between tasks. An [`Episode`] is one running copy of an environment and owns its instance.
//!
//! A fault of a plugin affects only the call in which it happens: if a plugin loops, exhausts its memory,
//! traps or returns an invalid value, that call fails with an [`Error`] that names plugin, version, item and
//! function. The caller adds agent, turn and task.

mod agent;
mod bindings;
pub mod call_log;
mod check;
pub mod conformance;
mod contract;
mod corpora;
mod environment;
mod error;
mod hexadecimal;
mod item;
mod item_handle;
mod plugin;
mod plugin_log;
mod pool;
mod random;
mod reward;
pub mod section;
mod services;
mod snapshot;
mod stores;
mod values;

pub use agent::Agent;
pub use check::{LARGEST_REWARD, MAX_DRAWING};
pub use contract::{ComponentInterface, Contract, ContractError, DebugInfo};
pub use corpora::Corpora;
pub use environment::{Environment, Episode};
pub use error::{CallError, Cause, Error, RefusalKind};
pub use plugin::{Plugin, PluginSpec, known_items};
pub use random::{RandomStream, StreamPosition};
pub use reward::Reward;
pub use services::Services;
pub use snapshot::Snapshot;
pub use values::{
    AgentScore, Completion, DrawingForm, Message, Outcome, Part, PromptRequest, Role, Scores, Task, Tool,
    ToolCall, Turn,
};
