//! The code domain: programs to write, hidden tests, a coder that can repair a failed program.
//!
//! A program and its tests never share a process. The tests run in jobs of `judge`, which look the program's
//! answers up; the program runs in jobs of `candidate`, which get calls and return plain data. `grading` leads
//! from one to the other until the tests have every answer.

mod asserts;
mod attempt;
mod candidate;
mod cases;
mod coder;
mod example;
mod grading;
mod judge;
mod problems;
mod record;
mod score;

pub use coder::Coder;
pub use problems::Problems;
pub use score::Score;

pl_sdk::export! { environments: [Problems], agents: [Coder], rewards: [Score] }
