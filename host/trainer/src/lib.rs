//! Training: advantages, losses, learners, optimisers and checkpoints.
//!
//! [`Trainer`] sets up the policies of a workflow as [`learner::Learner`]s, updates them from transitions and
//! saves them. The modules below it are independent: [`advantage`] and [`loss`] are pure functions, [`plan`]
//! and [`packing`] decide which sequences go through the model together, [`head`] avoids the full tensor of
//! logits, [`optimizer`] is AdamW.

pub mod advantage;
pub mod base_weights;
pub mod checkpoint;
mod error;
#[cfg(test)]
mod fixtures;
pub mod head;
pub mod learner;
pub mod loss;
pub mod lr;
pub mod memory;
pub mod metrics;
pub mod optimizer;
pub mod packing;
pub mod plan;
mod policy_setup;
mod seeds;
mod token_columns;
mod trainer;
mod validate;

pub use error::Error;
pub use learner::{Learner, LearnerSettings};
pub use metrics::{StepMetrics, UpdateMetrics};
pub use plan::Sample;
pub use policy_setup::ADAPTER_CONFIG;
pub use trainer::{ServedPolicy, Trainer, UpdateProgress};
