//! The maths domain: generated word problems, a tool agent, a reasoner, a grader.

mod agents;
mod generator;
pub mod grader;
mod problems;
mod record;
mod score;

pub use agents::{Reasoner, Tool};
pub use problems::Problems;
pub use score::Score;

pl_sdk::export! { environments: [Problems], agents: [Tool, Reasoner], rewards: [Score] }
