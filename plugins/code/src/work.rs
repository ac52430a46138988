//! Work of agents, as the reward sees it.

use pl_sdk::prelude::*;

use crate::attempt::Tally;

/// Work of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    /// A program, with its result in the hidden tests.
    Program(Tally),
    /// Tests.
    Tests(TestWork),
}

/// Tests of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestWork {
    /// Number of different tests that a right program holds and the problem doesn't give.
    pub right: u32,
    /// Number of tests that the step should write.
    pub wanted: u32,
    /// True if the newest program does not pass the hidden tests.
    pub wrong_program: bool,
    /// True if that program fails one of the right tests.
    pub caught: bool,
}

/// All work of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkHistory {
    /// Work of its last step. `None` if that had neither a program nor tests.
    pub latest: Option<Work>,
    /// Work of its earlier steps, each once.
    pub earlier: Vec<Work>,
}

impl WorkHistory {
    /// Adds the work of a step.
    pub fn push(&mut self, work: Option<Work>) {
        let last = self.latest.take();
        self.earlier.extend(last.filter(|last| !self.earlier.contains(last)));
        self.latest = work;
    }
}
