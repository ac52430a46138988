//! The search domain: questions whose answers stand in the passages of a corpus, an agent that searches and one that
//! answers, and scores as HotpotQA's and Search-R1's programs have them.

mod agents;
pub mod matching;
mod passages;
mod questions;
mod record;
mod score;

pub use agents::{Reasoner, Searcher};
pub use questions::Questions;
pub use score::Score;

pl_sdk::export! { environments: [Questions], agents: [Searcher, Reasoner], rewards: [Score] }
