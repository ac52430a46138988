//! The code domain: functions to write, hidden tests, a coder that can repair a failed program.

mod coder;
mod problems;
mod record;
mod run;
mod score;

pub use coder::Coder;
pub use problems::Problems;
pub use score::Score;

pl_sdk::export! { environments: [Problems], agents: [Coder], rewards: [Score] }
