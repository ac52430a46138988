//! Checking: from the syntax tree to the checked workflow.

mod block;
mod cluster;
mod condition;
mod corpora;
mod credit;
mod designers;
mod devices;
mod grammar;
mod logic;
mod objective;
mod objective_rules;
mod packed;
mod plugins;
mod prune;
pub(crate) mod resolve;
mod resolver;
mod roles;
mod run;
mod scenarios;
mod schema;
mod servers;
mod training;
mod turns;
mod update_steps;

pub use self::servers::is_variable;
