//! The Rust SDK for plugins: agents, environments and rewards.
//!
//! An agent is two functions, an environment is a struct that serde serializes to a snapshot, a reward is one
//! function. All values are typed here and cross to the host as JSON; schemas of the settings are generated
//! from their types.
//!
//! A complete plugin, a guessing game:
//!
//! ```
//! use pl_sdk::prelude::*;
//!
//! /// The number to guess and the guesses.
//! #[derive(Serialize, Deserialize)]
//! struct Game {
//!     number: u64,
//!     guesses: Vec<u64>,
//! }
//!
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(deny_unknown_fields, default)]
//! struct Rules {
//!     /// Numbers are below this, from 0 on.
//!     size: u64,
//! }
//!
//! impl Default for Rules {
//!     fn default() -> Self {
//!         Self { size: 100 }
//!     }
//! }
//!
//! #[derive(Serialize, Deserialize)]
//! struct Hints {
//!     size: u64,
//!     guesses: Vec<(u64, String)>,
//! }
//!
//! #[derive(Serialize, Deserialize)]
//! #[serde(rename_all = "snake_case")]
//! enum Guess {
//!     Guess(u64),
//!     None(String),
//! }
//!
//! #[derive(Serialize, Deserialize, JsonSchema)]
//! struct Facts {
//!     /// The number has been found.
//!     found: bool,
//! }
//!
//! impl Environment for Game {
//!     const NAME: &'static str = "game";
//!     const DOC: &'static str = "A number to guess.";
//!     type Settings = Rules;
//!     type View = Hints;
//!     type Action = Guess;
//!     type Facts = Facts;
//!     type Evidence = ();
//!
//!     fn start(rules: &Rules, _task: &Task, _seed: u64) -> Result<Self> {
//!         Ok(Self { number: random::below(rules.size), guesses: Vec::new() })
//!     }
//!
//!     fn view(&self, rules: &Rules, _agent: &str) -> Result<Hints> {
//!         let hint = |guess: &u64| if *guess < self.number { "too small" } else { "too large" };
//!         let guesses = self.guesses.iter().map(|guess| (*guess, hint(guess).to_owned())).collect();
//!         Ok(Hints { size: rules.size, guesses })
//!     }
//!
//!     fn apply(&mut self, _rules: &Rules, actions: &[Action<Guess>]) -> Result<Outcome<Facts, ()>> {
//!         for action in actions {
//!             if let Guess::Guess(number) = action.action {
//!                 self.guesses.push(number);
//!             }
//!         }
//!         let found = self.guesses.contains(&self.number);
//!         Ok(Outcome { done: found, truncated: false, facts: Facts { found }, evidence: () })
//!     }
//! }
//!
//! struct Player;
//!
//! impl Agent for Player {
//!     const NAME: &'static str = "player";
//!     const DOC: &'static str = "Guesses a number.";
//!     type Settings = NoSettings;
//!     type View = Hints;
//!     type Action = Guess;
//!
//!     fn prompt(_: &NoSettings, hints: &Hints, _turn: &Turn) -> Result<Option<Request>> {
//!         let mut text = format!("Guess a number below {}.\n", hints.size);
//!         for (guess, hint) in &hints.guesses {
//!             text.push_str(&format!("{guess} is {hint}.\n"));
//!         }
//!         Ok(Some(Request::user(text).with_stop(["\n"])))
//!     }
//!
//!     fn parse(_: &NoSettings, _: &Hints, completion: &Completion) -> Result<Guess> {
//!         let number = completion.text.trim().parse();
//!         Ok(number.map_or_else(|_| Guess::None("not a number".to_owned()), Guess::Guess))
//!     }
//! }
//!
//! struct Found;
//!
//! impl Reward for Found {
//!     const NAME: &'static str = "found";
//!     const DOC: &'static str = "1 if the number is found.";
//!     type Settings = NoSettings;
//!     type Action = Guess;
//!     type Facts = Facts;
//!     type Evidence = ();
//!
//!     fn score(_: &NoSettings, step: &Transition<Guess, Facts, ()>) -> Result<Scores> {
//!         let found = step.facts.found;
//!         let reward = f64::from(u8::from(found));
//!         // Each agent that acted gets its own score.
//!         let own = |agent: &str| AgentScore { agent: agent.to_owned(), reward, success: found };
//!         let local = step.actions.iter().map(|action| own(&action.agent)).collect();
//!         Ok(Scores { team: reward, local, success: found })
//!     }
//! }
//!
//! pl_sdk::export! { environments: [Game], agents: [Player], rewards: [Found] }
//! # fn main() {}
//! ```
//!
//! A plugin crate is a `cdylib`, compiled for `wasm32-unknown-unknown` and turned into a component with
//! wit-component (or `wasm-tools component new`). Add the crate type `rlib` for native tests, in which
//! [`services::testing`] replaces the host.
//!
//! The SDK sets the plugin's global allocator: the standard library's algorithm with a preallocated first
//! heap. A plugin with its own allocator depends on the SDK with `default-features = false`.

#[doc(hidden)]
pub mod bindings;

mod agent;
mod environment;
mod error;
#[doc(hidden)]
pub mod export;
#[cfg(all(feature = "heap", target_family = "wasm"))]
mod heap;
#[doc(hidden)]
pub mod registry;
mod reward;
pub mod services;
mod settings;

pub use agent::{Agent, Blob, Completion, Finish, Message, Part, Request, Role, Tool, ToolCall, Turn};
pub use environment::{Action, DrawingForm, Environment, Form, Outcome, Task, TaskRequest};
pub use error::{Error, ErrorKind, Result};
pub use reward::{AgentScore, Reward, Scores, Transition};
pub use serde_json::Value;
pub use services::{log, policies, random, retrieval, sandbox};
pub use settings::NoSettings;

/// The names that a plugin usually needs.
pub mod prelude {
    pub use schemars::JsonSchema;
    pub use serde::{Deserialize, Serialize};

    pub use crate::{
        Action, Agent, AgentScore, Completion, DrawingForm, Environment, Error, Finish, Form, Message,
        NoSettings, Outcome, Request, Result, Reward, Role, Scores, Task, TaskRequest, Transition, Turn, log,
        policies, random, retrieval, sandbox,
    };
}
