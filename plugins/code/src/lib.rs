//! The code domain: programs to write, hidden tests, a coder that can repair a failed program, a tester that writes tests.
//!
//! A program and its tests never share a process. The hidden tests run in jobs of `judge`, which look the program's
//! answers up; the program runs in jobs of `candidate`, which get calls and return plain data. `grading` leads
//! from one to the other until the tests have every answer. Tests that agents write are read as data (`reader`), and never
//! run: they are an input and an expected output, which is compared with a program's by `data`.

mod asserts;
mod attempt;
mod blocks;
mod candidate;
mod cases;
mod coder;
mod data;
mod example;
mod grading;
mod judge;
mod problems;
mod reader;
mod record;
mod score;
mod tester;
mod work;
mod written;

pub use coder::Coder;
pub use problems::Problems;
pub use score::Score;
pub use tester::Tester;

pl_sdk::export! { environments: [Problems], agents: [Coder, Tester], rewards: [Score] }
