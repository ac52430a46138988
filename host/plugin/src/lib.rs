//! The plugin contract on top of the engine: environments, agents, rewards.
//!
//! A [`Plugin`] is loaded once and says what it offers ([`Plugin::items`]). An [`Environment`], an [`Agent`] and a
//! [`Reward`] are one item of a plugin with its settings; they are handles, cheap to clone, and safe to share
//! between tasks. An [`Episode`] is one running copy of an environment and owns its instance.
//!
//! Nothing that a plugin does reaches further than the call it does it in: a plugin that loops, grows, traps or
//! returns what the contract forbids costs that call, with an [`Error`] that names plugin, version, item and
//! function. The caller knows agent, turn and task, and adds them.

mod agent;
mod bindings;
mod check;
pub mod conformance;
mod contract;
mod environment;
mod error;
mod item;
pub mod journal;
mod plugin;
mod pool;
mod random;
mod reward;
pub mod section;
mod services;
mod snapshot;
mod values;

pub use agent::Agent;
pub use contract::{Carried, Contract, Surface};
pub use environment::{Environment, Episode};
pub use error::{CallError, Cause, Error, RefusalKind};
pub use plugin::{Plugin, PluginSpec, known_items};
pub use random::{Mark, Stream};
pub use reward::Reward;
pub use services::Services;
pub use snapshot::Snapshot;
pub use values::{
    AgentScore, Completion, Message, Outcome, Part, PromptRequest, Role, Scores, Task, Tool,
    ToolCall, Turn,
};
