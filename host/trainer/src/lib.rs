//! Advantages, losses, learners, schedules, checkpoints.
//!
//! [`Trainer`] is what a run works with: it turns the policies of a workflow into [`learner::Learner`]s, updates
//! them from transitions and saves them. The parts below it stand alone: [`advantage`] and [`loss`] are pure
//! functions, [`plan`] and [`packing`] say what is computed together, [`head`] keeps the vocabulary out of
//! memory, [`optimizer`] is AdamW.

pub mod advantage;
pub mod base;
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
pub mod schedule;
mod stream;
mod trainer;
#[cfg(test)]
mod trl;

pub use error::Error;
pub use learner::{Learner, Sample, Settings};
pub use metrics::{StepMetrics, UpdateMetrics};
pub use trainer::{ADAPTER_CONFIG, Progress, Served, Trainer};
