//! The maths domain: generated word problems, agents that compute, reason and aggregate, a grader.

mod agents;
mod aggregation;
mod generator;
pub mod grader;
mod problems;
mod record;
mod score;
mod votes;

pub use agents::{Reasoner, Tool};
pub use aggregation::{Aggregator, Sampler};
pub use problems::Problems;
pub use score::Score;

pl_sdk::export! { environments: [Problems], agents: [Tool, Reasoner, Sampler, Aggregator], rewards: [Score] }
