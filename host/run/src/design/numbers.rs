//! Numbers of designers and of the agents of their designs in keys and groups: after those of the workflow's own agents.

use std::ops::Range;

use pl_dsl::workflow::{Designer, Workflow};

/// Returns the number of a designer, by its position in the workflow.
pub(crate) fn designer_number(workflow: &Workflow, designer: usize) -> u32 {
    number(workflow.agents.len() + designer)
}

/// Returns the numbers that agents of a designer's designs have, by its position in the workflow. Those of two designers
/// differ.
pub(crate) fn executor_numbers(workflow: &Workflow, designer: usize) -> Range<u32> {
    let sizes = |count: usize| workflow.designers.iter().take(count).map(executors).sum::<usize>();
    let first = workflow.agents.len() + workflow.designers.len();
    number(first + sizes(designer))..number(first + sizes(designer + 1))
}

/// Number of agents that the designs of a task may have: of designs, or of roles.
fn executors(designer: &Designer) -> usize {
    let palette = &designer.palette;
    let roles = palette.agents.len() * palette.policies.len();
    palette.max_agents * roles.max(designer.designs as usize)
}

fn number(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
