//! Checking: from the syntax tree to the checked workflow.

mod block;
mod condition;
mod logic;
mod plugins;
mod prune;
pub(crate) mod resolve;
mod resolver;
mod run;
mod schema;
mod turns;
