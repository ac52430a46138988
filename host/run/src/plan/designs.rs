//! Designs in a plan.

use pl_dsl::workflow::Designer;
use serde::Serialize;

use super::counts::TaskBounds;

/// Designs of a scenario.
#[derive(Serialize)]
pub struct DesignPlan {
    /// Name of the designer.
    pub designer: String,
    /// Designs of a task.
    pub designs: u32,
    /// Limit on the tokens of a design.
    pub design_tokens: u32,
    /// Episodes of a design.
    pub executions: u32,
    /// Bound of the tokens of each.
    pub execution_tokens: u64,
    /// Bounds of a task in training.
    pub task: TaskBounds,
}

impl DesignPlan {
    pub(super) fn new(designer: &Designer) -> DesignPlan {
        DesignPlan {
            designer: designer.name.clone(),
            designs: designer.designs,
            design_tokens: designer.max_tokens,
            executions: designer.executions,
            execution_tokens: designer.palette.max_tokens,
            task: TaskBounds::designed(designer),
        }
    }
}
