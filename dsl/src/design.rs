//! Designs: teams that a model writes, as fragments of the language.
//!
//! A design is `agent` blocks and one `turns` block over a [`Palette`](crate::workflow::Palette). The rest of the workflow,
//! the [`WorkflowSkeleton`], is not the model's: plugins, models, policies, environment and reward. [`check_design`] refuses
//! everything that could reach beyond the palette before the fragment and its skeleton are checked together like any workflow.
//! [`design_grammar`] is the language of designs as a grammar that a completion can be constrained to.

mod check;
mod grammar;
mod graph;
mod mistakes;
mod palette_checker;
mod patterns;
mod valid_parts;
mod workflow_skeleton;

pub use check::{check_design, format_design};
pub use grammar::design_grammar;
pub use graph::design_graph;
pub use mistakes::DesignMistake;
pub use patterns::pattern;
pub use valid_parts::ValidParts;
pub use workflow_skeleton::{SkeletonError, WorkflowSkeleton, own_design, with_paths};
