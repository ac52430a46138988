//! Turns of learning: the steps in which a designer learns, and those in which the agents of its designs do.

use std::ops::Range;

use pl_dsl::workflow::{Designer, Workflow};

use crate::design::{designer_number, executor_numbers};

/// Designers of a workflow that learn by turns with the agents of their designs.
pub(super) struct Alternation {
    designers: Vec<Turns>,
}

struct Turns {
    designer: Designer,
    number: u32,
    executors: Range<u32>,
}

impl Alternation {
    pub fn new(workflow: &Workflow) -> Alternation {
        let designers = workflow.designers.iter().enumerate();
        let by_turns = designers.filter(|(_, designer)| designer.alternate.is_some());
        let turns = |(position, designer): (usize, &Designer)| Turns {
            designer: designer.clone(),
            number: designer_number(workflow, position),
            executors: executor_numbers(workflow, position),
        };
        Alternation { designers: by_turns.map(turns).collect() }
    }

    /// Returns the numbers of the agents whose completions an update of a step leaves out.
    pub fn left_out(&self, step: u64) -> Vec<Range<u32>> {
        let of = |turns: &Turns| match turns.designer.learns_in(step) {
            true => turns.executors.clone(),
            false => turns.number..turns.number + 1,
        };
        self.designers.iter().map(of).collect()
    }
}
