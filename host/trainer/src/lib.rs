//! Training: advantages, losses, learners, optimisers and checkpoints.
//!
//! [`Trainer`] sets up the policies of a workflow as [`learner::Learner`]s, updates them from transitions and
//! saves them. The modules below it are independent: [`returns`], [`filter`], [`advantage`], [`loss`], [`kl`], [`correction`] and
//! [`aggregation`] are pure functions, the parts that an objective is made of ([`objective`]); [`plan`] and
//! [`packing`] decide which sequences go through the model together, [`head`] avoids the full tensor of logits,
//! [`optimizer`] is AdamW, [`critic`] the value head whose estimates [`gae`] turns into advantages.

pub mod advantage;
pub mod aggregation;
pub mod base_weights;
pub mod checkpoint;
pub mod correction;
pub mod critic;
pub mod data_parallel;
mod error;
pub mod filter;
#[cfg(test)]
mod fixtures;
pub mod gae;
pub mod head;
pub mod kl;
pub mod learner;
pub mod loss;
pub mod lr;
pub mod memory;
pub mod metrics;
pub mod objective;
pub mod optimizer;
pub mod overlong;
pub mod packing;
pub mod plan;
mod policy_setup;
pub mod preparation;
pub mod returns;
mod scoring;
mod seeds;
mod token_columns;
pub mod token_explanation;
mod trainer;
mod validate;

pub use error::{CollectiveError, Error};
pub use learner::{Learner, LearnerSettings, NewPolicy};
pub use metrics::{LearnerUpdate, StepMetrics, UpdateMetrics};
pub use plan::Sample;
pub use policy_setup::ADAPTER_CONFIG;
pub use trainer::{LearnerTraining, ServedPolicy, Trainer, UpdateProgress};
pub use validate::check_transition;
